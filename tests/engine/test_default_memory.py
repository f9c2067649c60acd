"""The memory that a job has where nobody says a number: a share of the machine, the same from one hour to the next."""

from __future__ import annotations

import pytest

from coremargin.data.machine_memory import Limit
from coremargin.engine import default_memory as own
from coremargin.engine.default_memory import LEAST, default_memory, memory_of, need_known_memory
from coremargin.errors import MachineLimit

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([Limit(24 * GIB, 20 * GIB)], 6 * GIB),
        ([Limit(24 * GIB - 1, 20 * GIB)], 4 * GIB),  # 1.5 times a power of two, or a power of two
        ([Limit(24 * GIB, 14 * GIB)], 6 * GIB),  # a busier hour
        ([Limit(24 * GIB, 2 * GIB)], 768 * MIB),  # half of what two workers leave of what is left
        ([Limit(24 * GIB, 20 * GIB), Limit(2 * GIB, 2 * GIB)], 512 * MIB),  # a control group
        ([Limit(24 * GIB, 20 * GIB), Limit(2 * GIB, GIB, own=True)], 512 * MIB),  # workers have limits of their own
        ([Limit(24 * GIB, 20 * GIB), Limit(2 * GIB, 700 * MIB, own=True)], 256 * MIB),
        ([Limit(100 * MIB, 10 * MIB)], LEAST),
    ],
)
def test_share(monkeypatch: pytest.MonkeyPatch, limits: list[Limit], expected: int) -> None:
    """A quarter of the least limit, and no more than half of what is left beside workers, rounded down."""
    monkeypatch.setattr(own, "limits", lambda: limits)
    monkeypatch.setattr(own, "cores", lambda: 2)
    assert default_memory() == memory_of(None) == expected
    assert memory_of("3 MiB") == 3 * MIB


def test_a_smaller_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that had more than a machine has in all does not go on there, and is told where it may."""
    monkeypatch.setattr(own, "limits", lambda: [Limit(2 * GIB, GIB), Limit(3 * GIB, GIB)])
    need_known_memory(2 * GIB, "m")
    expected = r"m: expected room for 4.0 GiB of rows, .*, found 2.0 GiB .*; resume on a larger machine, or .*--restart"
    with pytest.raises(MachineLimit, match=expected):
        need_known_memory(4 * GIB, "m")
