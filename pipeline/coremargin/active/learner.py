"""Active learning on arrays in memory, with the habits of modAL: ``query``, ``teach``, ``predict``, ``score``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.active import course
from coremargin.active.labels import codes_of, meant, named_classes
from coremargin.data.arrays import ArraySource
from coremargin.data.scaled import scaled
from coremargin.engine.checkpoint import NoCheckpoint
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import Callbacks, Engine, rounds
from coremargin.engine.task import one_blas_thread
from coremargin.errors import DataError, LabelError, UsageError
from coremargin.formats.answers import Held, same
from coremargin.problems.active.make import problem_of
from coremargin.problems.active.model import evidence_of, model_of
from coremargin.problems.active.spec import ActiveJob
from coremargin.spec import convert

if TYPE_CHECKING:
    from coremargin.formats.choices import ScalingKind
    from coremargin.models.active import ActiveModel
    from coremargin.models.active_classes import ActiveClassesModel


class ActiveLearner:
    """A pool of rows in memory, asked about until its margin is proven.

    Parameters
    ----------
    X_pool : array_like or sparse matrix of shape (n, d)
        The rows.
    X_training, y_training : array_like, optional
        Rows with labels to begin with; they join the pool behind its rows.
    classes : sequence of two labels, optional
        (negative, positive); None: the first two that are taught.
    epsilon : float, default 0.1
        What may be missing of the best margin, as a share.
    error, confidence : float
        At most this share of the rows is labelled wrongly, and how sure that is to be.
    seed : int, default 0
        Of the draws that try the model.
    intercept : bool, default True
        False for a hyperplane through the origin.
    scaling : {"standard", "minmax", "maxabs", "rownorm"}, optional
        Rows are scaled as they are read.

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
        seed: int = 0,
        intercept: bool = True,
        scaling: ScalingKind | None = None,
    ) -> None:
        said = {
            "job": "active", "store": "arrays", "out": "model", "epsilon": epsilon, "error": error,
            "confidence": confidence, "seed": seed, "intercept": intercept, "scaling": scaling,
        }  # fmt: skip
        self._job = convert(said, ActiveJob, where="ActiveLearner", base=Path())
        pool = ArraySource(X_pool)
        known = [] if y_training is None else list(y_training)
        self._base = pool if X_training is None else ArraySource(_stacked(X_pool, X_training))
        if len(known) != self._base.rows - pool.rows:
            raise UsageError(f"y_training: expected a label for each row of X_training, found {len(known)}")
        self._problem = problem_of(self._job, scaled(self._base, scaling))
        self._held = Held(None if classes is None else named_classes(classes, "ActiveLearner"))
        with one_blas_thread():
            self._state = self._problem.start()
        if known:
            self.teach(np.arange(pool.rows, self._base.rows), known)

    @property
    def classes(self) -> list[Any]:
        """The labels, (negative, positive), as far as they are known."""
        return self._held.classes

    @property
    def status(self) -> str:
        """How it stands: "running", "certified", "contradiction" or "stalled"."""
        return self._state.status

    @property
    def evidence(self) -> dict[str, Any] | None:
        """What the draws show, once they are answered."""
        return evidence_of(self._problem, self._state, self.classes)

    @property
    def model(self) -> ActiveModel | ActiveClassesModel:
        """The model of the answers so far."""
        if not self._state.answered.both_classes:
            raise UsageError("expected answers of two classes, found fewer: teach more rows first")
        return model_of(self._problem, self._state, self.classes, self._job.parameters(), None)

    def query(self, n: int = 1) -> tuple[np.ndarray, Any]:
        """Rows whose labels are wanted now.

        Parameters
        ----------
        n : int, default 1
            How many at most.

        Returns
        -------
        ids : ndarray of shape (m,)
            Numbers of rows of the pool; none where all is proven.
        rows : ndarray or csr_array of shape (m, d)
            The rows.

        Raises
        ------
        LabelError
            All answers are the same, and draws have found no other.
        """
        with one_blas_thread():
            found = course.chosen(self._problem, self._state, n, [])
            while not found and self._state.status == "running":
                engine = Engine(self._problem.source, InProcess(), NoCheckpoint(), Callbacks(), self._job.block)
                for step in rounds(engine, self._problem, course.waiting(self._problem, self._state), 1):
                    self._state = step.state
                found = course.chosen(self._problem, self._state, n, [])
        if course.lacks_classes(self._problem, self._state):
            raise LabelError(
                f"expected rows of two classes, found {len(self._held.labels):,} answers that are the same"
            )
        ids = np.array(found, np.int64)
        return ids, self._base.rows_at(ids)[0]

    def teach(self, ids: Iterable[int], labels: Iterable[Any]) -> None:
        """Take the labels of rows, asked about or not; another label for a row that has one changes it.

        Parameters
        ----------
        ids : iterable of int
            Numbers of rows of the pool.
        labels : iterable
            Their labels.

        Raises
        ------
        DataError
            A row that is none of the pool; then nothing is taken.
        LabelError
            A label is neither of the two; then nothing is taken.
        """
        rows, given = [int(row) for row in ids], list(labels)
        if len(rows) != len(given):
            raise UsageError(f"labels: expected one for each of {len(rows)} rows, found {len(given)}")
        if any(not 0 <= row < self._base.rows for row in rows):
            raise DataError(f"ids: expected rows from 0 to {self._base.rows - 1}, found {rows}")
        held, new = self._held.copy(), list[tuple[int, Any]]()
        for row, one in zip(rows, given, strict=True):  # all of them are looked at before one is taken
            label = meant(one, held.beside(row), f"row {row}")
            if row not in held.labels or not same(held.labels[row], label):
                new.append((row, label))
            held.take(row, "label", label)
        for row, label in new:
            self._take(row, label)

    def _take(self, row: int, label: Any) -> None:
        held = self._held.copy()
        held.take(row, "label", label)
        codes = codes_of(held.labels, held.classes)
        with one_blas_thread():
            if row not in self._held.labels:
                state = course.answered(self._problem, self._state, row, codes)
            else:
                state = course.revised(self._problem, self._state, codes)
        self._state, self._held = state, held

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

    def score(self, X: Any, y: Any) -> float:
        """The share of rows that are given their labels.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Rows.
        y : array_like of shape (n,)
            Their labels.

        Returns
        -------
        float
            From 0 to 1.
        """
        return float(np.mean(self.predict(X) == np.asarray(y)))


def _stacked(first: Any, second: Any) -> Any:
    """Rows one below the other."""
    if hasattr(first, "tocsr"):
        from scipy.sparse import csr_array, vstack

        return csr_array(vstack([first, second]))
    return np.concatenate([np.asarray(first), np.asarray(second)])
