"""No worker is left: new ones are asked for where that is ours to do, waited for, and not for ever.

A worker process that dies is started again by its nanny, a pod by its operator. The jobs of a batch system end with
their walltime or are cancelled, and an ssh connection breaks: then the launcher asks for the same again.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from coremargin.errors import RunError
from coremargin.spec import format_seconds

log = logging.getLogger(__name__)

#: How long new workers are waited for where no cluster file says so.
WAIT_S = 300.0
#: Seconds without any worker before new ones are asked for: a nanny is quicker than a queue.
LEFT_S = 15.0
#: How often workers are asked for without one block done between; then something is wrong with them.
_TIMES = 3

#: Asks for new workers and says what it did, in a few words; RunError when it was refused.
Recruit = Callable[[], str]


class Absence:
    """The times without any worker of one executor.

    wait_s: how long new ones are waited for, counted from when they are first asked for; recruit: None where others
    start them; left_s: how long to wait before they are asked for, and between two attempts.
    """

    def __init__(self, wait_s: float = WAIT_S, recruit: Recruit | None = None, *, left_s: float = LEFT_S) -> None:
        self._wait_s, self._left_s = wait_s, left_s
        self._recruit = recruit
        self._lasts = False
        self._ask_at = self._until = 0.0
        self._refused: RunError | None = None
        self._in_vain = 0  # how often they were asked for since a block was done

    def over(self) -> None:
        """A worker is there."""
        self._lasts = False

    def worked(self) -> None:
        """A block was done."""
        self._in_vain = 0

    def look(self) -> None:
        """No worker is there; to be called now and then. Raises RunError when that is so for too long."""
        now = time.monotonic()
        if not self._lasts:
            log.warning("no worker is left; waiting for new ones")
            self._lasts, self._refused = True, None
            self._ask_at = math.inf if self._recruit is None else now + self._left_s
            # short as the wait may be, nobody is given up who was not asked for
            self._until = self._wait_s + (now if self._recruit is None else self._ask_at)
        if self._recruit is not None and now >= self._ask_at:
            self._ask(self._recruit, now)
        elif now > self._until:
            raise self._refused or RunError(
                f"no worker is left, and none came within {format_seconds(self._wait_s)}; see whether the cluster runs "
                f"and the queue moves, and what the output of the jobs says, then run again"
            )

    def _ask(self, recruit: Recruit, now: float) -> None:
        if self._in_vain == _TIMES:
            raise RunError(
                f"workers were started anew {_TIMES} times, and each time left before they had done one block; see the "
                f"output of the jobs, and whether their walltime is enough for a block"
            )
        try:
            log.warning("no worker is left: %s", recruit())
        except RunError as error:
            log.warning("no worker is left, and new ones cannot be asked for: %s", error)
            self._refused, self._ask_at = error, now + self._left_s
        else:
            self._refused, self._ask_at, self._until = None, math.inf, now + self._wait_s
            self._in_vain += 1
