"""Checks of every scan: the store is that of the claim, and contains the coreset's rows as the model has them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.errors import DamagedChunk
from coremargin.verify.checks import Check, typed
from coremargin.verify.folds import held_out
from coremargin.verify.sums import UNIT, VANISHED, row_lengths, same_rows

if TYPE_CHECKING:
    from coremargin.verify.claim import Claim
    from coremargin.verify.rows import Chunk, Rows

_LISTED = 5  # examples in a message
_LONGEST = 1e290  # beyond this the arithmetic here overflows
_ROUNDED_UP = 1e-6  # relative: a claimed radius may be above the one found by this


@dataclass(frozen=True)
class Members:
    """The coreset's rows in one chunk: ``places`` in the model's arrays, ``signs`` in the store."""

    places: np.ndarray
    signs: np.ndarray
    mismatched: tuple[int, ...]  #: rows that differ from those in the store
    other_class: tuple[int, ...]  #: rows of another class in the store
    without_label: tuple[int, ...]  #: rows without label
    given_longest: float  #: if rows are mapped, the length of the longest before the map


class StoreFindings(ABC):
    """One scan. ``probe`` makes a summary of a chunk, in any thread; ``add`` takes summaries in the order of chunks."""

    def __init__(self, claim: Any, rows: Rows) -> None:
        self.claim, self.rows = claim, rows
        self.order = np.argsort(claim.ids, kind="stable")
        self.ids = claim.ids[self.order]
        self.repeated = [int(row) for row in np.unique(self.ids[1:][self.ids[1:] == self.ids[:-1]])]
        self.unlabelled = self.matched = 0
        self.radius = self.given_radius = 0.0
        self.mismatched: list[int] = []
        self.other_class: list[int] = []
        self.without_label: list[int] = []

    @property
    def aside(self) -> str:
        """A text about the rows that do not count."""
        if not self.unlabelled:
            return ""
        others = "or weight " * self.rows.weighted + "or held out " * (self.claim.view.fold is not None)
        return f", {self.unlabelled:,} without label {others}not counted"

    @property
    def counted(self) -> str:
        """A text about the rows that count."""
        return f"{self.rows.rows - self.unlabelled:,} rows{self.aside}"

    def lengths(self, x: Any, first: int) -> np.ndarray:
        """||x|| (n,) of rows (n, d) float64. Raises DamagedChunk for rows that are not finite, or too long to check."""
        lengths = row_lengths(x)
        if not float(lengths.max()) < _LONGEST:
            row = first + int(np.argmin(lengths < _LONGEST))
            raise DamagedChunk(
                f"{self.rows.path}: row {row} is not finite, or longer than {_LONGEST:g}, which no sum here can check; "
                f"rescale the features"
            )
        return lengths

    def members(self, chunk: Chunk, signs: np.ndarray) -> Members:
        """The coreset's rows in a chunk whose rows have these signs; compared bit for bit if the model stores rows."""
        a, b = np.searchsorted(self.ids, (chunk.start, chunk.start + len(chunk.codes)))
        ids, places = self.ids[a:b], self.order[a:b]
        local = ids - chunk.start
        same = np.ones(len(ids), dtype=bool)
        if self.claim.x.shape[1]:
            rows = chunk.x if chunk.given is None else chunk.given
            same = same_rows(rows[local].astype(np.float64), self.claim.given[places])
        found = signs[local]
        other_class, without_label = (found != self.claim.y[places]) & (found != 0), found == 0
        return Members(
            places,
            found,
            tuple(ids[~same].tolist()),
            tuple(ids[other_class].tolist()),
            tuple(ids[without_label].tolist()),
            0.0 if chunk.given is None else float(row_lengths(chunk.given.astype(np.float64)).max(initial=0.0)),
        )

    def count(self, unlabelled: int, radius: float, members: Members) -> None:
        """Add the common part of a chunk's summary."""
        self.unlabelled += unlabelled
        self.radius = max(self.radius, radius)
        self.mismatched += members.mismatched
        self.other_class += members.other_class
        self.without_label += members.without_label
        self.matched += len(members.places)
        self.given_radius = max(self.given_radius, members.given_longest)

    def count_other_classes(self, chunk: Chunk) -> int:
        """The number of rows in a chunk that count, and are of classes that the claim does not name."""
        return 0

    @abstractmethod
    def probe(self, chunk: Chunk) -> Any:
        """The summary of a chunk of scaled and mapped rows."""

    @abstractmethod
    def add(self, summary: Any) -> None:
        """Add a summary."""

    @abstractmethod
    def bounds(self) -> tuple[float | None, float | None]:
        """The lower and the upper bound found, None for one that needs no scan; after all chunks."""

    @abstractmethod
    def checks(self) -> list[Check]:
        """The verdict on the claims, after all chunks."""

    def content(self) -> Check:
        """Whether the certificate is about these rows and labels."""
        rows, claimed, hashed = self.rows, self.claim.store_digest, self.claim.store_sha256
        if rows.digest != claimed:
            text = f"model claims {claimed}, the store's rows and labels have {rows.digest}"
            return Check("content", ok=False, text=f"{text}: it is not what was trained on")
        text = f"{rows.digest}: no chunk is missing, and all checksums hold"
        if hashed is None:
            return Check("content", ok=True, text=f"{text}; CRC-32C only, the model names no SHA-256")
        found = rows.sha256_in_chunks(hashed.chunk_rows)
        if found != hashed.digest:
            text = f"model claims rows and labels of SHA-256 {hashed.digest}, the store's have {found or 'others'}"
            return Check("content", ok=False, text=f"{text}, with the same CRC-32C: some were replaced")
        how = "computed from all chunks" if rows.hashed else "as recorded when they were written"
        return Check("content", ok=True, text=f"{text}; SHA-256 {how}")

    def membership(self) -> list[str]:
        """Problems of the coreset's rows."""
        problems = []
        if self.repeated:
            problems.append(f"{listed(self.repeated)} named more than once")
        outside = [int(row) for row in self.ids if not 0 <= row < self.rows.rows]
        if outside:
            problems.append(f"{listed(outside)} not in the store, which ends at row {self.rows.rows - 1:,}")
        if self.mismatched:
            problems.append(f"{listed(self.mismatched)} not what the store holds under that id")
        return problems + self.mislabelled()

    def mislabelled(self) -> list[str]:
        """Problems of their labels."""
        problems = []
        if self.other_class:
            problems.append(f"{listed(self.other_class)} of another class in the store")
        if self.without_label:
            held = " or held out" * (self.claim.view.fold is not None)
            weighed = " or weight" * self.rows.weighted
            problems.append(f"{listed(self.without_label)} without label{weighed}{held} in the store")
        return problems

    def coreset(self) -> Check:
        """Whether the coreset's rows are the store's."""
        problems = self.membership()
        text = f"all {self.matched:,} rows are the store's, bit for bit, with its labels"
        return Check("coreset", not problems, "; ".join(problems) or text)

    def norms(self, box: float) -> Check:
        """Whether the claimed radius is the length of the longest row, rounded up.

        box: an upper bound on the length of scaled rows, from the ranges of columns, which trainers may use instead.
        """
        longest = max(0.0, self.radius - 2 * math.sqrt(self.claim.features) * VANISHED)
        at_most = max(self.radius, box) * (1 + _ROUNDED_UP)
        if self.claim.map is not None:
            given = max(self.given_radius, box) * (1 + _ROUNDED_UP)
            at_most = max(self.radius, self.claim.map.longest(given)) * (1 + _ROUNDED_UP)
        ok = longest * (1 - (self.claim.features + 4) * UNIT) <= self.claim.radius <= at_most
        text = f"the longest row has norm {longest:.12g}"
        return Check("radius", ok, text if ok else f"model claims {self.claim.radius:.12g}, {text}")


class StoreScan(StoreFindings):
    """A scan for a claim about two classes."""

    def __init__(self, claim: Claim, rows: Rows) -> None:
        super().__init__(claim, rows)
        if claim.view.label is None:
            positive, negative = typed(claim.positive), {typed(claim.negative)}
        else:
            positive, negative = typed(claim.view.label), set(map(typed, rows.classes))
        sides = [1 if typed(label) == positive else -1 if typed(label) in negative else 0 for label in rows.classes]
        self._sides = np.array([*sides, 0])  # code -1 is the last: unlabelled

    def signs(self, chunk: Chunk) -> np.ndarray:
        """1 and -1 (n,) for rows of the positive and the negative class, 0 for rows that do not count."""
        signs = np.where(held_out(self.claim.view, chunk.start, len(chunk.codes)), 0, self._sides[chunk.codes])
        return signs if chunk.weights is None else np.where(chunk.weights > 0, signs, 0)

    def count_other_classes(self, chunk: Chunk) -> int:
        """The number of rows of a third class in a chunk, with a weight above 0."""
        other = (chunk.codes >= 0) & (self._sides[chunk.codes] == 0)
        if chunk.weights is not None:
            other &= chunk.weights > 0
        return int(np.count_nonzero(other))


def listed(ids: list[int]) -> str:
    """The first few rows by number, with the verb."""
    shown = ", ".join(map(str, ids[:_LISTED]))
    more = f" and {len(ids) - _LISTED:,} more" if len(ids) > _LISTED else ""
    return f"row {shown} is" if len(ids) == 1 else f"rows {shown}{more} are"
