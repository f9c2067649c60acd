"""Whether draws are honest: the rows that the generator draws, all of them, in their order."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Container, Iterator
from itertools import count, islice
from typing import TYPE_CHECKING, Protocol

import numpy as np

from coremargin.verify.checks import Check

if TYPE_CHECKING:
    from coremargin.formats.queried import Evidence
    from coremargin.verify.active.claim import ActiveClaim
    from coremargin.verify.rows import Rows

WALKED = 4_400_000  #: rows of the order that are gone over: nobody draws from more than 4,000,000
_AT_ONCE = 1 << 16  # draws whose weights are looked up together, at most
_LIGHT = 100  # so many rows that are passed over cost as much as one that is drawn


def drawn(digest: str, seed: int, attempt: int, rows: int) -> Iterator[int]:
    """All rows in the order in which they are drawn, by the definition in formats/draws.py."""
    below, seen = 2**64 - 2**64 % max(1, rows), set[int]()
    for block in count():
        if len(seen) == rows:
            return
        text = hashlib.sha256(f"coremargin draws 1 {digest} {seed} {attempt} {block}".encode("ascii"))
        for number in struct.unpack(">4Q", text.digest()):
            if number < below and number % rows not in seen:
                seen.add(number % rows)
                yield number % rows


class Weighed(Protocol):
    """Rows of a store, as of some commit."""

    @property
    def rows(self) -> int: ...  # noqa: D102
    def weigh(self, rows: np.ndarray, /) -> np.ndarray: ...  # noqa: D102


def fresh(
    claim: ActiveClaim, rows: Weighed, attempt: int, known: Container[int], spend: Callable[[int], object] | None = None
) -> Iterator[int]:
    """Rows in the order in which an attempt draws them: of a weight above 0, and none of those that are known.

    spend: is told how many are drawn; those without a weight, which are passed over at once, count a little.
    """
    order, size = drawn(claim.store_digest, claim.seed, attempt, rows.rows), 64
    while some := list(islice(order, size)):
        new = np.array([row for row in some if row not in known], np.int64)
        weighed = rows.weigh(new)
        if spend is not None:
            spend(int(weighed.sum()) + len(some) // _LIGHT)
        yield from new[weighed].tolist()
        size = min(2 * size, _AT_ONCE)


def taken(claim: ActiveClaim) -> set[int]:
    """Rows that no attempt draws now: they are answered, or nobody could label them."""
    return {*claim.answered.ids.tolist(), *claim.unsure.tolist()}


def honest_draws(claim: ActiveClaim, rows: Rows) -> list[Check]:
    """Whether the draws are the first rows that the seed, the store and the attempt draw: none left out, none added."""
    evidence = claim.evidence
    if evidence is None:
        return []
    order = fresh(claim, rows, evidence.attempt, taken(claim))
    where = source_of(claim, evidence)
    for place, row in enumerate(claim.draws_ids.tolist(), 1):
        wanted = next(order, None)
        if row != wanted:
            found = "no row is left to draw" if wanted is None else f"{where} and the store draw row {wanted} there"
            return [Check("draws", ok=False, text=f"model claims that row {row} was draw {place}; {found}")]
    text = f"the first {evidence.draws:,} rows without an answer that {where} and the store draw"
    return [Check("draws", ok=True, text=text)]


def source_of(claim: ActiveClaim, evidence: Evidence) -> str:
    """What draws rows, in words."""
    return f"seed {claim.seed}, attempt {evidence.attempt}"
