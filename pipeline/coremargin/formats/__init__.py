"""Formats on disk: strict readers of models, fleets and stores, shared by the package and the verifier.

These readers believe nothing: every key, kind, range, shape and size is checked before it is used, and what does not
fit ends in a message that names the file, the place, what was expected and what was found. They import nothing but the
errors, so that ``verify`` may use them and still share no code with what it judges.
"""
