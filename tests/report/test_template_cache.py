"""Compiled templates are cached like modules; a cache that cannot be used changes nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from coremargin.report.page import _TemplateCache

if TYPE_CHECKING:
    import pytest


def rendered(folder: Path) -> str:
    """A template from a new environment that caches in a folder."""
    cache = _TemplateCache()
    cache._folder = folder
    source = jinja2.DictLoader({"page": "{% for k in range(3) %}{{ k }}{% endfor %}"})
    return jinja2.Environment(loader=source, bytecode_cache=cache, autoescape=True).get_template("page").render()


def test_templates_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged file is compiled again; without a writable folder, or if Python caches nothing, no file is written."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert rendered(tmp_path) == "012"
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:-20])
    assert rendered(tmp_path) == "012"
    assert file.read_bytes() == content
    assert rendered(tmp_path / "none") == "012"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file.unlink()
    assert rendered(tmp_path) == "012"
    assert not list(tmp_path.iterdir())
