"""What all our servers have in common: where they listen, and who may talk to them."""
