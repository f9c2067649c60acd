"""How long an executor on a cluster waits for a block, and how often it tries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """How long to wait and how often to try; seconds."""

    overdue_s: float = 60.0  #: then a block is also sent elsewhere (or after 20 times the slowest block, if longer)
    give_up_s: float = 900.0  #: after this without an answer from any worker the scan ends with RunError
    tries: int = 4  #: for errors that heal
    pause_s: float = 0.5  #: before the second try; doubles
