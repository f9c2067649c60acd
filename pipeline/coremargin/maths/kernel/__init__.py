"""Kernels: their values, bounds on the rounding of these, and support vector machines on rows held in memory."""
