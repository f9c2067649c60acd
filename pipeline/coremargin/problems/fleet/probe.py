"""What a worker does with a chunk for many problems at once: it is read once, and multiplied once by all hypotheses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.folds import fold_of, masked
from coremargin.data.relabelled import against_rest
from coremargin.maths.rows import Rows, concatenate, many_products, nothing, precision, take, weighted_sums
from coremargin.problems.common.start import left_out
from coremargin.problems.fleet.summary import FleetSummary, without_rows
from coremargin.problems.hard.probe import MarginProbe
from coremargin.problems.hard.selection import ChunkRows, LowestRows
from coremargin.problems.hard.summary import MarginSummary
from coremargin.problems.soft.probe import Counted, NearFarSplit, NearMarginProbe
from coremargin.problems.soft.summary import NearMarginSummary

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.problems.fleet.evaluator import Evaluator

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
    """The questions of many members, of one kind.

    member_views: how each sees the labels. folds, seed: the folds, 0: none. most: rows of a chunk that all members
    together send at most, with a soft margin. evaluator: whose decisions are compared with the labels on the way.
    """

    probes: tuple[MarginProbe | NearMarginProbe, ...]
    member_views: tuple[MemberView, ...]
    folds: int
    seed: int
    most: int
    evaluator: Evaluator
    dtype: str
    sparse: bool = False

    def narrow(self, block: Block) -> FleetProbe:
        """The same questions, each with what this block needs."""
        return replace(self, probes=tuple(probe.narrow(block) for probe in self.probes))

    def empty(self) -> FleetSummary:
        """The answer for no rows."""
        parts = tuple(without_rows(probe.empty()) for probe in self.probes)
        rows = nothing(len(self.evaluator.hypotheses) - 1, self.dtype, sparse=self.sparse)
        return FleetSummary(parts, np.zeros(0, np.int64), rows, self.evaluator.nothing())

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> FleetSummary:
        """A summary from a checkpoint."""
        kinds = [NearMarginSummary if isinstance(probe, NearMarginProbe) else MarginSummary for probe in self.probes]
        return FleetSummary.from_arrays(arrays, kinds)

    def __call__(self, source: Source, block: Block) -> FleetSummary:
        """Answer for one block, chunk by chunk."""
        answer = self.empty()
        soft = [probe for probe in self.probes if isinstance(probe, NearMarginProbe)]
        hard = [probe for probe in self.probes if isinstance(probe, MarginProbe)]
        margins = MarginScan(hard, self.member_views)
        columns = Columns.of([*(probe.base for probe in soft), self.evaluator.hypotheses])
        for chunk in block.chunks:
            rows, codes = source.read(chunk)
            weights = source.weights(chunk)
            codes = left_out(codes, weights)
            start, stop = source.span(chunk)
            fold = fold_of(np.arange(start, stop), self.folds, self.seed) if self.folds else None
            data = ChunkRows(chunk, start, rows, codes, float(source.scalars().max_norm[chunk]), weights)
            margins.ask(data, fold)
            width = columns.base.shape[1] + 4 * len(soft)
            step = max(1, SLAB_BYTES // (8 * max(1, width)))
            for first in range(0, len(codes) if width else 0, step):
                part = slice(first, first + step)
                some = None if weights is None else weights[part]
                slab = ChunkRows(chunk, start + first, rows[part], codes[part], data.longest, some)
                share = len(slab.codes) / len(codes)
                found = self._slab(slab, None if fold is None else fold[part], soft, columns, share)
                answer = answer.merge(found)
        if not hard:
            return answer
        parts, row_id, row_x = margins.finished()
        return replace(answer, parts=parts, row_id=row_id, row_x=row_x)

    def _slab(
        self,
        slab: ChunkRows,
        fold: NDArray[np.int64] | None,
        soft: list[NearMarginProbe],
        columns: Columns,
        share: float,
    ) -> FleetSummary:
        """Some rows of a chunk: decisions of all, and the answers to soft margins."""
        values = many_products(slab.rows, columns.base[:-1]) + columns.base[-1][:, None]
        confusion = self.evaluator.confusion(values[columns.places[-1]], slab.codes, fold)
        if not soft:
            return replace(self.empty(), confusion=confusion)
        views = []
        for probe, member_view, places in zip(soft, self.member_views, columns.places[:-1], strict=True):
            counted = probe.counted(slab.start, member_view.codes(slab.codes, fold), slab.weights)
            margins = values[places][:, counted.places] * counted.signs
            keep = -int(-probe.keep * share // 1)
            distance = probe.distances(margins)
            near = probe.near(distance, keep, counted.cached)
            views.append(_View(counted, margins, distance, counted.places[near]))
        wanted = together(views, max(1, int(self.most * share)), len(slab.codes))
        return replace(_answers(slab, soft, views, wanted), confusion=confusion)


@dataclass(frozen=True)
class _View:
    """A member's rows that count, their margins (k, n), distances (n,), and places in the slab of the wanted ones."""

    counted: Counted
    margins: Array
    distance: Array
    wanted: NDArray[np.intp]

    def at(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Positions among the member's rows of places in the slab."""
        return np.searchsorted(self.counted.places, places)


def together(views: Sequence[_View], most: int, rows: int) -> NDArray[np.bool_]:
    """Which rows (n,) of a slab are sent: all that any member wants or, of more than ``most``, those wanted most.

    A row counts as much as with the member that it is nearest to the margin for, compared with that member's others.
    """
    first = np.full(rows, rows)
    for view in views:
        distance = view.distance[view.at(view.wanted)]
        rank = np.empty(len(distance), np.intp)
        rank[np.argsort(distance, kind="stable")] = np.arange(len(distance))
        first[view.wanted] = np.minimum(first[view.wanted], rank)
    wanted = first < rows
    if np.count_nonzero(wanted) > most:
        wanted[np.argsort(first, kind="stable")[most:]] = False
    return wanted


def _answers(
    slab: ChunkRows, soft: Sequence[NearMarginProbe], views: Sequence[_View], wanted: NDArray[np.bool_]
) -> FleetSummary:
    """The answers of all members, their sums over rows from one matrix product."""
    weights, parts = np.zeros((len(slab.codes), 4 * len(soft))), list[NearFarSplit]()
    for k, (probe, view) in enumerate(zip(soft, views, strict=True)):
        near = view.at(view.wanted[wanted[view.wanted]])
        mine = view.counted.places
        part = probe.near_far_split(partial(_rows_at, slab.rows, mine), view.counted, view.margins, near, slab.longest)
        weights[mine, 4 * k : 4 * k + 4] = part.columns
        parts.append(part)
    totals, found = weighted_sums(slab.rows, weights), []
    for k, (probe, view, part) in enumerate(zip(soft, views, parts, strict=True)):
        mine = view.counted.places
        ids = mine[part.near] + slab.start
        losing = slab.rows[mine[part.losing]] if probe.curve else slab.rows[:0]
        found.append(probe.summary(part, totals[4 * k : 4 * k + 4], ids, np.zeros((len(ids), 0)), losing))
    sent = np.flatnonzero(np.isin(np.arange(len(wanted)), np.concatenate([s.row_id for s in found]) - slab.start))
    return FleetSummary(tuple(found), sent + slab.start, take(slab.rows, sent), np.zeros((0, 0, 0), np.int64))


def _rows_at(rows: Rows, mine: NDArray[np.intp], at: NDArray[np.intp]) -> Any:
    return take(rows, mine[at])


class MarginScan:
    """The answers to hard margins over the chunks of a block."""

    def __init__(self, probes: Sequence[MarginProbe], member_views: Sequence[MemberView]) -> None:
        self._probes, self._member_views = probes, member_views
        self._answers = [probe.empty() for probe in probes]
        self._directions = [probe.directions for probe in probes]
        self._lowest = [
            LowestRows(probe.keep, len(probe.base), np.dtype(probe.dtype), sparse=probe.sparse) for probe in probes
        ]

    def ask(self, data: ChunkRows, fold: NDArray[np.int64] | None) -> None:
        """Take one chunk: one product with all hypotheses, or a few where their values would fill the memory."""
        step = max(1, SLAB_BYTES // (2 * data.rows.dtype.itemsize * len(data.codes)))
        for first in range(0, len(self._probes), step):
            group = range(first, min(first + step, len(self._probes)))
            columns = Columns.of([self._probes[k].base for k in group])
            values = many_products(data.rows, columns.base, precision(data.rows))
            for k, places in zip(group, columns.places, strict=True):
                seen = replace(data, codes=self._member_views[k].codes(data.codes, fold))
                found = self._probes[k].ask(seen, self._directions[k], self._lowest[k], values[places])
                self._answers[k] = self._answers[k].merge(found)

    def finished(self) -> tuple[tuple[MarginSummary, ...], NDArray[np.int64], Rows]:
        """The answers without their rows, and the rows that any of them sends: ids, rows."""
        parts = [
            probe.finished(answer, lowest)
            for probe, answer, lowest in zip(self._probes, self._answers, self._lowest, strict=True)
        ]
        ids, first = np.unique(np.concatenate([part.row_id for part in parts]), return_index=True)
        rows = take(concatenate([part.row_x for part in parts]), first)
        return tuple(without_rows(part) for part in parts), ids, rows  # type: ignore[misc]


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
