"""Fixtures of the tests of data: refusals of ingest, files to be refused, and a budget of maps of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coremargin.data import maps
from coremargin.data.ingest import ingest
from coremargin.errors import BadRow, CoremarginError


@pytest.fixture(autouse=True)
def own_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of maps for each test: stores that others left open in this process have used up some of theirs."""
    monkeypatch.setattr(maps, "budget", maps._Budget())


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., str]:
    """``refused(source, kind=BadRow, **options)``: the message of the refusal; nothing may be left on disk by it."""

    def refuse(source: Any, kind: type[CoremarginError] = BadRow, **options: Any) -> str:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(CoremarginError) as caught:
            ingest(source, tmp_path / "rows.zarr", **options)
        assert type(caught.value) is kind, caught.value
        assert sorted(tmp_path.rglob("*")) == before
        return str(caught.value).replace(f"{tmp_path}/", "")

    return refuse


@pytest.fixture
def text(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """``text("rows.csv", ...)``: a file with this content."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
