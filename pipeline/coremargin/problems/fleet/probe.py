"""What a worker does with a chunk for many models: it is read once and multiplied once by all hypotheses.

A scan may also evaluate the models: it counts the classes that they predict together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.folds import fold_of, masked
from coremargin.data.parts import kept_of, parts_of
from coremargin.data.relabelled import against_rest
from coremargin.maths.rows import (
    Rows,
    concatenate,
    from_arrays,
    many_products,
    nothing,
    precision,
    take,
    to_arrays,
    weighted_sums,
)
from coremargin.problems.common.classes import mask_zero_weights
from coremargin.problems.common.driver_rows import confusion_counts, predicted_classes
from coremargin.problems.common.sent import ChunkRows
from coremargin.problems.fleet.shared_rows import pack_arrays, unpack_arrays
from coremargin.problems.hard.probe import MarginSummary
from coremargin.problems.soft.probe import Counted, NearFarSplit, NearMarginProbe, StageProbe, wanted
from coremargin.problems.soft.summary import NearMarginSummary, StageSummary

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block
    from coremargin.problems.hard.probe import MarginProbe

Array = NDArray[np.float64]
MemberSummary: TypeAlias = MarginSummary | NearMarginSummary | StageSummary

#: Bytes of decision values, and of weights of rows in sums, that a task holds at a time.
SLAB_BYTES = 64 << 20


@dataclass(frozen=True)
class FleetSummary:
    """What the rows of some blocks mean for the members of a fleet.

    parts: a summary for each member, with the ids of the rows that it wants but without these rows. row_id (u,)
    increasing, row_x (u, d): the rows that any member wants, each once. confusion (ensembles, k, k): rows of each class
    that are predicted as each class.
    """

    parts: tuple[MemberSummary, ...]
    row_id: NDArray[np.int64]
    row_x: Rows
    confusion: NDArray[np.int64]

    def merge(self, later: FleetSummary) -> FleetSummary:
        """The summary of these blocks and later ones."""
        return FleetSummary(
            tuple(mine.merge(other) for mine, other in zip(self.parts, later.parts, strict=True)),  # type: ignore[arg-type]
            np.concatenate([self.row_id, later.row_id]),
            concatenate([self.row_x, later.row_x]),
            self.confusion + later.confusion,
        )

    def part(self, member: int) -> MemberSummary:
        """The summary for one member, with its rows unless it only names them."""
        found = self.parts[member]
        sent = found.row_id if len(self.row_id) else found.row_id[:0]
        return found.with_rows(take(self.row_x, np.searchsorted(self.row_id, sent)))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for checkpoints."""
        own = {"row_id": self.row_id, "confusion": self.confusion} | to_arrays("row_x", self.row_x)
        return own | pack_arrays([part.to_arrays() for part in self.parts])


def _without_rows(part: MemberSummary) -> MemberSummary:
    return part.with_rows(np.zeros((len(part.row_id), 0)))


@dataclass(frozen=True)
class MemberView:
    """How a member sees the labels: class ``positive`` against the rest (None: as it is), without fold ``held_out``."""

    positive: int | None
    held_out: int | None

    def codes(self, codes: NDArray[np.int32], fold: NDArray[np.int64] | None) -> NDArray[np.int32]:
        """The member's codes (n,) of rows with these codes and folds (n,)."""
        shown = codes if self.positive is None else against_rest(codes, self.positive)
        return shown if self.held_out is None or fold is None else masked(shown, fold, self.held_out)


@dataclass(frozen=True)
class FleetProbe:
    """The queries of many soft margins, of a stage or of all rows; without members only the evaluation of all.

    member_views: how each sees the labels. folds, seed: of cross-validation, 0: none. most: the most rows of a chunk
    that are sent for all members together. evaluator: of the hypotheses that the scan evaluates.
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
        """The same queries with only what this block needs."""
        return replace(self, probes=tuple(probe.narrow(block) for probe in self.probes))

    def empty(self) -> FleetSummary:
        """The summary of no rows."""
        parts = tuple(_without_rows(probe.empty()) for probe in self.probes)
        rows = nothing(len(self.evaluator.hypotheses) - 1, self.dtype, sparse=self.sparse)
        return FleetSummary(parts, np.zeros(0, np.int64), rows, self.evaluator.no_rows())

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> FleetSummary:
        """A summary from a checkpoint."""
        parts = (probe.from_arrays(own) for probe, own in zip(self.probes, unpack_arrays(arrays), strict=True))
        return FleetSummary(tuple(parts), arrays["row_id"], from_arrays("row_x", arrays), arrays["confusion"])

    def __call__(self, source: Source, block: Block) -> FleetSummary:
        """The summary of a block, chunk by chunk."""
        scan = self.begin_scan()
        for chunk in block.chunks:
            scan.add_chunk(source, chunk)
        return scan.summary()

    def begin_scan(self) -> SlabScan | HardScan:
        """A scan of a block, for callers that loop over its chunks themselves."""
        return SlabScan(self)

    def parts_of(self, source: Source, chunk: int) -> Iterator[tuple[ChunkRows, NDArray[np.int64] | None, float]]:
        """The rows of a chunk in parts, with their folds and share of the chunk; rows of weight 0 have no label."""
        longest = float(source.scalars().max_norm[chunk])
        for part in parts_of(source, chunk):
            fold = fold_of(np.arange(part.start, part.stop), self.folds, self.seed) if self.folds else None
            codes = mask_zero_weights(part.codes, part.weights)
            yield ChunkRows(chunk, part.start, part.rows, codes, longest, part.weights), fold, part.share

    def summarise(
        self, slab: ChunkRows, fold: NDArray[np.int64] | None, values: list[Array], share: float
    ) -> FleetSummary:
        """The summary of some rows, a share of a chunk, without confusion; values (k, n): of each member's query."""
        views = self._views(slab, fold, values, share)
        wants = [(view.wanted, view.urgency[view.positions(view.wanted)]) for view in views]
        sent = most_wanted(wants, max(1, int(self.most * share)), len(slab.codes))
        parts: dict[int, MemberSummary] = {}
        for k, (probe, view) in enumerate(zip(self.probes, views, strict=True)):
            if isinstance(probe, StageProbe):
                counted, near = view.counted, view.positions(view.wanted[sent[view.wanted]])
                rows = slab.rows if len(counted.places) == len(slab.codes) else take(slab.rows, counted.places)
                parts[k] = probe.answer(rows, counted, view.margins, near, slab.longest)
        others = [k for k in range(len(views)) if k not in parts]
        probes = [cast("NearMarginProbe", self.probes[k]) for k in others]
        parts |= dict(zip(others, _near_margin_summaries(slab, probes, [views[k] for k in others], sent), strict=True))
        places = np.flatnonzero(sent)
        return FleetSummary(
            tuple(parts[k] for k in range(len(views))),
            places + slab.start,
            take(slab.rows, places),
            self.evaluator.no_rows(),
        )

    def _views(
        self, slab: ChunkRows, fold: NDArray[np.int64] | None, values: list[Array], share: float
    ) -> list[MemberRows]:
        views = []
        for probe, member_view, decisions in zip(self.probes, self.member_views, values, strict=True):
            codes = member_view.codes(slab.codes, fold)
            if not probe.asks(slab.chunk):
                codes = np.full(len(codes), -1, np.int32)
            counted = probe.counted(slab.start, codes, slab.weights)
            margins = decisions[:, counted.places] * counted.signs
            urgency = probe.urgency(counted, margins)
            chosen = wanted(urgency, kept_of(probe.keep, share))
            views.append(MemberRows(counted, margins, urgency, counted.places[chosen]))
        return views


class SlabScan:
    """Scans some rows at a time, with all hypotheses."""

    def __init__(self, probe: FleetProbe) -> None:
        self._probe, self._summary = probe, probe.empty()
        self._columns = Columns.unique([*(own.base for own in probe.probes), probe.evaluator.hypotheses])
        width = self._columns.base.shape[1] + 4 * len(probe.probes)
        self._step = max(1, SLAB_BYTES // (8 * max(1, width)))

    def add_chunk(self, source: Source, chunk: int) -> None:
        """Scan one chunk."""
        for data, fold, whole in self._probe.parts_of(source, chunk):
            for first in range(0, len(data.codes), self._step):
                part = slice(first, first + self._step)
                some = None if data.weights is None else data.weights[part]
                slab = ChunkRows(data.chunk, data.start + first, data.rows[part], data.codes[part], data.longest, some)
                share = whole * (len(slab.codes) / len(data.codes))
                self._add_slab(slab, None if fold is None else fold[part], share)

    def _add_slab(self, slab: ChunkRows, fold: NDArray[np.int64] | None, share: float) -> None:
        probe, columns = self._probe, self._columns
        values = many_products(slab.rows, columns.base[:-1]) + columns.base[-1][:, None]
        found = probe.summarise(slab, fold, [values[places] for places in columns.places[:-1]], share)
        confusion = probe.evaluator.confusion(values[columns.places[-1]], slab.codes, fold)
        self._summary = self._summary.merge(replace(found, confusion=confusion))

    def summary(self) -> FleetSummary:
        """The summary of all chunks so far."""
        return self._summary


@dataclass(frozen=True)
class Columns:
    """The hypotheses of several members as one matrix without duplicates: base (p, k), and each member's columns."""

    base: Array
    places: tuple[NDArray[np.intp], ...]

    @classmethod
    def unique(cls, hypotheses: Sequence[Array]) -> Columns:
        """From the matrices (p, k_i) of the members."""
        known: dict[bytes, int] = {}
        columns = [[column.tobytes() for column in np.ascontiguousarray(base.T)] for base in hypotheses]
        places = tuple(np.array([known.setdefault(text, len(known)) for text in each], np.intp) for each in columns)
        every = np.concatenate(list(hypotheses), axis=1)
        first = np.unique(np.concatenate(places), return_index=True)[1]
        return cls(np.ascontiguousarray(every[:, first]), places)


# Evaluation


@dataclass(frozen=True)
class Ensemble:
    """Members that decide together: one for each class, in the order of the classes, or the one of two classes.

    members: their numbers; held_out: the fold whose rows evaluate them, None: all rows do.
    """

    members: tuple[int, ...]
    held_out: int | None


@dataclass(frozen=True)
class Evaluator:
    """hypotheses (d + 1, m): (w, b) of all members; codes (k,): label codes of the classes in their order."""

    hypotheses: Array
    codes: NDArray[np.int64]
    ensembles: tuple[Ensemble, ...]

    @classmethod
    def none(cls, features: int, codes: NDArray[np.int64]) -> Evaluator:
        """An evaluator of no members."""
        return cls(np.zeros((features + 1, 0)), codes, ())

    def no_rows(self) -> NDArray[np.int64]:
        """Confusion matrices of no rows: zeros (ensembles, k, k)."""
        return np.zeros((len(self.ensembles), len(self.codes), len(self.codes)), np.int64)

    def evaluate(self, rows: Rows, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Confusion matrices (ensembles, k, k) of rows (n, d), without folds."""
        values = many_products(rows, self.hypotheses[:-1]) + self.hypotheses[-1][:, None]
        return self.confusion(values, codes, None)

    def confusion(self, values: Array, codes: NDArray[np.int32], fold: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Confusion matrices (ensembles, k, k): rows of each class that are predicted as each class.

        values (m, n): decision values of the members; codes, fold (n,): of the rows; fold None: there are none.
        """
        found, k = self.no_rows(), len(self.codes)
        truth = class_places(self.codes, codes)
        for ensemble, counts in zip(self.ensembles, found, strict=True):
            mine = truth >= 0
            if ensemble.held_out is not None and fold is not None:
                mine &= fold == ensemble.held_out
            predicted = predicted_classes(values[list(ensemble.members)].T)
            counts += confusion_counts(truth[mine], predicted[mine], k)
        return found


def class_places(classes: NDArray[np.int64], codes: NDArray[np.int32]) -> NDArray[np.intp]:
    """Positions (n,) of label codes (n,) in ``classes`` (k,); -1 for others and for rows without label."""
    places = np.full(max(int(classes.max()), int(codes.max(initial=0))) + 2, -1, np.intp)
    places[classes] = np.arange(len(classes))
    return places[codes]  # code -1 finds the last entry, which is no class's


# What soft margins send and sum up


@dataclass(frozen=True)
class MemberRows:
    """A member's labelled rows of a slab: margins (k, n), urgency (n,), and the places in the slab of wanted ones."""

    counted: Counted
    margins: Array
    urgency: Array
    wanted: NDArray[np.intp]

    def positions(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Positions among the member's rows of places in the slab."""
        return np.searchsorted(self.counted.places, places)


def most_wanted(wants: Sequence[tuple[NDArray[np.intp], Array]], most: int, rows: int) -> NDArray[np.bool_]:
    """Which of some rows (n,) to send: all that any member wants or, of more than ``most``, the most wanted.

    wants: the places that each member wants, and their urgency, the least first. A row's rank is the best that it has
    among the rows of any member.
    """
    first = np.full(rows, rows)
    for places, urgency in wants:
        rank = np.empty(len(places), np.intp)
        rank[np.argsort(urgency, kind="stable")] = np.arange(len(places))
        first[places] = np.minimum(first[places], rank)
    sent = first < rows
    if np.count_nonzero(sent) > most:
        sent[np.argsort(first, kind="stable")[most:]] = False
    return sent


def _near_margin_summaries(
    slab: ChunkRows, soft: Sequence[NearMarginProbe], views: Sequence[MemberRows], sent: NDArray[np.bool_]
) -> list[NearMarginSummary]:
    """The summaries of members, with the sums over rows from one matrix product; sent (n,): rows that are sent."""
    if not soft:
        return []
    parts = list[NearFarSplit]()
    for probe, view in zip(soft, views, strict=True):
        near, mine = view.positions(view.wanted[sent[view.wanted]]), view.counted.places
        parts.append(
            probe.near_far_split(partial(_take_rows, slab.rows, mine), view.counted, view.margins, near, slab.longest)
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


def _take_rows(rows: Rows, mine: NDArray[np.intp], positions: NDArray[np.intp]) -> Any:
    return take(rows, mine[positions])


# Hard margins


@dataclass(frozen=True)
class HardFleetProbe(FleetProbe):
    """The queries of hard margins, which are not evaluated on the way."""

    probes: tuple[MarginProbe, ...]

    def begin_scan(self) -> HardScan:
        """A scan of whole chunks: the rows to send are chosen when all of the block are known."""
        return HardScan(self)


class HardScan:
    """The scan of the chunks of a block for hard margins."""

    def __init__(self, probe: HardFleetProbe) -> None:
        self._probe, self._probes, self._member_views = probe, probe.probes, probe.member_views
        self._summaries = [own.empty() for own in self._probes]
        self._directions = [own.directions for own in self._probes]
        self._lowest = [own.lowest_rows() for own in self._probes]

    def add_chunk(self, source: Source, chunk: int) -> None:
        """One product with all hypotheses, or several if the decision values would take too much memory."""
        for data, fold, _ in self._probe.parts_of(source, chunk):
            step = max(1, SLAB_BYTES // (2 * data.rows.dtype.itemsize * len(data.codes)))
            for first in range(0, len(self._probes), step):
                group = range(first, min(first + step, len(self._probes)))
                columns = Columns.unique([self._probes[k].base for k in group])
                values = many_products(data.rows, columns.base, precision(data.rows))
                for k, places in zip(group, columns.places, strict=True):
                    seen = replace(data, codes=self._member_views[k].codes(data.codes, fold))
                    found = self._probes[k].evaluate(seen, self._directions[k], self._lowest[k], values[places])
                    self._summaries[k] = self._summaries[k].merge(found)

    def summary(self) -> FleetSummary:
        """The members' summaries without rows, and the rows that any of them sends."""
        parts = [
            probe.finish(summary, lowest)
            for probe, summary, lowest in zip(self._probes, self._summaries, self._lowest, strict=True)
        ]
        ids, first = np.unique(np.concatenate([part.row_id for part in parts]), return_index=True)
        rows = take(concatenate([part.sent.rows for part in parts]), first)
        return replace(self._probe.empty(), parts=tuple(map(_without_rows, parts)), row_id=ids, row_x=rows)
