"""Kernels: their values and what rounding does to them, and the support vector machine on rows held in memory."""
