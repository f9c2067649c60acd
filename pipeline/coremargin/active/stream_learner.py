"""Active learning on a stream of rows that are not stored: an iterator of any length.

Har-Peled, Roth and Zimak (2006), section 4.1, last paragraph, with the learner of campaigns: a row within the slab is
queried when it arrives. After a long run of rows outside the slab, which proves that few lie inside, the next rows are
a trial: their number is fixed before the first arrives, and all of their labels are queried. A wrong prediction ends
the attempt, and its rows join the training rows of the hypothesis; a trial without one proves that few predictions are
wrong.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from msgspec import structs

from coremargin.active.answers import LACKING, codes_of, describe_missing_classes, match_label, named_classes
from coremargin.active.learner import Learner
from coremargin.active.snapshot import with_gamma
from coremargin.blas import one_blas_thread
from coremargin.data.arrays import ArraySource
from coremargin.data.folder import replacing
from coremargin.data.mapped import mapped, unmapped
from coremargin.data.owned import STORE, Kind
from coremargin.data.transformed import fitted
from coremargin.data.writer import StoreWriter
from coremargin.errors import DataError, LabelError, UsageError
from coremargin.formats.current_answers import CurrentAnswers, same
from coremargin.formats.feature_map import PREFIX, map_width
from coremargin.formats.local_path import local_path
from coremargin.formats.location import Location
from coremargin.maths import rows as row_ops
from coremargin.maths.active.coreset import draws_of, share_shown
from coremargin.maths.feature_map import feature_map
from coremargin.maths.margin import is_certified
from coremargin.maths.rows import take
from coremargin.models.files import MODEL, check_outside
from coremargin.problems.active import model as several
from coremargin.problems.active.problem import problem_with_reserve
from coremargin.problems.active.spec import ActiveJob
from coremargin.problems.active.state import ActiveState, Scanned
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.driver_rows import DriverRows
from coremargin.problems.common.map_rounding import widen_margin_bounds
from coremargin.problems.common.model import model_of as hyperplane_model
from coremargin.problems.common.result import Result
from coremargin.problems.hard.kind import HardMarginJob
from coremargin.spec import convert

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.formats.choices import MapKind
    from coremargin.maths.mapping import FeatureMap
    from coremargin.maths.rows import Rows
    from coremargin.models.model import Model
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.state import Answered


CLAIM, EVIDENCE, FORMAT = "claim.txt", "claim.json", "coremargin.stream"
#: Parameters of the stream that the hard margin of its queried rows shares.
SAME = ("epsilon", "intercept", "map", "components", "gamma", "degree", "coef0", "map_seed")
_PLACES = {"rows.zarr": STORE, "trial.zarr": STORE, "model": MODEL}
#: The folder that ``save`` makes; existing ones are never replaced.
LEFT = Kind(
    what="what a stream has left",
    records={EVIDENCE: FORMAT},
    files="|".join([r"claim\.(?:txt|json)", *(f"{name}/(?:{kind.files})" for name, kind in _PLACES.items())]),
    folders="|".join([*_PLACES, *(f"{name}/(?:{kind.folders})" for name, kind in _PLACES.items())]),
)


# The oracle: labels rows of a stream, one at a time or many together.


class RowLabels(Protocol):
    """Gives labels of rows of a stream."""

    def __call__(self, asked: DriverRows) -> Iterator[Any] | Sequence[Any]:
        """The label of each row, None for a row that cannot be labelled; of an iterator, queried one by one."""

    def known(self, place: int, labels: Iterator[Any] | Sequence[Any]) -> list[tuple[int, Any]]:
        """Places and labels after ``place`` that need no further query."""


class Labeller:
    """Queries an oracle for labels of rows, one by one or all together."""

    def __init__(self, ask: Callable[[Any], Any], *, batched: bool) -> None:
        self._ask, self._batched = ask, batched

    def __call__(self, asked: DriverRows) -> Iterator[Any] | Sequence[Any]:
        """The label of each row, None where the oracle has none."""
        rows = asked.rows
        if not self._batched:
            return (self._ask(take(rows, [k]) if hasattr(rows, "tocsr") else rows[k]) for k in range(len(asked)))
        found = list(self._ask(rows))
        if len(found) != len(asked):
            raise DataError(f"oracle: expected a label for each of {len(asked)} rows, found {len(found)}")
        return found

    def known(self, place: int, labels: Iterator[Any] | Sequence[Any]) -> list[tuple[int, Any]]:
        """Labels after ``place`` from the same call of the oracle: they need no further query."""
        return list(enumerate(labels))[place + 1 :] if isinstance(labels, Sequence) else []


# The feature map of a stream, which is fitted to its first batch.


class StreamMap:
    """The feature map of a stream, fitted to its first batch; stores answered rows unmapped, too."""

    def __init__(self) -> None:
        self._map: FeatureMap | None = None
        self._answered = list[DriverRows]()

    def fit_to(self, job: ActiveJob, batch: ArraySource) -> tuple[ActiveJob, ActiveMargin]:
        """Fit the map; the job with a number for gamma, and the problem on one row of the batch.

        Raises UsageError for a map that cannot be fitted to these rows, such as one with more landmarks than rows.
        """
        job = with_gamma(job, batch)
        self._map = None if job.asked_map is None else fitted(batch, job.asked_map)
        one = ArraySource(batch.rows_at(np.arange(1))[0].astype(batch.dtype))
        return job, problem_with_reserve(job, self.map_source(one))

    def map_source(self, source: Source) -> Source:
        """A source with mapped rows. Raises UsageError for rows that are too long to be mapped accurately."""
        return mapped(source, self._map)

    def map_rows(self, rows: DriverRows) -> DriverRows:
        """The mapped rows, if there is a map."""
        if self._map is None or not len(rows):
            return rows
        return replace(rows, rows=self.map_source(ArraySource(rows.rows)).rows_at(np.arange(len(rows)))[0])

    def remember(self, rows: DriverRows) -> None:
        """Store answered rows unmapped."""
        if self._map is not None:
            self._answered.append(rows)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain arrays, exact."""
        found = {} if self._map is None else {PREFIX + name: values for name, values in self._map.numbers().items()}
        return found | (DriverRows.concatenate(self._answered).to_arrays("original") if self._answered else {})

    def restore(self, job: ActiveJob, row: ArraySource, arrays: Mapping[str, np.ndarray]) -> ActiveMargin:
        """Inverse of ``to_arrays``: the problem on one row of the stream."""
        asked = job.asked_map
        if asked is not None:
            numbers = {name.removeprefix(PREFIX): values for name, values in arrays.items() if name.startswith(PREFIX)}
            shape = row.features, map_width(asked, row.features), asked.degree, asked.coef0
            self._map = feature_map(asked.map, numbers, shape)
        self._answered = [DriverRows.from_arrays("original", arrays)] if "original_ids" in arrays else []
        return problem_with_reserve(job, self.map_source(row))

    def original_rows(self, answered: Answered) -> Rows:
        """The answered rows (m, d), unmapped, in their order."""
        if self._map is None:
            return answered.rows
        rows = DriverRows.concatenate(self._answered).in_order()
        return take(rows.rows, np.searchsorted(rows.ids, answered.ids))


# Batches of a stream: one row or many, checked against the rows before.


def batch_of(some: Any) -> Any:
    """A batch (m, d) from an item of the iterator: rows or one row (d,), dense or sparse."""
    if hasattr(some, "tocsr"):
        return some if some.ndim == 2 else some.reshape(1, -1)
    try:
        rows = np.asarray(some)
    except ValueError:  # ragged: the check of rows raises the error
        return some
    return rows[None, :] if rows.ndim == 1 and len(rows) else rows


def is_empty(batch: Any) -> bool:
    """Whether a batch has no rows, for example after a filter."""
    return not (batch.shape[0] if getattr(batch, "shape", ()) else 1)


def source_of(batch: Any, first: int, before: Source | None) -> ArraySource:
    """The rows of a batch as a source; first: number of its first row in the stream, before: an earlier batch.

    Raises BadRow, DataError, with the place in the stream.
    """
    source = ArraySource(batch, name=f"the stream from row {first:,} on", first=first)
    check_scale(source)
    if before is not None and (source.features, source.sparse) != (before.features, before.sparse):
        kinds = [f"{one.features} features, {'sparse' if one.sparse else 'dense'}" for one in (before, source)]
        raise DataError(f"row {first:,} of the stream: expected rows as before ({kinds[0]}), found {kinds[1]}")
    return source


class StreamTrial:
    """The rows of a trial so far, all predicted correctly, and their class codes."""

    def __init__(self) -> None:
        self._parts: list[DriverRows] = []
        self.codes: list[int] = []

    def __len__(self) -> int:
        return len(self.codes)

    def add(self, row: DriverRows, code: int) -> None:
        """Add a row."""
        self._parts.append(row)
        self.codes.append(code)

    def rows(self, others: Sequence[DriverRows] = ()) -> DriverRows:
        """The rows of the trial, followed by others."""
        return DriverRows.concatenate([*self._parts, *others])

    def known(self) -> dict[int, int]:
        """Codes by row."""
        ids = (int(row) for part in self._parts for row in part.ids)
        return dict(zip(ids, self.codes, strict=True))

    @classmethod
    def of(cls, rows: DriverRows, codes: list[int]) -> StreamTrial:
        """A trial with these rows, in their order."""
        found = cls()
        found._parts, found.codes = [rows], codes
        return found


Status = Literal["running", "certified", "stopped", "contradiction", "stalled"]


#: What a claim is about, as numbers.
_CLAIMED = ("status", "rows_seen", "labels_asked", "unsure", "evidence")
#: Counts of a learner that its state has.
_COUNTS = ("_attempt", "_hypotheses", "_rows_outside", "rows_seen", "labels_asked", "unsure")


class StreamLearner:
    """Queries rows of a stream until few later rows can be labelled wrongly.

    Memory holds the queried rows and one batch. The claim assumes that rows are drawn independently from one source,
    or shuffled: sorted rows, or a source that drifts, show nothing.

    Parameters
    ----------
    classes : sequence of labels, optional
        All classes, of two (negative, positive); None: the first two that are answered.
    epsilon : float, default 0.1
        Share of the best margin of the queried rows that may be missed: rows nearer to the hyperplane are queried.
    error, confidence : float
        At most this share of the rows is labelled wrongly, with this confidence.
    intercept : bool, default True
        False for a hyperplane through the origin.
    map : {"nystroem", "fourier", "polynomial"}, optional
        Rows are mapped to features of a kernel, as ``coremargin.train`` has it, by a map that is fitted to the first
        batch.
    components, gamma, degree, coef0, map_seed : optional
        Of the map.

    Examples
    --------
    >>> import numpy as np
    >>> from coremargin.active import StreamLearner
    >>> rng = np.random.default_rng(0)
    >>> learner = StreamLearner(error=0.05)
    >>> batches = (rng.uniform(-1, 1, (100, 2)) for _ in range(1000))
    >>> learner.learn(batches, lambda row: "b" if row[0] > 0 else "a")
    'certified'
    >>> learner.predict([[-0.9, 0.0], [0.9, 0.0]]).tolist()
    ['a', 'b']
    """

    def __init__(  # noqa: PLR0913 - what is asked of the rows; all with a default
        self,
        *,
        classes: Iterable[Any] | None = None,
        epsilon: float = 0.1,
        error: float = 0.01,
        confidence: float = 0.99,
        intercept: bool = True,
        map: MapKind | None = None,  # noqa: A002 - the name that job files have
        components: int | None = None,
        gamma: float | Literal["scale"] | None = None,
        degree: int | None = None,
        coef0: float | None = None,
        map_seed: int | None = None,
    ) -> None:
        asked = {
            "job": "active",
            "store": "rows of a stream",
            "out": "model",
            "epsilon": epsilon,
            "error": error,
            "confidence": confidence,
            "intercept": intercept,
            "map": map,
            "components": components,
            "gamma": gamma,
            "degree": degree,
            "coef0": coef0,
            "map_seed": map_seed,
        }
        named = None if classes is None else named_classes(classes, "StreamLearner")
        self._job = convert(asked | {"classes": named}, ActiveJob, where="StreamLearner", base=Path())
        self._labels, self._map = CurrentAnswers(named), StreamMap()
        self._learner: Learner | None = None  # with the first batch
        self._attempt, self._hypotheses, self._rows_outside = 1, 0, 0
        self._trial = StreamTrial()
        self._proven = self._ended = False
        self._dtype = np.dtype(np.float32)
        self.rows_seen = 0  #: rows that have arrived
        self.labels_asked = 0  #: labels that were queried and given
        self.unsure = 0  #: rows that the oracle could not label: nothing is claimed of such rows

    # status

    @property
    def classes(self) -> list[Any]:
        """The classes as far as they are known, of two (negative, positive)."""
        return self._labels.classes

    @property
    def status(self) -> Status:
        """The status: "running", the final one, or "stopped" without enough rows or classes for a proof."""
        if self._proven and not self._lacks_classes:
            return "certified"
        known = None if self._learner is None else self._learner.state.status
        if known in ("contradiction", "stalled"):
            return known
        return "stopped" if self._ended else "running"

    @property
    def _has_two_classes(self) -> bool:
        return self._learner is not None and self._learner.state.answered.both_classes

    @property
    def _lacks_classes(self) -> bool:
        """Whether a class has no answer among the training rows of the hypothesis."""
        if self._learner is None:
            return True
        return len(self._learner.state.answered.seen_classes) < self._learner.problem.classes

    @property
    def evidence(self) -> dict[str, Any]:
        """The bounds for the newest hypothesis that the stream proves so far.

        attempt, draws, wrong: rows of the trial, none of them wrong. error_bound: at most this share of the rows is
        labelled wrongly. slab_rows: rows in succession outside of the slab; slab_bound: at most this share lies within.
        Each bound holds with the confidence asked for, whenever it is read.
        """
        spent = 1.0 - self._job.confidence
        return {
            "attempt": self._attempt,
            "draws": len(self._trial),
            "wrong": 0,
            "error_bound": share_shown(len(self._trial), self._attempt, spent),
            "slab_rows": self._rows_outside,
            "slab_bound": share_shown(self._rows_outside, max(1, self._hypotheses), spent),
            "confidence": self._job.confidence,
        }

    @property
    def claim(self) -> str:
        """The claim as a text, with its assumptions."""
        lacks = self._proven and self._lacks_classes
        return describe_claim(
            self.status, self.evidence, rows=self.rows_seen, asked=self.labels_asked, unsure=self.unsure, lacks=lacks
        )

    @property
    def model(self) -> Model:
        """The hard margin of the training rows of the hypothesis; with several classes, of each against the rest."""
        if self._learner is None or not self._has_two_classes:
            raise UsageError("expected answers of two classes, found fewer: learn from more rows first")
        return model_of_stream(self._learner, self._map.map_source(self._source()), self.classes, self._job)

    def _source(self) -> ArraySource:
        """The training rows of the hypothesis, in the order of the stream, with their labels."""
        answered = self._started_learner.state.answered
        labels = [self._labels.labels[int(row)] for row in answered.ids]
        return ArraySource(self._map.original_rows(answered).astype(self._dtype), labels)

    @property
    def _started_learner(self) -> Learner:
        if self._learner is None:
            raise UsageError("expected rows, found none yet: learn from some first")
        return self._learner

    # rows

    def learn(self, rows: Iterable[Any], oracle: Callable[[Any], Any], *, batched: bool = False) -> Status:
        """Learn from rows as they arrive, querying labels, until the claim is proven or the rows end.

        Another call continues; once the claim is proven, no row is consumed.

        Parameters
        ----------
        rows : iterable
            Rows (d,), or batches of rows: array_like or sparse matrices of shape (m, d). The most
            informative rows of a batch are queried first; empty batches are skipped.
        oracle : callable
            The label of a row (d,), or (1, d) if rows are sparse; None if it is unknown.
        batched : bool, default False
            The oracle takes rows (m, d) and returns a label for each: those of a trial are queried together.

        Returns
        -------
        str
            The status.

        Raises
        ------
        BadRow
            A row is not finite, or too long: its batch is not learned, earlier batches are.
        DataError
            Rows have another number of features than those before, or are sparse after dense ones or vice versa.
        LabelError
            A label is none of the classes; or a class has no answer, and a trial has found no wrong row.
        """
        self._ended = False
        try:
            with one_blas_thread():
                for some in () if self.status != "running" else map(batch_of, rows):
                    if not is_empty(some):
                        self.take_batch(some, Labeller(oracle, batched=batched))
                    if self.has_ended:
                        break
        finally:
            self.finish()
        self.refuse_missing_classes()
        return self.status

    @property
    def has_ended(self) -> bool:
        """Whether further rows would change nothing: a trial has ended without a wrong row, or no hyperplane fits."""
        return self._proven or self.status != "running"

    def finish(self) -> None:
        """Say that no further rows come."""
        self._ended = True

    def refuse_missing_classes(self) -> None:
        """Raise LabelError if a trial without a wrong row has found none of a class that has no answer."""
        if self._proven and self._lacks_classes:
            learner = self._started_learner
            share = f"at most a share {self.evidence['error_bound']:.3g} of the rows"
            most = f"with confidence {self._job.confidence} {share}"
            head = describe_missing_classes(
                self.classes, learner.state.answered.seen_classes, learner.problem.classes, self.labels_asked, most
            )
            named = "" if learner.problem.classes == 2 else ", or name the classes without it"
            raise LabelError(f"{head}; learn from more rows, or from some of the class that lacks{named}")

    def _checked(self, some: Any) -> Rows:
        """Rows (m, d) of the stream, which fit those before. Raises BadRow, DataError."""
        before = None if self._learner is None else unmapped(self._learner.problem.source)
        source = source_of(some, self.rows_seen, before)
        rows = source.rows_at(np.arange(source.rows))[0].astype(source.dtype)
        if self._learner is None:
            self._job, problem = self._map.fit_to(self._job, source)
            self._learner = Learner.start(problem)
        self._map.map_source(source)  # raises UsageError for rows that are too long for the map
        self._dtype = np.result_type(self._dtype, source.dtype)
        return rows

    def take_batch(self, batch: Any, oracle: RowLabels) -> None:
        """Learn from a batch, as ``learn`` does: its rows belong to a trial that is running, or are searched.

        Parameters
        ----------
        batch : array_like or sparse matrix of shape (m, d)
            Rows.
        oracle : callable
            Takes rows with their numbers, and gives their labels.
        """
        rows = self._checked(batch)
        if self._proven and self._lacks_classes:
            self._end_attempt(())  # later rows may be of another class
        ids = self.rows_seen + np.arange(rows.shape[0])
        self.rows_seen += len(ids)
        at = 0
        while at < len(ids) and not self._proven and self.status == "running":
            left = DriverRows(ids[at:], take(rows, np.arange(at, len(ids))))
            if not len(self._started_learner.state.answered):
                at += self._ask_first(left.take(np.arange(1)), oracle)
            else:
                at += self._run_trial(left, oracle) if self._trial_is_due else self._search_slab(left, oracle)

    def _ask_first(self, row: DriverRows, oracle: RowLabels) -> int:
        """Query the first row; all rows may be of its class."""
        [label] = oracle(row)
        code = self._code(int(row.ids[0]), label)
        if code is not None:
            self._learn_from(row, {int(row.ids[0]): code})
        return 1

    def _search_slab(self, rows: DriverRows, oracle: RowLabels) -> int:
        """Query rows within the slab until none is left; return the number of processed rows."""
        before, seen, mapped_rows = self._hypotheses, len(rows), self._map.map_rows(rows)
        while True:
            learner = self._started_learner
            wanted = learner.problem.questions(learner.with_rows(mapped_rows).state) if len(rows) else ()
            if not wanted or not learner.running:
                break
            row = rows.take(np.flatnonzero(rows.ids == wanted[0]))
            [label] = oracle(row)
            code = self._code(wanted[0], label)
            if code is not None:
                self._learn_from(row, {wanted[0]: code})
            rows, mapped_rows = (part.take(np.flatnonzero(part.ids != wanted[0])) for part in (rows, mapped_rows))
        # the other rows do not count as a test of a hypothesis that was trained on rows of the same batch
        self._rows_outside = self._rows_outside + len(rows) if self._hypotheses == before else 0
        return seen

    # states

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Give the state as plain arrays, from which ``restore`` continues with the same bits.

        Returns
        -------
        dict
            Arrays by name.
        """
        learner, answered = self._started_learner, self._labels
        row, dtype = unmapped(learner.problem.source).rows_at(np.arange(1))[0], self._dtype
        about = {
            "gamma": self._job.gamma,
            "classes": answered.classes,
            "named": answered.named,
            "counts": [getattr(self, name) for name in _COUNTS],
            "proven": self._proven,
        }
        found = {f"state_{name}": values for name, values in learner.state.to_arrays().items()}
        found |= {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)} | self._map.to_arrays()
        found |= row_ops.to_arrays("row", row) | {"dtype": np.zeros(0, dtype)}
        if len(self._trial):
            found |= self._trial.rows().to_arrays("trial") | {"trial_codes": np.array(self._trial.codes)}
        return found

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from a state.

        Parameters
        ----------
        arrays : mapping
            Of ``to_arrays`` of a learner with the same parameters.
        """
        about = json.loads(arrays["about"].tobytes())
        self._job = structs.replace(self._job, gamma=about["gamma"])
        problem = self._map.restore(self._job, ArraySource(row_ops.from_arrays("row", arrays)), arrays)
        state = {name.removeprefix("state_"): values for name, values in arrays.items() if name.startswith("state_")}
        self._learner, self._dtype = Learner(problem, ActiveState.from_arrays(state)), arrays["dtype"].dtype
        self._proven = about["proven"]
        for name, count in zip(_COUNTS, about["counts"], strict=True):
            setattr(self, name, count)
        if "trial_codes" in arrays:
            self._trial = StreamTrial.of(DriverRows.from_arrays("trial", arrays), arrays["trial_codes"].tolist())
        self._labels = CurrentAnswers(about["classes"])
        self._labels.named = about["named"]
        answered = self._learner.state.answered
        codes = dict(zip(answered.ids.tolist(), answered.codes.tolist(), strict=True)) | self._trial.known()
        for row, code in codes.items():
            self._labels.take(row, "label", about["classes"][code])

    # trials

    @property
    def _trial_is_due(self) -> bool:
        """Whether the next rows are a trial: few can still lie within the slab."""
        return not self._has_two_classes or self._rows_outside >= self._needed(self._hypotheses)

    def _needed(self, number: int) -> int:
        return draws_of(number, self._job.error, 1.0 - self._job.confidence)

    def _run_trial(self, rows: DriverRows, oracle: RowLabels) -> int:
        """Query all next rows until one is predicted wrongly; return the number of processed rows."""
        part = rows.take(np.arange(min(len(rows), self._needed(self._attempt) - len(self._trial))))
        learner, labels = self._started_learner.holding(self._map.map_rows(part)), oracle(part)
        for place, label in enumerate(labels):
            row = int(part.ids[place])
            code = self._code(row, label)
            if code is None:
                continue
            if (
                code != learner.problem.sides_of(learner.state, [row])[0]
            ):  # where no class or more than one claims the row, that is none
                more = {
                    int(part.ids[k]): self._code(int(part.ids[k]), label) for k, label in oracle.known(place, labels)
                }
                known = {row: code} | {k: its for k, its in more.items() if its is not None}
                self._end_attempt([part.take(np.isin(part.ids, list(known)))], known)
                return place + 1 + len(more)
            self._trial.add(part.take(np.array([place])), code)
        self._proven = len(self._trial) == self._needed(self._attempt)
        return len(part)

    def _end_attempt(self, rows: Sequence[DriverRows], codes: Mapping[int, int] = MappingProxyType({})) -> None:
        """End the attempt: its rows, and these, join the training rows of the next hypothesis."""
        self._learn_from(self._trial.rows(rows), {**self._trial.known(), **codes})
        self._attempt, self._trial, self._proven = self._attempt + 1, StreamTrial(), False

    def _learn_from(self, rows: DriverRows, codes: dict[int, int]) -> None:
        """Train another hypothesis on these rows, too."""
        self._map.remember(rows.take(np.isin(rows.ids, list(codes))))
        self._learner = self._started_learner.holding(self._map.map_rows(rows)).add(codes)
        self._hypotheses, self._rows_outside = self._hypotheses + 1, 0

    def _code(self, row: int, label: Any) -> int | None:
        """The class code of a row's label; None without a label."""
        if label is None:
            self.unsure += 1
            return None
        found = match_label(label, self._labels.classes, f"row {row:,} of the stream")
        self._labels.take(row, "label", found)
        self.labels_asked += 1
        return codes_of({row: found}, self._labels.classes)[row]

    # model and files

    def predict(self, X: Any) -> np.ndarray:
        """The label of each row.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        return self.model.predict(X)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a folder with the model, its training rows, the rows of the trial and the claim.

        ``rows.zarr`` has the training rows with their labels: ``coremargin verify`` checks ``model`` against it.
        ``trial.zarr``, if there is one, has the rows of the trial: ``coremargin evaluate`` finds no error in it.
        ``claim.txt`` states the claim about the stream, ``claim.json`` has its numbers.

        Parameters
        ----------
        path : path-like
            The folder to make.
        overwrite : bool, default False
            Replace what an earlier call wrote there.

        Raises
        ------
        UsageError
            Something is at that place.
        OutputError
            Nothing can be written there.
        """
        place = Path(os.path.realpath(local_path(path)))
        check_outside(place)
        model, source, trial, classes = self.model, self._source(), self._trial, self.classes
        with replacing(place, LEFT, overwrite=overwrite) as folder:
            rows, codes = source.rows_at(np.arange(source.rows))
            _store(folder / "rows.zarr", source, rows, [source.classes[code] for code in codes])
            if len(trial):
                _store(folder / "trial.zarr", source, trial.rows().rows, [classes[code] for code in trial.codes])
            (folder / CLAIM).write_text(self.claim, encoding="utf-8")
            found = {"format": FORMAT, "version": 1} | {name: getattr(self, name) for name in _CLAIMED}
            (folder / EVIDENCE).write_text(json.dumps(found, indent=1), encoding="utf-8")
            model.save(folder / "model")


# The results of a stream: a model, a claim, and the folder with both.


def model_of_stream(learner: Learner, source: Source, classes: list[Any], job: ActiveJob) -> Model:
    """The hard margin of the learner's training rows, which are those of the source, mapped if the stream has a map.

    classes: (negative, positive). With several classes, a model as of campaigns, all of whose rows are answered.
    """
    problem, state = learner.problem, learner.state
    answered = replace(state.answered, ids=np.arange(len(state.answered)))
    if problem.planes > 1:
        unscanned = Scanned(np.full(problem.planes, np.inf), np.zeros(problem.classes + 1, np.int64))
        status = "certified" if state.status == "running" else state.status
        alone = replace(state, status=status, answered=answered, scanned=unscanned)
        return several.model_of(replace(problem, source=source), alone, classes, job.parameters(), None)
    ended, lower, upper = several.ENDED.get(state.status, "stopped"), float(state.lower[0]), float(state.upper[0])
    meet = ended == "not_separable"
    if not meet:
        ended = "certified" if is_certified(lower, upper, problem.epsilon) else "stopped"
    found = Result(
        status=ended,
        reason="",
        kind="not_separable" if meet else "margin",
        w=state.hypothesis.w[0],
        b=float(state.hypothesis.b[0]),
        lower=None if meet else lower,
        upper=upper,
        proof=answered.take(answered.support).against(0),
        final=True,
    )
    same = {name: getattr(job, name) for name in SAME}
    asked = HardMarginJob(store=Location("rows.zarr"), out=Location("model"), **same)
    negative, positive = (_label_code(source, label) for label in classes)
    claimed = widen_margin_bounds(found, source, problem.epsilon)
    return hyperplane_model(source, (positive, negative), claimed, "hard_margin", asked.parameters())


def _label_code(source: Source, label: Any) -> int:
    """The code of a label in a source."""
    return next(code for code, known in enumerate(source.classes) if same(known, label))


def describe_claim(status: str, evidence: Mapping[str, Any], *, rows: int, asked: int, unsure: int, lacks: bool) -> str:
    """The claim about the rows of a stream, with its assumptions, as a text.

    lacks: whether a finished trial found no row of a class without answers.
    """
    sure, drawn = evidence["confidence"], evidence["draws"]
    ended = {
        "certified": "all is shown that was asked for",
        "contradiction": "the answers contradict each other, or no hyperplane can tell the classes apart",
        "stalled": "float64 cannot tell the remaining rows apart",
        "running": "it is not finished",
    }.get(status, LACKING if lacks else "the rows ended before all was shown that was asked for")
    lines = [
        f"{status}: {ended}; {asked:,} labels of {rows:,} rows were asked for",
        (
            f"labels: at most a share {evidence['error_bound']:.4g} of the rows to come is labelled wrongly (attempt "
            f"{evidence['attempt']}: {drawn:,} rows tried, none of them wrong)"
        ),
        (
            f"margin: at most a share {evidence['slab_bound']:.4g} of them lies within the slab "
            f"({evidence['slab_rows']:,} in succession did not)"
        ),
        f"each with confidence {sure}, and only if the rows were drawn from one source, independently of each other,",
        "or shuffled: the rows are gone, so that neither this nor these numbers can be checked",
        "what can be checked: the margin of the rows that the model was made of, `coremargin verify model rows.zarr`;",
        "and that it has those right that tried it, `coremargin evaluate model trial.zarr`",
    ]
    if unsure:
        lines.insert(3, f"of rows such as the {unsure:,} that no annotator could label nothing is claimed")
    return "\n".join(lines) + "\n"


def _store(place: Path, like: ArraySource, rows: Rows, labels: list[Any]) -> None:
    """Write a store of rows in the format of ``like``."""
    with StoreWriter.create(place, features=like.features, dtype=like.dtype.name, sparse=like.sparse) as writer:
        writer.write(rows.astype(like.dtype), labels, None, origin="a stream")
