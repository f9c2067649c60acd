"""Which modules workers are sent: those of the working folder, as long as they are loaded."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from coremargin.engine import own_modules as room
from coremargin.engine.probe_transport import pack


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a module, another one in an environment below it, and nothing known of others."""
    (tmp_path / "of_mine.py").write_text("def double(x):\n    return 2 * x\n")
    below = tmp_path / "environment" / "site-packages"
    below.mkdir(parents=True)
    (below / "of_others.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(below)])
    monkeypatch.setattr(room, "_folders", set())
    monkeypatch.setattr(room, "_own_by_name", {})
    room.importable_from_here()
    return tmp_path


def named() -> list[str]:
    """The modules that are sent, by name."""
    return [module.__name__ for module in room.own_modules()]


def test_what_was_installed_below_the_folder_is_not_sent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the folder itself each module is; one that is unloaded, or loaded anew, is as it is now."""
    first = import_module("of_mine")
    import_module("of_others")
    assert named() == ["of_mine"]
    monkeypatch.delitem(sys.modules, "of_others")
    monkeypatch.delitem(sys.modules, "of_mine")
    assert named() == []
    pack(1)  # nothing is left that could not be sent
    again = import_module("of_mine")
    assert again is not first
    assert room.own_modules() == [again]
    monkeypatch.delitem(sys.modules, "of_mine")
