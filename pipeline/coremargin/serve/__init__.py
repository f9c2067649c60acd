"""Shared parts of local servers: addresses, access control, background work."""
