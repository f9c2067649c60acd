"""The memory that this process may have: of the machine, of the control groups around it, of ``ulimit``."""

from __future__ import annotations

import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GROUPS, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
#: Files that say how much there is at most, and what is in use. Above "high" a group is slowed down: it hardly moves.
_VERSION_1 = ("memory.limit_in_bytes",), "memory.usage_in_bytes"
_VERSION_2 = ("memory.max", "memory.high"), "memory.current"
#: Pages of files that were read count as used, and are given back when memory is requested.
_FILE_PAGES = ("inactive_file", "active_file", "total_inactive_file", "total_active_file")


@dataclass(frozen=True)
class Limit:
    """Bytes that there are in all, and of these what is left; own: of this process alone, which others do not share."""

    total: int
    left: int
    own: bool = False


def limits() -> list[Limit]:
    """All that hold for this process, that of the machine first."""
    return [_of_machine(), *_of_groups(), *_of_process()]


def available_bytes() -> int:
    """What this process may still take."""
    return min(limit.left for limit in limits())


def process_limits() -> dict[int, int]:
    """Bytes of address space and of data that this process may have (``ulimit -v``, ``ulimit -d``), where limited."""
    found = {kind: resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)}
    return {kind: soft for kind, soft in found.items() if soft != resource.RLIM_INFINITY}


def _of_machine() -> Limit:
    try:
        lines = (line.split() for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        known = {words[0]: int(words[1]) << 10 for words in lines}
        return Limit(known["MemTotal:"], known["MemAvailable:"])
    except (OSError, KeyError, ValueError, IndexError):  # another system, or one that only looks like it
        import psutil  # only here: on Linux small jobs need not load it

        machine = psutil.virtual_memory()
        return Limit(int(machine.total), int(machine.available))


def _of_process() -> Iterator[Limit]:
    limited = process_limits()
    if limited:
        try:
            pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
            size, data = (int(pages[place]) * resource.getpagesize() for place in (0, 5))
        except OSError:
            import psutil

            size = data = int(psutil.Process().memory_info().vms)
        for kind, total in limited.items():
            yield Limit(total, max(0, total - (size if kind == resource.RLIMIT_AS else data)), own=True)


def _of_groups() -> Iterator[Limit]:
    """Those of the control groups around this process, of either version, and of the groups around them."""
    with suppress(OSError):  # another system
        for line in _OWN.read_text(encoding="utf-8", errors="replace").splitlines():
            _, _, rest = line.partition(":")
            kinds, _, own = rest.partition(":")
            if kinds == "" or "memory" in kinds.split(","):
                root, names = (_GROUPS / "memory", _VERSION_1) if kinds else (_GROUPS, _VERSION_2)
                for folder in (root / own.lstrip("/"), *(root / own.lstrip("/")).parents):
                    if folder.is_relative_to(root):
                        with suppress(OSError, ValueError):  # no limit, or nothing that can be read
                            yield _of_group(folder, *names)


def _of_group(folder: Path, most: Sequence[str], now: str) -> Limit:
    """One group's. Raises OSError, ValueError where it has none."""
    total, used = min(_said(folder, most)), int((folder / now).read_text(encoding="ascii"))
    with suppress(OSError, ValueError):
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        pages = {name: int(value) for name, value in (line.split() for line in lines) if name in _FILE_PAGES}
        # version 1 tells those of the group, and "total" with the groups inside
        used -= max(sum(pages.get(name, 0) for name in names) for names in (_FILE_PAGES[:2], _FILE_PAGES[2:]))
    return Limit(total, max(0, total - max(0, used)))


def _said(folder: Path, names: Sequence[str]) -> Iterator[int]:
    """The numbers in these files: not of those that say "max", or are not there."""
    for name in names:
        with suppress(OSError, ValueError):
            yield int((folder / name).read_text(encoding="ascii"))
