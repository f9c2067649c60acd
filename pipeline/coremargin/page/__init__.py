"""The annotation page: served by Tornado on this machine, to browsers that know its secret address."""
