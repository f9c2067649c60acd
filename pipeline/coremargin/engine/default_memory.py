"""How much memory a job's rows have in the driver where nobody says a number."""

from __future__ import annotations

from coremargin.data.machine_memory import limits
from coremargin.engine.clusters.specs import cores
from coremargin.errors import MachineLimit
from coremargin.spec import format_size
from coremargin.units import parse_size

#: Rows get a quarter of all that there is: while they are solved they take as much again, half is for others.
PART = 4
#: A worker process of this machine takes about this much beside the pages of the store, which it maps.
WORKER_BYTES = 256 << 20
#: However little there is: with less, jobs read again and again.
LEAST = 64 << 20


def default_memory() -> int:
    """A quarter of what this process may have; less where rows, solves and a worker for each core would not fit now.

    Rounded down to 1 or 1.5 times a power of two: machines sold as equal, and hours of one machine, differ by less.
    """
    workers = cores() * WORKER_BYTES
    shares = (min(one.total // PART, (one.left - (0 if one.own else workers)) // 2) for one in limits())
    share = max(LEAST, min(shares))
    power = 1 << (share.bit_length() - 1)
    return power + power // 2 if power + power // 2 <= share else power


def memory_of(given: int | str | None) -> int:
    """Bytes that are said, as text with a unit perhaps; where nothing is, the default. Raises SpecError."""
    return default_memory() if given is None else parse_size(given)


def need_known_memory(size: int, place: object) -> None:
    """Raise MachineLimit where a job that is gone on with had more memory for its rows than this machine has in all."""
    total = min(limit.total for limit in limits())
    if size > total:
        raise MachineLimit(
            f"{place}: expected room for {format_size(size)} of rows, which the interrupted run had, found "
            f"{format_size(total)} that this process may have in all; go on where there is more, or start again with "
            f"--restart"
        )
