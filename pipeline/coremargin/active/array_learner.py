"""Active learning on arrays in memory, with the interface of modAL: ``query``, ``teach``, ``predict``, ``score``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.sparse import csr_array

from coremargin.active.answers import (
    check_number,
    codes_of,
    describe_missing_classes,
    match_label,
    named_classes,
    row_number,
)
from coremargin.active.learner import Learner
from coremargin.active.penalty import with_penalty
from coremargin.blas import one_blas_thread
from coremargin.data.arrays import ArraySource
from coremargin.data.labels import all_labels
from coremargin.data.rows import as_numbers
from coremargin.data.sources.column_choice import difference
from coremargin.data.tables.objects import is_whole_table, matrix_of
from coremargin.data.transformed import transformed
from coremargin.engine.checkpoint import NoCheckpoint
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import Callbacks
from coremargin.errors import DataError, LabelError, UsageError
from coremargin.formats.current_answers import CurrentAnswers, same
from coremargin.maths.rows import concatenate
from coremargin.problems.active.problem import problem_with_reserve
from coremargin.problems.active.spec import ActiveJob
from coremargin.spec import convert

if TYPE_CHECKING:
    from coremargin.formats.answers import Action
    from coremargin.formats.choices import Loss, MapKind, MultiClass, ScalingKind
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.models.model import Model


class ActiveLearner:
    """Queries a pool of rows in memory until its margins are proven, or with a loss until few labels are wrong.

    Parameters
    ----------
    X_pool : array_like, sparse matrix or data frame of shape (n, d)
        The rows. Columns of a data frame are matched by name later on.
    X_training, y_training : array_like, optional
        Labelled rows to begin with; they are appended to the pool.
    classes : sequence of labels, optional
        All classes, of two (negative, positive); None: the first two that are taught.
    epsilon : float, default 0.1
        Share of the best margin that may be missed.
    error, confidence : float
        At most this share of the rows is labelled wrongly, with this confidence.
    by_class : bool, default False
        ``error`` bounds the share of each predicted class: this says more about rare classes.
    multi_class : {"ovr", "crammer-singer"}, default "ovr"
        Three classes or more: each against the rest, or all at once.
    loss : {"hinge", "squared_hinge"}, optional
        For labels that may contradict each other; needs ``C``.
    C : float or "auto", optional
        Weight of each label's loss; "auto": by cross-validation of the training rows.
    trial : int, optional
        With a loss, the number of draws that test the model; None: by ``error`` and ``confidence``.
    seed : int, default 0
        Seed of the draws that test the model.
    intercept : bool, default True
        False for a hyperplane through the origin.
    scaling : {"standard", "minmax", "maxabs", "rownorm"}, optional
        Rows are scaled as they are read.
    map : {"nystroem", "fourier", "polynomial"}, optional
        Rows are mapped, after they are scaled, to features of a kernel, as ``coremargin.train`` has it.
    components, gamma, degree, coef0, map_seed : optional
        Of the map.

    Examples
    --------
    >>> from coremargin.active import ActiveLearner
    >>> learner = ActiveLearner([[0.0], [1.0], [3.0], [4.0]], classes=["a", "b"])
    >>> while len(found := learner.query(1)[0]):
    ...     learner.teach(found, ["a" if row < 2 else "b" for row in found])
    >>> learner.status, learner.predict([[0.5], [3.5]]).tolist()
    ('certified', ['a', 'b'])
    """

    def __init__(  # noqa: PLR0913 - the rows, and what is asked of them; all but one with a default
        self,
        X_pool: Any,
        X_training: Any = None,
        y_training: Any = None,
        *,
        classes: Iterable[Any] | None = None,
        epsilon: float = 0.1,
        error: float = 0.01,
        confidence: float = 0.99,
        by_class: bool = False,
        multi_class: MultiClass = "ovr",
        loss: Loss | None = None,
        C: float | Literal["auto"] | None = None,
        trial: int | None = None,
        seed: int = 0,
        intercept: bool = True,
        scaling: ScalingKind | None = None,
        map: MapKind | None = None,  # noqa: A002 - the name that job files have
        components: int | None = None,
        gamma: float | Literal["scale"] | None = None,
        degree: int | None = None,
        coef0: float | None = None,
        map_seed: int | None = None,
    ) -> None:
        named = None if classes is None else named_classes(classes, "ActiveLearner")
        asked = {
            "job": "active",
            "store": "arrays",
            "out": "model",
            "epsilon": epsilon,
            "error": error,
            "confidence": confidence,
            "by_class": by_class,
            "multi_class": multi_class,
            "loss": loss,
            "C": C,
            "trial": trial,
            "seed": seed,
            "intercept": intercept,
            "scaling": scaling,
            "map": map,
            "components": components,
            "gamma": gamma,
            "degree": degree,
            "coef0": coef0,
            "map_seed": map_seed,
            "classes": named,
        }
        job: ActiveJob = convert(asked, ActiveJob, where="ActiveLearner", base=Path())
        rows, self._columns = _as_rows(X_pool, "X_pool", None)
        more = None if X_training is None else _as_rows(X_training, "X_training", self._columns)[0]
        pool = ArraySource(rows)
        known = [] if y_training is None else list(y_training)
        self._base = pool if more is None else ArraySource(_stacked(rows, more))
        if len(known) != self._base.rows - pool.rows:
            raise UsageError(f"y_training: expected a label for each row of X_training, found {len(known)}")
        self._labels, rows, training = (
            CurrentAnswers(named),
            transformed(self._base, job),
            range(pool.rows, self._base.rows),
        )
        labels = self._checked(training, known)[0]
        self._job = with_penalty(job, rows, labels, "ActiveLearner")
        problem = problem_with_reserve(self._job, rows)
        with one_blas_thread():
            self._learner = Learner.start(problem)
        if known:
            labels = self._checked(training, known)[0]
            with one_blas_thread():
                self._learner = self._learner.add(codes_of(labels.labels, labels.classes))
            self._labels = labels

    @property
    def classes(self) -> list[Any]:
        """The classes known so far; if there are two, (negative, positive)."""
        return self._labels.classes

    @property
    def status(self) -> str:
        """One of "running", "certified", "contradiction", "stalled", or "stopped" (a class has no row)."""
        return "stopped" if self._learner.lacks_classes else self._learner.state.status

    @property
    def evidence(self) -> dict[str, Any] | None:
        """The bounds that the draws prove, once all are answered."""
        return self._learner.evidence(self.classes)

    @property
    def model(self) -> Model:
        """The model of the answers so far."""
        if not self._learner.state.answered.both_classes:
            raise UsageError("expected answers of two classes, found fewer: teach more rows first")
        found = self._learner.model(self.classes, self._job.parameters(), None)
        return found.with_columns(self._columns)

    def query(self, n: int = 1) -> tuple[np.ndarray, Any]:
        """Rows to label next.

        Parameters
        ----------
        n : int, default 1
            Largest number of rows.

        Returns
        -------
        ids : ndarray of shape (m,)
            Row numbers of the pool; empty once the claim is proven.
        rows : ndarray or csr_array of shape (m, d)
            The rows.

        Raises
        ------
        UsageError
            n is not a positive number.
        LabelError
            A class has no row, and draws have found none.
        """
        check_number(n)
        with one_blas_thread():
            found = self._learner.ask(n)
            while not found and self._learner.running:
                for learner, _ in self._learner.scan(InProcess(), NoCheckpoint(), Callbacks(), self._job.block):
                    self._learner = learner
                found = self._learner.ask(n)
        if self._learner.lacks_classes:
            seen, classes = self._learner.state.answered.seen_classes, self._learner.problem.classes
            raise LabelError(describe_missing_classes(self.classes, seen, classes, len(self._labels.labels)))
        ids = np.array(found, np.int64)
        return ids, self._base.rows_at(ids)[0]

    def teach(self, ids: Iterable[int], labels: Iterable[Any]) -> None:
        """Learn labels of rows, queried or not; a second label for a row replaces the first.

        Parameters
        ----------
        ids : iterable of int
            Numbers of rows of the pool.
        labels : iterable
            Their labels.

        Raises
        ------
        DataError
            A row beyond the pool; then nothing is learned.
        LabelError
            A label is none of the classes; then nothing is learned.
        """
        rows, given = self._rows(ids), list(labels)
        if len(rows) != len(given):
            raise UsageError(f"labels: expected one for each of {len(rows)} rows, found {len(given)}")
        for row, label in self._checked(rows, given)[1]:
            after = self._labels.copy()
            after.take(row, "label", label)
            self._answer(row, "correct" if row in self._labels.labels else "label", after)

    def unsure(self, ids: Iterable[int]) -> None:
        """Exclude rows without a clear label: they are not queried any more, and the claim is not about them.

        A row that has a label keeps it; a row that is labelled later counts again.

        Parameters
        ----------
        ids : iterable of int
            Numbers of rows of the pool.

        Raises
        ------
        DataError
            A row beyond the pool; then none is excluded.
        """
        for row in self._rows(ids):
            self._answer(row, "unsure", self._labels)

    def _rows(self, ids: Iterable[int]) -> list[int]:
        rows = [row_number(row, "ids") for row in ids]
        if max(rows, default=0) >= self._base.rows:
            raise DataError(f"ids: expected rows from 0 to {self._base.rows - 1}, found {max(rows)}")
        return rows

    def _checked(self, rows: Iterable[int], given: Iterable[Any]) -> tuple[CurrentAnswers, list[tuple[int, Any]]]:
        """All labels including the given ones, and the new ones alone; checks all before one is learned."""
        after, new = self._labels.copy(), list[tuple[int, Any]]()
        for row, one in zip(rows, given, strict=True):
            label = match_label(one, after.classes_without(row), f"row {row}")
            if row not in after.labels or not same(after.labels[row], label):
                new.append((row, label))
            after.take(row, "label", label)
        return after, new

    def _answer(self, row: int, action: Action, labels: CurrentAnswers) -> None:
        """Learn from an answer; labels: all current labels, including it."""
        with one_blas_thread():
            codes = codes_of(labels.labels, labels.classes)
            learner = self._learner.answer(row, action, self._learner.draw_of(row), codes)
        self._learner, self._labels = learner, labels

    def predict(self, X: Any) -> np.ndarray:
        """The label of each row.

        Parameters
        ----------
        X : array_like, sparse matrix or data frame of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        return self.model.predict(X)

    def score(self, X: Any, y: Any) -> float:
        """Accuracy: the share of rows that are predicted correctly.

        Parameters
        ----------
        X : array_like, sparse matrix or data frame of shape (n, d)
            Rows.
        y : array_like of shape (n,)
            Their labels.

        Returns
        -------
        float
            From 0 to 1.
        """
        return float(np.mean(self.predict(X) == all_labels(y, "y")))


def _as_rows(X: Any, name: str, known: ColumnsRecord | None) -> tuple[Any, ColumnsRecord | None]:
    """Rows as an array, and for tables the columns, in the order of known columns.

    Raises DataError for other columns, UsageError for columns that are not numeric.
    """
    if not is_whole_table(X):
        return X, None
    found = matrix_of(X, name)
    if found is None:
        raise UsageError(f"{name}: expected columns of numbers, found others; ingest the table, and start a campaign")
    rows, columns = found
    if known is None:
        return rows, columns
    problem = difference(known.names, columns.names, "X_pool")
    if problem:
        raise DataError(f"{name}: {problem}; give the columns of X_pool, in whatever order")
    return rows[:, [columns.names.index(one) for one in known.names]], known


def _stacked(first: Any, second: Any) -> Any:
    """Rows stacked vertically. Raises UsageError for different widths, or dense and sparse rows."""
    sparse = hasattr(first, "tocsr")
    if sparse != hasattr(second, "tocsr"):
        raise UsageError("X_training: expected rows dense or sparse as those of X_pool are, found others")
    named = ((first, "X_pool"), (second, "X_training"))
    parts = [csr_array(rows) if sparse else as_numbers(rows, name) for rows, name in named]
    if any(rows.ndim != 2 or rows.shape[1] != parts[0].shape[1] for rows in parts):
        shapes = f"those of X_pool, {parts[0].shape}, found {parts[1].shape}"
        raise UsageError(f"X_training: expected rows as wide as {shapes}")
    return concatenate(parts)
