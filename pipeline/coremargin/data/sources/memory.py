"""How much memory there is for what cannot be read in pieces, and what is said when it does not suffice."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from coremargin.data.sources.paths import is_path
from coremargin.errors import DataError
from coremargin.spec import format_size

P = ParamSpec("P")
R = TypeVar("R")

_ALWAYS = 8 << 20  # bytes that a batch of any source takes
_GROUPS = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """What this process may still take: of the machine, of its control group and of ``ulimit -v``."""
    import psutil  # only here: what is small is never compared with the memory

    found = [int(psutil.virtual_memory().available), *_group_limits()]
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        found.append(max(0, limit - int(psutil.Process().memory_info().vms)))
    return min(found)


def refuse_beyond_memory(needed: int, what: str, advice: str) -> None:
    """Raise DataError when more memory is needed than there is. what: names the place and what takes so much."""
    if needed <= _ALWAYS:
        return
    there = available_bytes()
    if needed > there:
        raise DataError(f"{what}: takes {format_size(needed)} of memory, {format_size(there)} are there; {advice}")


def memory_errors_named(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose MemoryError becomes a DataError that names its first argument."""

    @wraps(function)
    def guarded(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except MemoryError as error:
            there, name = format_size(available_bytes()), _named(args[0] if args else None)
            raise DataError(
                f"{name}: takes more memory than the {there} that are there ({error}); allow more, or give rows of "
                "fewer features"
            ) from error

    return guarded


def _named(source: Any) -> str:
    """A source as messages name it."""
    first = source[0] if isinstance(source, list | tuple) and source else source
    return os.fsdecode(first) if is_path(first) else "rows"


def _group_limits() -> list[int]:
    """The limits of the control groups around this process, of either version."""
    limits = []
    with suppress(OSError):  # another system
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines():
            _, kinds, own = line.split(":", 2)
            if kinds == "" or "memory" in kinds.split(","):
                root, name = (_GROUPS / "memory", "memory.limit_in_bytes") if kinds else (_GROUPS, "memory.max")
                for folder in (root / own.lstrip("/"), *(root / own.lstrip("/")).parents):
                    if folder.is_relative_to(root):
                        with suppress(OSError, ValueError):  # "max" where there is none
                            limits.append(int((folder / name).read_text(encoding="ascii")))
    return limits
