"""What a start needs is asked for before: files and address space, with a message that names the limit."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coremargin.engine.clusters import embedded
from coremargin.engine.clusters.embedded import start_embedded
from coremargin.engine.executors import InProcess
from coremargin.engine.plan import plan_blocks
from coremargin.engine.resources import memory_limit, need_files, need_limit, need_memory, prepare_command
from coremargin.engine.scan import run_scan
from coremargin.errors import MachineLimit
from limits_kit import limited
from scan_fakes import FakeHandle, SumProbe, expected

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20


def in_use() -> int:
    """Bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def test_files() -> None:
    """As many files as may be opened are granted, one more is refused with all numbers; nothing is opened for it."""
    used = sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1
    with limited(resource.RLIMIT_NOFILE, used + 30):
        need_files(30, "the test")
        with pytest.raises(
            MachineLimit, match=rf"the test: .* 31 open files in addition to {used} .* {used + 30} \(ulimit -n\)"
        ):
            need_files(31, "the test")
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1 == used


@pytest.mark.parametrize("kind", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_memory(kind: int) -> None:
    """Where memory is limited, what is left is granted and more is refused; where it is not, any number is granted."""
    assert memory_limit() is None
    need_memory(1 << 60, "the test")
    need_limit(1 << 60, "the test")
    most = in_use() + 200 * MIB
    with limited(kind, most):
        assert memory_limit() == most
        need_memory(50 * MIB, "the test")
        with pytest.raises(MachineLimit, match=rf"the test: expected 5,000 MiB .* {most >> 20:,} MiB in all \(ulimit"):
            need_memory(5000 * MIB, "the test")
        need_limit(most, "the test")
        with pytest.raises(MachineLimit, match="the test: expected .* for each, but a process may use"):
            need_limit(most + 1, "the test")


def test_a_command_sees_that_its_libraries_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that cannot have the memory of its libraries is refused by name before they are loaded."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    prepare_command("coremargin test")
    with (
        limited(resource.RLIMIT_AS, in_use() + 50 * MIB),
        pytest.raises(MachineLimit, match="coremargin test: expected 304 MiB"),
    ):
        prepare_command("coremargin test")
    with limited(resource.RLIMIT_AS, in_use() + 600 * MIB):
        prepare_command("coremargin test")
    assert os.environ["OPENBLAS_NUM_THREADS"] == "2"


def test_threads_of_this_process() -> None:
    """Threads that cannot have their memory are refused before the first block; later scans do not ask again."""
    source = FakeHandle().open_source()
    blocks = plan_blocks(source, 1)
    executor = InProcess(4)
    with limited(resource.RLIMIT_AS, in_use() + 300 * MIB):
        with pytest.raises(MachineLimit, match="in this process, 4 threads: expected 448 MiB"):
            run_scan(executor, source, SumProbe(), blocks)
        answer = run_scan(InProcess(1), source, SumProbe(), blocks)
    assert answer.bits() == expected(source, SumProbe(), blocks).bits()
    run_scan(executor, source, SumProbe(), blocks)
    with limited(resource.RLIMIT_AS, in_use() + 300 * MIB):
        run_scan(executor, source, SumProbe(), blocks)


@pytest.mark.parametrize(
    ("kind", "most", "says"),
    [
        (resource.RLIMIT_NOFILE, lambda: 60, r"room for 64 open files in addition to .* may have 60 \(ulimit -n\)"),
        (resource.RLIMIT_AS, lambda: in_use() + 900 * MIB, "the embedded cluster"),
    ],
)
def test_an_embedded_cluster(monkeypatch: pytest.MonkeyPatch, kind: int, most: Callable[[], int], says: str) -> None:
    """A cluster that the limits do not allow is refused at once: no thread, process or environment is touched."""
    monkeypatch.setattr(embedded, "Start", lambda *_, **__: pytest.fail("it starts"))
    before = dict(os.environ)
    with limited(kind, most()), pytest.raises(MachineLimit, match=says):
        start_embedded(workers=2 if kind == resource.RLIMIT_NOFILE else 9, threads=1)
    assert dict(os.environ) == before
