"""Which rows are drawn: an order of all rows that follows from a seed, a store's digest and the number of an attempt.

So draws cannot be chosen, and seed, digest and attempt give the same rows to everyone. The definition::

    block k = 0, 1, ...     SHA-256 of the ASCII text "coremargin draws 1 DIGEST SEED ATTEMPT k", numbers in decimal
    a block                 four numbers of 64 bits, the most significant byte first
    a number v              is passed over where v >= q rows, q = floor(2^64 / rows), so that no row is favoured;
                            else it draws row v mod rows, unless that row was drawn before

Draws try a hypothesis that was there before they were answered: the log names it with each of them, by a hash
(``hypothesis_hash``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

_NUMBERS = 1 << 64


def drawn(digest: str, seed: int, attempt: int, rows: int) -> Iterator[int]:
    """Numbers of rows below ``rows``, each once, in the order in which they are drawn."""
    limit, seen, block = _NUMBERS // rows * rows, set[int](), 0
    while len(seen) < rows:
        text = hashlib.sha256(f"coremargin draws 1 {digest} {seed} {attempt} {block}".encode("ascii")).digest()
        block += 1
        for first in range(0, len(text), 8):
            number = int.from_bytes(text[first : first + 8], "big")
            row = number % rows
            if number < limit and row not in seen:
                seen.add(row)
                yield row


def hypothesis_hash(w: np.ndarray, b: np.ndarray) -> str:
    """SHA-256, in hex, of hyperplanes w (k, d), b (k,): of their numbers as float64, the least significant byte first,
    those of w row by row, then those of b.
    """
    numbers = (np.ascontiguousarray(part, dtype="<f8").tobytes() for part in (w, b))
    return hashlib.sha256(b"".join(numbers)).hexdigest()
