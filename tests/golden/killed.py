"""The command line in a process that kills itself: ``killed.py AFTER train STORE --out MODEL ...``.

It dies by SIGKILL at the AFTER-th file that it moves to its place. Its clock jumps by a checkpoint's interval each time
that somebody looks, so that checkpoints are written after every block, however short the job is.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any


def main() -> None:
    """Run the command that the arguments after the first say."""
    after, clock = itertools.count(1), time.monotonic
    looks, last = itertools.count(), int(sys.argv.pop(1))
    time.monotonic = lambda: clock() + 20.0 * next(looks)

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def moved(*args: Any, **options: Any) -> Any:
            if next(after) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return moved

    os.rename, os.replace = dying(os.rename), dying(os.replace)
    from coremargin.cli import main as command

    command()


if __name__ == "__main__":
    main()
