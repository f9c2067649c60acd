"""Active learning on a stream of rows that are not stored: an iterator of any length.

Har-Peled, Roth and Zimak (2006), section 4.1, last paragraph, with the learner of campaigns: a row within the slab is
queried as it arrives. Once so many rows in succession lay outside that few can lie within, the next rows are a trial:
which rows these are is fixed before any of them is seen, and their labels are queried wherever they lie. A wrong one
ends the attempt, and all of its rows join those that the hypothesis is made of; if none is wrong, few can be.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coremargin.active.answers import LACKING, codes_of, describe_missing_classes, match_label, named_classes
from coremargin.active.learner import Learner
from coremargin.active.snapshot import with_gamma
from coremargin.data.arrays import ArraySource
from coremargin.data.folder import replacing
from coremargin.data.map_fit import fitted
from coremargin.data.mapped import mapped, unmapped
from coremargin.data.owned import STORE, Kind
from coremargin.data.writer import StoreWriter
from coremargin.engine.task import one_blas_thread
from coremargin.errors import DataError, LabelError, UsageError
from coremargin.formats.current_answers import CurrentAnswers, same
from coremargin.formats.local_path import local_path
from coremargin.maths.active.coreset import draws_of, share_shown
from coremargin.maths.margin import is_certified
from coremargin.maths.rows import take
from coremargin.models.files import MODEL, check_outside
from coremargin.problems.active import model as several
from coremargin.problems.active.problem import problem_with_reserve
from coremargin.problems.active.spec import ActiveJob
from coremargin.problems.active.state import Scanned
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


CLAIM = "claim.txt"
#: What a hard margin of the rows that were asked about is asked for as the stream was.
SAME = ("epsilon", "intercept", "map", "components", "gamma", "degree", "coef0", "map_seed")
_PLACES = {"rows.zarr": STORE, "trial.zarr": STORE, "model": MODEL}
#: Only to be made: nothing there is ever replaced.
LEFT = Kind(
    what="what a stream has left",
    records={},
    files="|".join([CLAIM, *(f"{name}/(?:{kind.files})" for name, kind in _PLACES.items())]).replace(".txt", r"\.txt"),
    folders="|".join([*_PLACES, *(f"{name}/(?:{kind.folders})" for name, kind in _PLACES.items())]),
)


# Who labels rows that lie in no store: one row at a time, or many together.


class Labeller:
    """Queries an oracle for labels of rows (m, d), one by one or all together."""

    def __init__(self, ask: Callable[[Any], Any], *, batched: bool) -> None:
        self._ask, self._batched = ask, batched

    def __call__(self, rows: Rows) -> Iterator[Any] | Sequence[Any]:
        """The label of each row, None where the oracle has none."""
        if not self._batched:
            return (self._ask(take(rows, [k]) if hasattr(rows, "tocsr") else rows[k]) for k in range(rows.shape[0]))
        found = list(self._ask(rows))
        if len(found) != rows.shape[0]:
            raise DataError(f"oracle: expected a label for each of {rows.shape[0]} rows, found {len(found)}")
        return found

    def known(self, place: int, labels: Iterator[Any] | Sequence[Any]) -> list[tuple[int, Any]]:
        """Labels behind a place that the oracle gave together with it: no query is needed for them."""
        return list(enumerate(labels))[place + 1 :] if isinstance(labels, Sequence) else []


# How the rows of a stream are mapped: by a map that is fitted to its first batch, and stays.


class StreamMap:
    """The map of a stream, fitted to its first batch; answered rows are also kept unmapped."""

    def __init__(self) -> None:
        self._map: FeatureMap | None = None
        self._answered = list[DriverRows]()

    def fit_to(self, job: ActiveJob, batch: ArraySource) -> tuple[ActiveJob, ActiveMargin]:
        """Fit the map; the job with a number for gamma, and the problem on one row of the batch.

        Raises UsageError for a map that does not fit these rows, such as one of more landmarks than there are.
        """
        job = with_gamma(job, batch)
        self._map = None if job.asked_map is None else fitted(batch, job.asked_map)
        one = ArraySource(batch.rows_at(np.arange(1))[0].astype(batch.dtype))
        return job, problem_with_reserve(job, self.map_source(one))

    def map_source(self, source: Source) -> Source:
        """A source with mapped rows. Raises UsageError for rows whose mapping rounding decides."""
        return mapped(source, self._map)

    def map_rows(self, rows: DriverRows) -> DriverRows:
        """Rows as the hypothesis takes them."""
        if self._map is None or not len(rows):
            return rows
        return replace(rows, rows=self.map_source(ArraySource(rows.rows)).rows_at(np.arange(len(rows)))[0])

    def remember(self, rows: DriverRows) -> None:
        """Keep answered rows unmapped."""
        if self._map is not None:
            self._answered.append(rows)

    def original_rows(self, answered: Answered) -> Rows:
        """The answered rows (m, d), unmapped, in their order."""
        if self._map is None:
            return answered.rows
        rows = DriverRows.concatenate(self._answered).in_order()
        return take(rows.rows, np.searchsorted(rows.ids, answered.ids))


# Batches of a stream: rows as they come, one by one or many at once, which fit those before.


def batch_of(some: Any) -> Any:
    """A batch (m, d) from what the iterator gives, which may be one row (d,), dense or sparse."""
    if hasattr(some, "tocsr"):
        return some if some.ndim == 2 else some.reshape(1, -1)
    try:
        rows = np.asarray(some)
    except ValueError:  # ragged: that is said where rows are checked
        return some
    return rows[None, :] if rows.ndim == 1 and len(rows) else rows


def is_empty(batch: Any) -> bool:
    """Whether a batch has no rows, as after a filter."""
    return not (batch.shape[0] if getattr(batch, "shape", ()) else 1)


def source_of(batch: Any, first: int, before: Source | None) -> ArraySource:
    """The rows of a batch; first: number of its first row in the stream, before: rows that came before it.

    Raises BadRow, DataError, with the place in the stream.
    """
    source = ArraySource(batch, name=f"the stream from row {first:,} on", first=first)
    check_scale(source)
    if before is not None and (source.features, source.sparse) != (before.features, before.sparse):
        kinds = [f"{one.features} features, {'sparse' if one.sparse else 'dense'}" for one in (before, source)]
        raise DataError(f"row {first:,} of the stream: expected rows as before ({kinds[0]}), found {kinds[1]}")
    return source


class StreamTrial:
    """Rows that tried a hypothesis, none of them wrong so far, and their codes."""

    def __init__(self) -> None:
        self._parts: list[DriverRows] = []
        self.codes: list[int] = []

    def __len__(self) -> int:
        return len(self.codes)

    def add(self, row: DriverRows, code: int) -> None:
        """One more."""
        self._parts.append(row)
        self.codes.append(code)

    def rows(self, others: Sequence[DriverRows] = ()) -> DriverRows:
        """All of them, and others."""
        return DriverRows.concatenate([*self._parts, *others])

    def known(self) -> dict[int, int]:
        """Codes by row."""
        return {int(part.ids[0]): code for part, code in zip(self._parts, self.codes, strict=True)}


Status = Literal["running", "certified", "stopped", "contradiction", "stalled"]


class StreamLearner:
    """Queries rows of a stream until few rows to come can be labelled wrongly.

    Memory holds the queried rows and one batch. The claim assumes that rows are drawn independently from one source,
    or shuffled: sorted rows, or a source that drifts, show nothing.

    Parameters
    ----------
    classes : sequence of labels, optional
        All classes, of two (negative, positive); None: the first two that are answered.
    epsilon : float, default 0.1
        Share of the best margin of the queried rows that may be missed: nearer rows are queried.
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

    # what it knows

    @property
    def classes(self) -> list[Any]:
        """The classes as far as they are known, of two (negative, positive)."""
        return self._labels.classes

    @property
    def status(self) -> Status:
        """The status: "running" before any row, "stopped" if rows or classes lack for a proof, or how it ended."""
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
        """Whether a class has no answer that the hypothesis knows."""
        if self._learner is None:
            return True
        return len(self._learner.state.answered.seen_classes) < self._learner.problem.classes

    @property
    def evidence(self) -> dict[str, Any]:
        """What the stream has shown so far of the newest hypothesis.

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
        """The claim in words, with its assumptions."""
        lacks = self._proven and self._lacks_classes
        return describe_claim(
            self.status, self.evidence, rows=self.rows_seen, asked=self.labels_asked, unsure=self.unsure, lacks=lacks
        )

    @property
    def model(self) -> Model:
        """The hard margin of the rows that the hypothesis was made of, of several classes each against the rest."""
        if self._learner is None or not self._has_two_classes:
            raise UsageError("expected answers of two classes, found fewer: learn from more rows first")
        return model_of_stream(self._learner, self._map.map_source(self._source()), self.classes, self._job)

    def _source(self) -> ArraySource:
        """The rows that the hypothesis was made of, in the order of the stream, with their labels."""
        pool = self._started.state.answered
        labels = [self._labels.labels[int(row)] for row in pool.ids]
        return ArraySource(self._map.original_rows(pool).astype(self._dtype), labels)

    @property
    def _started(self) -> Learner:
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
            A row is not finite, or too long: its batch is not learned, those before are.
        DataError
            Rows have another number of features than those before, or are sparse after dense ones or vice versa.
        LabelError
            A label is none of the classes; or a class has no answer, and a trial has found no wrong row.
        """
        self._ended = False
        if self._proven and self._lacks_classes:
            self._end_attempt(())  # later rows may be of another class
        try:
            with one_blas_thread():
                for some in () if self.status != "running" else map(batch_of, rows):
                    if not is_empty(some):
                        self._learn_batch(self._checked(some), Labeller(oracle, batched=batched))
                    if self._proven or self.status != "running":
                        break
        finally:
            self._ended = True
        if self._proven and self._lacks_classes:
            learner = self._started
            share = f"at most a share {self.evidence['error_bound']:.3g} of the rows"
            most = f"with confidence {self._job.confidence} {share}"
            head = describe_missing_classes(
                self.classes, learner.state.answered.seen_classes, learner.problem.classes, self.labels_asked, most
            )
            named = "" if learner.problem.classes == 2 else ", or name the classes without it"
            raise LabelError(f"{head}; learn from more rows, or from some of the class that lacks{named}")
        return self.status

    def _checked(self, some: Any) -> Rows:
        """Rows (m, d) of the stream, which fit those before. Raises BadRow, DataError."""
        before = None if self._learner is None else unmapped(self._learner.problem.source)
        source = source_of(some, self.rows_seen, before)
        rows = source.rows_at(np.arange(source.rows))[0].astype(source.dtype)
        if self._learner is None:
            self._job, problem = self._map.fit_to(self._job, source)
            self._learner = Learner.start(problem)
        self._map.map_source(source)  # refuses rows that are too long for it
        self._dtype = np.result_type(self._dtype, source.dtype)
        return rows

    def _learn_batch(self, rows: Rows, oracle: Labeller) -> None:
        """One batch: rows of a trial as long as one is on, else the search among all that are left of it."""
        ids = self.rows_seen + np.arange(rows.shape[0])
        self.rows_seen += len(ids)
        at = 0
        while at < len(ids) and not self._proven and self.status == "running":
            left = DriverRows(ids[at:], take(rows, np.arange(at, len(ids))))
            if not len(self._started.state.answered):
                at += self._ask_first(left.take(np.arange(1)), oracle)
            else:
                at += self._run_trial(left, oracle) if self._trial_is_due else self._search_slab(left, oracle)

    def _ask_first(self, row: DriverRows, oracle: Labeller) -> int:
        """The first answer; all rows may be of its class."""
        [label] = oracle(row.rows)
        code = self._code(int(row.ids[0]), label)
        if code is not None:
            self._learn_from(row, {int(row.ids[0]): code})
        return 1

    def _search_slab(self, rows: DriverRows, oracle: Labeller) -> int:
        """Ask about rows within the slab until none of them is; how many there were."""
        before, seen, mapped_rows = self._hypotheses, len(rows), self._map.map_rows(rows)
        while True:
            learner = self._started
            wanted = learner.problem.questions(learner.with_rows(mapped_rows).state) if len(rows) else ()
            if not wanted or not learner.running:
                break
            row = rows.take(np.flatnonzero(rows.ids == wanted[0]))
            [label] = oracle(row.rows)
            code = self._code(wanted[0], label)
            if code is not None:
                self._learn_from(row, {wanted[0]: code})
            rows, mapped_rows = (part.take(np.flatnonzero(part.ids != wanted[0])) for part in (rows, mapped_rows))
        # a hypothesis that was made of some of these rows has not been tried by the others
        self._rows_outside = self._rows_outside + len(rows) if self._hypotheses == before else 0
        return seen

    # trials

    @property
    def _trial_is_due(self) -> bool:
        """Whether the rows that come next are a trial: too few can lie within the slab to wait for one."""
        return not self._has_two_classes or self._rows_outside >= self._needed(self._hypotheses)

    def _needed(self, number: int) -> int:
        return draws_of(number, self._job.error, 1.0 - self._job.confidence)

    def _run_trial(self, rows: DriverRows, oracle: Labeller) -> int:
        """Ask about the next rows wherever they lie, until one is wrong; how many there were."""
        part = rows.take(np.arange(min(len(rows), self._needed(self._attempt) - len(self._trial))))
        learner, labels = self._started.holding(self._map.map_rows(part)), oracle(part.rows)
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
        """End the attempt: what was tried, and these rows, join what the next hypothesis is made of."""
        self._learn_from(self._trial.rows(rows), {**self._trial.known(), **codes})
        self._attempt, self._trial, self._proven = self._attempt + 1, StreamTrial(), False

    def _learn_from(self, rows: DriverRows, codes: dict[int, int]) -> None:
        """Another hypothesis, which knows these rows, too."""
        self._map.remember(rows.take(np.isin(rows.ids, list(codes))))
        self._learner = self._started.holding(self._map.map_rows(rows)).add(codes)
        self._hypotheses, self._rows_outside = self._hypotheses + 1, 0

    def _code(self, row: int, label: Any) -> int | None:
        """What the engine calls the label of a row; None: there is none."""
        if label is None:
            self.unsure += 1
            return None
        found = match_label(label, self._labels.classes, f"row {row:,} of the stream")
        self._labels.take(row, "label", found)
        self.labels_asked += 1
        return codes_of({row: found}, self._labels.classes)[row]

    # what it leaves

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder with all that is left of the stream.

        ``rows.zarr`` has the rows that the model was made of, with their labels: ``coremargin verify`` examines
        ``model`` with it. ``trial.zarr``, if there is one, has the rows that tried it: ``coremargin evaluate`` finds
        none of them wrong. ``claim.txt`` says what is claimed of the stream.

        Parameters
        ----------
        path : path-like
            The folder to make.

        Raises
        ------
        UsageError
            Something is at that place.
        OutputError
            Nothing can be written there.
        """
        save(path, self.model, self._source(), self._trial, self.claim, self.classes)


# What a stream leaves: a model, a claim, and the folder with both.


def model_of_stream(learner: Learner, source: Source, classes: list[Any], job: ActiveJob) -> Model:
    """The hard margin of the rows that a learner knows, which are those of the source, mapped where rows are.

    classes: (negative, positive). Of several classes a model as campaigns have it, of rows that are all answered.
    """
    problem, state = learner.problem, learner.state
    answered = replace(state.answered, ids=np.arange(len(state.answered)))
    if problem.planes > 1:
        nobody = Scanned(np.full(problem.planes, np.inf), np.zeros(problem.classes + 1, np.int64))
        status = "certified" if state.status == "running" else state.status
        alone = replace(state, status=status, answered=answered, scanned=nobody)
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
    asked = HardMarginJob(store=Path("rows.zarr"), out=Path("model"), **same)
    negative, positive = (_place(source, label) for label in classes)
    claimed = widen_margin_bounds(found, source, problem.epsilon)
    return hyperplane_model(source, (positive, negative), claimed, "hard_margin", asked.parameters())


def _place(source: Source, label: Any) -> int:
    """The code that a label has."""
    return next(code for code, known in enumerate(source.classes) if same(known, label))


def describe_claim(status: str, evidence: Mapping[str, Any], *, rows: int, asked: int, unsure: int, lacks: bool) -> str:
    """What is claimed of the rows of a stream, and on what that rests, for people.

    lacks: whether a trial has ended that found no row of a class that no answer has.
    """
    sure, drawn = evidence["confidence"], evidence["draws"]
    ended = {
        "certified": "all is shown that was asked for",
        "contradiction": "the answers contradict each other, or no hyperplane can tell the classes apart",
        "stalled": "float64 cannot tell the remaining rows apart",
        "running": "it goes on",
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
        "or shuffled: the rows are gone, and nobody can check that, nor these numbers",
        "what can be checked: the margin of the rows that the model was made of, `coremargin verify model rows.zarr`;",
        "and that it has those right that tried it, `coremargin evaluate model trial.zarr`",
    ]
    if unsure:
        lines.insert(3, f"of rows such as the {unsure:,} that nobody could label nothing is claimed")
    return "\n".join(lines) + "\n"


def save(
    path: str | os.PathLike[str],
    model: Model,
    source: ArraySource,
    trial: StreamTrial,
    claim: str,
    classes: list[Any],
) -> None:
    """Write the folder of ``StreamLearner.save``, whole or not at all. Raises UsageError, OutputError."""
    place = Path(os.path.realpath(local_path(path)))
    check_outside(place)
    names = source.classes
    with replacing(place, LEFT, overwrite=False) as folder:
        rows = source.rows_at(np.arange(source.rows))
        _store(folder / "rows.zarr", source, rows[0].astype(source.dtype), [names[code] for code in rows[1]])
        if len(trial):
            labels = [classes[code] for code in trial.codes]
            _store(folder / "trial.zarr", source, trial.rows().rows.astype(source.dtype), labels)
        (folder / CLAIM).write_text(claim, encoding="utf-8")
        model.save(folder / "model")


def _store(place: Path, like: ArraySource, rows: Rows, labels: list[Any]) -> None:
    """A store of rows as ``like`` has them."""
    with StoreWriter.create(place, features=like.features, dtype=like.dtype.name, sparse=like.sparse) as writer:
        writer.write(rows, labels, None, origin="a stream")
