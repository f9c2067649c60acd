"""What files on disk may say: strict readers of models, fleets and stores, the same for whoever opens them.

These readers believe nothing: every key, kind, range, shape and size is checked before it is used, and what does not
fit ends in a message that names the file, the place, what was expected and what was found. They import nothing but the
errors, so that ``verify`` may use them and still share no code with what it judges.
"""
