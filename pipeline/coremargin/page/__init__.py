"""The page on which people answer: served on this machine only, by Tornado, to browsers that know its address."""
