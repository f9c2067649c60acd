"""Structured output: what is predicted for an example is a labelling of all of its rows."""
