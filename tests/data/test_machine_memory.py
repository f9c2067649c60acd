"""What memory a process may have: of the machine, of its control groups, of its own limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coremargin.data import machine_memory
from coremargin.data.machine_memory import Limit, limits

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where control groups are; this process is in ``/a/b`` of the machine's."""
    monkeypatch.setattr(machine_memory, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine_memory, "_OWN", tmp_path / "own")
    return tmp_path


def write(folder: Path, **files: str) -> None:
    """Files of a group; dots in their names are written as two underscores."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_groups_of_version_2(groups: Path) -> None:
    """Each group around the process counts that has a limit; pages of files that are given back are not in use."""
    (groups / "own").write_text("0::/a/b\n")
    stat = f"anon {GIB}\nactive_file {GIB}\ninactive_file {GIB // 2}\n"
    write(groups / "groups" / "a" / "b", memory__max="max\n", memory__current=f"{3 * GIB}\n")
    write(groups / "groups" / "a", memory__max=f"{4 * GIB}\n", memory__current=f"{3 * GIB}\n", memory__stat=stat)
    assert limits()[1:] == [Limit(4 * GIB, 4 * GIB - 3 * GIB + GIB + GIB // 2)]


def test_groups_of_version_1(groups: Path) -> None:
    """The older files are read, too, also where the process sees its own group as the root of all."""
    (groups / "own").write_text("4:cpu,memory:/not/seen/here\n3:pids:/\n0::/\n")
    most, now = f"{2 * GIB}\n", f"{GIB}\n"
    stat = f"active_file 0\ntotal_active_file {GIB // 4}\n"
    root = groups / "groups" / "memory"
    write(root, memory__limit_in_bytes=most, memory__usage_in_bytes=now, memory__stat=stat)
    assert limits()[1:] == [Limit(2 * GIB, GIB + GIB // 4)]


@pytest.mark.parametrize(("most", "high", "total"), [("max", 2, 2), (4, 2, 2), (2, 4, 2), (2, "max", 2), (3, None, 3)])
def test_a_group_that_is_slowed_down(groups: Path, most: int | str, high: int | str | None, total: int) -> None:
    """Above ``memory.high`` nobody is ended, but hardly anything moves: it is a limit, too, whichever is less."""
    (groups / "own").write_text("0::/a\n")
    said = {"memory__max": most} | ({} if high is None else {"memory__high": high})
    texts = {name: f"{value if value == 'max' else int(value) * GIB}\n" for name, value in said.items()}
    write(groups / "groups" / "a", **texts, memory__current=f"{GIB}\n")
    assert limits()[1:] == [Limit(total * GIB, (total - 1) * GIB)]


def test_more_pages_of_files_than_are_in_use(groups: Path) -> None:
    """Figures that were written down at different times do not make more of what there is."""
    (groups / "own").write_text("0::/a\n")
    stat = f"inactive_file {3 * GIB}\n"
    write(groups / "groups" / "a", memory__max=f"{2 * GIB}\n", memory__current=f"{GIB}\n", memory__stat=stat)
    assert limits()[1:] == [Limit(2 * GIB, 2 * GIB)]


@pytest.mark.parametrize("text", ["", "0::/a\n", "nonsense:memory:/\n", "5:memory:/\n", "\n0\n::\n0:/a\n0::/../../x\n"])
def test_groups_that_say_nothing(groups: Path, text: str) -> None:
    """Where there is no limit, or none to be read, the machine's memory is what there is."""
    (groups / "own").write_text(text)
    (machine,) = limits()
    assert 0 < machine.left <= machine.total
