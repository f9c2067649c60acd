"""The default of --memory: how much memory a job's rows may use in the driver."""

from __future__ import annotations

from coremargin.data.machine_memory import limits
from coremargin.engine.clusters.specs import cores
from coremargin.errors import MachineLimit
from coremargin.spec import format_size
from coremargin.units import parse_size

#: Rows get a quarter of all memory: solves need as much again, half is for other programs.
PART = 4
#: A worker process of this machine needs about this much in addition to the mapped pages of the store.
WORKER_BYTES = 256 << 20
#: Least default: with less, jobs read the store many times.
LEAST = 64 << 20


def default_memory() -> int:
    """A quarter of the available memory; less if rows, solves and a worker for each core would not fit now.

    Rounded down to 1 or 1.5 times a power of two, so that it is the same on similar machines, and at different times.
    """
    workers = cores() * WORKER_BYTES
    shares = (min(one.total // PART, (one.left - (0 if one.own else workers)) // 2) for one in limits())
    share = max(LEAST, min(shares))
    power = 1 << (share.bit_length() - 1)
    return power + power // 2 if power + power // 2 <= share else power


def memory_of(given: int | str | None) -> int:
    """Bytes, from a number or a text with a unit; None: the default. Raises SpecError."""
    return default_memory() if given is None else parse_size(given)


def need_known_memory(size: int, place: object) -> None:
    """Raise MachineLimit if a resumed job had more memory for its rows than this machine has in all."""
    total = min(limit.total for limit in limits())
    if size > total:
        raise MachineLimit(
            f"{place}: expected room for {format_size(size)} of rows, which the interrupted run had, found "
            f"{format_size(total)} that this process may have in all; resume on a larger machine, or start again with "
            f"--restart"
        )
