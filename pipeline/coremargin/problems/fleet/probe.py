"""What a worker does with a chunk for many problems at once: it is read once, and multiplied once by all hypotheses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from coremargin.data.folds import fold_of, masked
from coremargin.data.parts import kept_of, parts_of
from coremargin.data.relabelled import against_rest
from coremargin.maths.rows import Rows, many_products, nothing, take, weighted_sums
from coremargin.problems.common.classes import mask_zero_weights
from coremargin.problems.common.sent import ChunkRows
from coremargin.problems.fleet.summary import FleetSummary, without_rows
from coremargin.problems.soft.probe import Counted, NearFarSplit, NearMarginProbe, wanted

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.problems.fleet.evaluator import Evaluator
    from coremargin.problems.soft.summary import NearMarginSummary

Array = NDArray[np.float64]

#: Decision values, and weights of rows in sums, that a task holds at a time.
SLAB_BYTES = 64 << 20


@dataclass(frozen=True)
class MemberView:
    """How a member sees the labels: class ``positive`` against the rest (None: as it is), but of fold ``held_out``."""

    positive: int | None
    held_out: int | None

    def codes(self, codes: NDArray[np.int32], fold: NDArray[np.int64] | None) -> NDArray[np.int32]:
        """The member's codes (n,) of rows with these codes and folds (n,)."""
        shown = codes if self.positive is None else against_rest(codes, self.positive)
        return shown if self.held_out is None or fold is None else masked(shown, fold, self.held_out)


@dataclass(frozen=True)
class FleetProbe:
    """The questions of many members, of one kind: the classes that extend this; with no member, how they do together.

    member_views: how each sees the labels. folds, seed: the folds, 0: none. most: rows of a chunk that all members
    together send at most, with a soft margin. evaluator: whose decisions are compared with the labels on the way.
    """

    probes: tuple[Any, ...]
    member_views: tuple[MemberView, ...]
    folds: int
    seed: int
    most: int
    evaluator: Evaluator
    dtype: str
    sparse: bool = False

    def narrow(self, block: Block) -> Self:
        """The same questions, each with what this block needs."""
        return replace(self, probes=tuple(probe.narrow(block) for probe in self.probes))

    def empty(self) -> FleetSummary:
        """The answer for no rows."""
        parts = tuple(without_rows(probe.empty()) for probe in self.probes)
        rows = nothing(len(self.evaluator.hypotheses) - 1, self.dtype, sparse=self.sparse)
        return FleetSummary(parts, np.zeros(0, np.int64), rows, self.evaluator.nothing())

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> FleetSummary:
        """A summary from a checkpoint."""
        return FleetSummary.from_arrays(arrays, [probe.from_arrays for probe in self.probes])

    def __call__(self, source: Source, block: Block) -> FleetSummary:
        """Answer for one block, chunk by chunk."""
        answer = self.begun()
        for chunk in block.chunks:
            answer.ask(source, chunk)
        return answer.finished()

    def begun(self) -> Answer:
        """The answer for a block whose chunks are asked about in turn, in whatever loop."""
        return SlabScan(self)

    def parts_of(self, source: Source, chunk: int) -> Iterator[tuple[ChunkRows, NDArray[np.int64] | None, float]]:
        """The rows of a chunk in parts, those that do not count without label; their folds, and the share they are."""
        longest = float(source.scalars().max_norm[chunk])
        for part in parts_of(source, chunk):
            fold = fold_of(np.arange(part.start, part.stop), self.folds, self.seed) if self.folds else None
            codes = mask_zero_weights(part.codes, part.weights)
            yield ChunkRows(chunk, part.start, part.rows, codes, longest, part.weights), fold, part.share

    @property
    def columns(self) -> Columns:
        """The hypotheses of all members, and those that are judged."""
        return Columns.of([*self._bases(), self.evaluator.hypotheses])

    def of_slab(self, slab: ChunkRows, fold: NDArray[np.int64] | None, columns: Columns, share: float) -> FleetSummary:
        """The answer for some rows of a chunk, a share of it."""
        values = many_products(slab.rows, columns.base[:-1]) + columns.base[-1][:, None]
        found = self._slab(slab, fold, [values[places] for places in columns.places[:-1]], share)
        return replace(found, confusion=self.evaluator.confusion(values[columns.places[-1]], slab.codes, fold))

    def _bases(self) -> list[Array]:
        """The hypotheses (d + 1, k) that each member asks about."""
        return []

    def _slab(self, slab: ChunkRows, fold: NDArray[np.int64] | None, values: list[Array], share: float) -> FleetSummary:
        """The answers for some rows of a chunk, a share of it; values (k, n): decisions that each member asked for."""
        return self.empty()


@dataclass(frozen=True)
class SoftFleetProbe(FleetProbe):
    """The questions of soft margins, by whatever method."""

    probes: tuple[NearMarginProbe, ...]

    def _bases(self) -> list[Array]:
        return [probe.base for probe in self.probes]

    def _slab(self, slab: ChunkRows, fold: NDArray[np.int64] | None, values: list[Array], share: float) -> FleetSummary:
        views = self._views(slab, fold, values, share)
        sent = self._sent(slab, views, share)
        parts, places = near_answers(slab, self.probes, views, sent), np.flatnonzero(sent)
        return FleetSummary(
            tuple(parts), places + slab.start, take(slab.rows, places), self.evaluator.nothing()
        )  # fmt: skip

    def _views(
        self, slab: ChunkRows, fold: NDArray[np.int64] | None, values: list[Array], share: float
    ) -> list[View]:  # fmt: skip
        views = []
        for probe, member_view, decided in zip(self.probes, self.member_views, values, strict=True):
            codes = member_view.codes(slab.codes, fold)
            if not probe.asks(slab.chunk):
                codes = np.full(len(codes), -1, np.int32)
            counted = probe.counted(slab.start, codes, slab.weights)
            margins = decided[:, counted.places] * counted.signs
            urgency = probe.urgency(counted, margins)
            chosen = wanted(urgency, kept_of(probe.keep, share))
            views.append(View(counted, margins, urgency, counted.places[chosen]))
        return views

    def _sent(self, slab: ChunkRows, views: Sequence[View], share: float) -> NDArray[np.bool_]:
        asked = [(view.wanted, view.urgency[view.at(view.wanted)]) for view in views]
        return together(asked, max(1, int(self.most * share)), len(slab.codes))


@dataclass(frozen=True)
class View:
    """A member's rows that count, their margins (k, n), urgency (n,), and places in the slab of the wanted ones."""

    counted: Counted
    margins: Array
    urgency: Array
    wanted: NDArray[np.intp]

    def at(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Positions among the member's rows of places in the slab."""
        return np.searchsorted(self.counted.places, places)


def together(asked: Sequence[tuple[NDArray[np.intp], Array]], most: int, rows: int) -> NDArray[np.bool_]:
    """Which of some rows (n,) are taken: all that any member wants or, of more than ``most``, those wanted most.

    asked: the places that each member wants, and how urgently, the least first. A row counts as much as with the member
    that wants it most, compared with that member's others.
    """
    first = np.full(rows, rows)
    for places, urgency in asked:
        rank = np.empty(len(places), np.intp)
        rank[np.argsort(urgency, kind="stable")] = np.arange(len(places))
        first[places] = np.minimum(first[places], rank)
    taken = first < rows
    if np.count_nonzero(taken) > most:
        taken[np.argsort(first, kind="stable")[most:]] = False
    return taken


def near_answers(
    slab: ChunkRows, soft: Sequence[NearMarginProbe], views: Sequence[View], sent: NDArray[np.bool_]
) -> list[NearMarginSummary]:
    """The answers of members, their sums over rows from one matrix product; sent (n,): rows that are sent."""
    if not soft:
        return []
    parts = list[NearFarSplit]()
    for probe, view in zip(soft, views, strict=True):
        near, mine = view.at(view.wanted[sent[view.wanted]]), view.counted.places
        parts.append(
            probe.near_far_split(partial(_rows_at, slab.rows, mine), view.counted, view.margins, near, slab.longest)
        )
    each = parts[0].columns.shape[1]  # of probes of one kind
    weights = np.zeros((len(slab.codes), each * len(soft)))
    for k, (view, part) in enumerate(zip(views, parts, strict=True)):
        weights[view.counted.places, each * k : each * (k + 1)] = part.columns
    totals = weighted_sums(slab.rows, weights) if each else np.zeros((0, slab.rows.shape[1]))
    found = []
    for k, (probe, view, part) in enumerate(zip(soft, views, parts, strict=True)):
        mine = view.counted.places
        ids = mine[part.near] + slab.start
        losing = slab.rows[mine[part.losing]] if probe.curve else slab.rows[:0]
        found.append(probe.summary(part, totals[each * k : each * (k + 1)], ids, np.zeros((len(ids), 0)), losing))
    return found


def _rows_at(rows: Rows, mine: NDArray[np.intp], at: NDArray[np.intp]) -> Any:
    return take(rows, mine[at])


class Answer(Protocol):
    """The answer for a block on the way."""

    def ask(self, source: Source, chunk: int) -> None:
        """Take one chunk, as this source shows it."""

    def finished(self) -> FleetSummary:
        """The answer, after the last chunk."""


class SlabScan:
    """Chunks are asked about some rows at a time, with all hypotheses."""

    def __init__(self, probe: FleetProbe) -> None:
        self._probe, self._answer, self._columns = probe, probe.empty(), probe.columns
        width = self._columns.base.shape[1] + 4 * len(probe.probes)
        self._step = max(1, SLAB_BYTES // (8 * max(1, width)))

    def ask(self, source: Source, chunk: int) -> None:
        """Take one chunk."""
        for data, fold, share in self._probe.parts_of(source, chunk):
            self._take(data, fold, share)

    def _take(self, data: ChunkRows, fold: NDArray[np.int64] | None, whole: float) -> None:
        """Take a part of a chunk, so large a share of it."""
        for first in range(0, len(data.codes), self._step):
            part = slice(first, first + self._step)
            some = None if data.weights is None else data.weights[part]
            slab = ChunkRows(data.chunk, data.start + first, data.rows[part], data.codes[part], data.longest, some)
            share = whole * (len(slab.codes) / len(data.codes))
            found = self._probe.of_slab(slab, None if fold is None else fold[part], self._columns, share)
            self._answer = self._answer.merge(found)

    def finished(self) -> FleetSummary:
        """All together."""
        return self._answer


@dataclass(frozen=True)
class Columns:
    """Hypotheses of many askers in one matrix, equal ones once: base (p, k), and each asker's places in it."""

    base: Array
    places: tuple[NDArray[np.intp], ...]

    @classmethod
    def of(cls, given: Sequence[Array]) -> Columns:
        """From the askers' own matrices (p, k_i)."""
        known: dict[bytes, int] = {}
        columns = [[column.tobytes() for column in np.ascontiguousarray(base.T)] for base in given]
        places = tuple(np.array([known.setdefault(text, len(known)) for text in each], np.intp) for each in columns)
        every = np.concatenate(list(given), axis=1)
        first = np.unique(np.concatenate(places), return_index=True)[1]
        return cls(np.ascontiguousarray(every[:, first]), places)
