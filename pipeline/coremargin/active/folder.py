"""A campaign: few labels for many rows, in a folder that can be killed at any moment.

::

    campaign.toml     the store, its commit, and what is to be proven; written once
    answers.jsonl     the log: a line an answer, on disk before the next question; only ever appended to
    asked.json        rows that were asked about, put in place before anybody sees them
    state/            a checkpoint: what the log would give again, without its scans and solves; may be lost
    model/            the model, when the campaign is certified or stopped

The state is a function of the first two and of the store, to the bit where the same coremargin computes it on the same
kind of processor: answers are taken one at a time in the order of the log, and each line says how many scans there were
before it, and for which attempt its row was drawn. Elsewhere attempts that were begun stay spent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from threadpoolctl import ThreadpoolController

from coremargin.active.facts import job_of, problem_at, read_facts
from coremargin.active.figures import figures, save, settle
from coremargin.active.player import Player
from coremargin.active.questions import Questions
from coremargin.data.locked import Locked
from coremargin.engine.loop import Callbacks
from coremargin.formats.campaign import ANSWERS

if TYPE_CHECKING:
    from coremargin.models.active import ActiveModel

PATIENCE_S = 5.0  #: for another process that works on the same campaign


class CampaignFolder:
    """A campaign on disk, open: what it is about, where it stands, and the right to work on it.

    Parameters and errors are those of ``Campaign``, which asks and is told.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        cluster: str | os.PathLike[str] | None = None,
        watch: Callbacks | None = None,
    ) -> None:
        self.path = Path(os.path.realpath(path))
        self.facts, first = read_facts(self.path)
        job = job_of(self.facts, self.path)
        self.store, problem = problem_at(self.facts, job)
        self._player = Player(self.path, self.facts, first, job, problem, watch or Callbacks(), cluster)
        self._questions = Questions(self.path, self._player, self.facts.expires)
        self._settled: tuple[str, str] | None = None
        self._blas = ThreadpoolController()  # one thread: the same bits on any number of cores; it takes long to make
        with self._held():  # reads the log, and brings the state up to it
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Save what would have to be computed again, and stop what scans were run by."""
        with self._held():
            self._player.save()
        self._player.close()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """The right to work on the campaign, with all that others have written known."""
        with (
            Locked(self.path / ANSWERS, "this campaign", wait_s=PATIENCE_S),
            self._blas.limit(limits=1, user_api="blas"),
        ):
            self._player.refresh()
            self._questions.refresh()
            started = time.perf_counter()
            try:
                yield
            finally:
                self._player.meters.seconds += time.perf_counter() - started

    @property
    def classes(self) -> list[Any]:
        """The labels, (negative, positive), as far as they are known."""
        with self._held():
            return self._player.classes

    @property
    def status(self) -> dict[str, Any]:
        """Where the campaign stands: answers, draws, scans, bounds."""
        with self._held():
            return figures(self._player, awaited=len(self._questions.open()))

    @property
    def model(self) -> ActiveModel:
        """The model of the answers so far."""
        with self._held():
            return self._player.model()

    def rows(self, ids: Sequence[int]) -> Any:
        """Rows of the store as they are.

        Parameters
        ----------
        ids : sequence of int
            Row numbers.

        Returns
        -------
        ndarray or csr_array of shape (m, d)
            Float64.
        """
        import numpy as np

        return self.store.rows_at(np.array(ids, np.int64))[0]

    def stop(self) -> bool:
        """Write the model of the answers so far; the campaign can be gone on with.

        Returns
        -------
        bool
            False where answers are of one class only: there is no model.
        """
        with self._held():
            self._player.save()
            return save(self._player, self.path)

    def _settle(self) -> None:
        """Bring the model up to what the answers say, where that is something new."""
        now = self._player.state.status, self._player.mark.about
        if now != self._settled:
            settle(self._player, self.path)
            self._settled = now
