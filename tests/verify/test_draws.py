"""The verifier's own draws: the order that formats/draws.py defines, and what it costs to go over it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coremargin.errors import DataError
from coremargin.formats import draws as formats
from coremargin.verify import rows as verify_rows
from coremargin.verify.active import draws, log
from coremargin.verify.examine import examine
from coremargin.verify.rows import Rows
from forge_active import LINE, Played, drawing, played, two_sides
from forge_specimens import write_store

ASKED = {"error": 0.05, "confidence": 0.9}


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 100, 1 << 20, 3 << 61])
def test_all_draw_the_same_rows(rows: int) -> None:
    """The verifier's order, the engine's and that of these tests are one, to its end where it has one."""
    for which in [("sha256:a", 0, 1), ("sha256:a", 3, 1), ("sha256:a", 0, 2), ("sha256:b", 0, 1)]:
        first, other, third = (list(islice(of(*which, rows), 500)) for of in (draws.drawn, formats.drawn, drawing))
        assert first == other == third
        assert len(set(first)) == min(rows, 500)
    assert list(draws.drawn("sha256:a", 0, 1, 0)) == []


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A store of 200 chunks, with weights of which two of three are 0."""
    weights = np.random.default_rng(2).choice([0.0, 1.0, 0.5], 5987, p=[0.67, 0.23, 0.1])
    folder = tmp_path_factory.mktemp("weighted")
    write_store(folder / "s.zarr", np.ones((5987, 1)), [None] * 5987, weights=weights, chunk_rows=30)
    return folder / "s.zarr", weights


@pytest.mark.specimens(1)
@pytest.mark.parametrize("remembered", [64 << 20, 30, 1])
def test_rows_of_a_weight_are_known(
    weighted: tuple[Path, np.ndarray], remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any rows, in any order and twice, whatever is remembered; no more than what may be."""
    path, weights = weighted
    monkeypatch.setattr(verify_rows, "_REMEMBERED", remembered)
    rows, rng = Rows(path), np.random.default_rng(3)
    for many in (0, 1, 10, 10_000):
        some = rng.integers(5987, size=many)
        assert np.array_equal(rows.weigh(some), weights[some] > 0)
        held = [len(bits) for bits in rows._heavy.values()]
        assert sum(held) == rows._heavy_bytes
        assert sum(held) <= remembered or len(held) == 1


@pytest.mark.slow
def test_draws_read_each_chunk_of_weights_once(
    weighted: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand draws that count, of 200 chunks: no chunk is read twice; where nothing is remembered, seven times."""
    path, weights = weighted
    counts: Counter[int] = Counter()
    read = Rows._labels

    def counted(self: Rows, index: int) -> Any:
        counts[index] += 1
        return read(self, index)

    monkeypatch.setattr(Rows, "_labels", counted)
    claim: Any = SimpleNamespace(store_digest="sha256:x", seed=4)
    wanted = [row for row in drawing("sha256:x", 4, 2, 5987) if weights[row] > 0 and row > 20][:1000]
    assert list(islice(draws.draw_order(claim, Rows(path), 2, range(21)), 1000)) == wanted
    assert set(counts.values()) == {1}
    monkeypatch.setattr(verify_rows, "_REMEMBERED", 0)
    assert list(islice(draws.draw_order(claim, Rows(path), 2, range(21)), 1000)) == wanted
    assert max(counts.values()) <= 8


def test_rows_without_a_weight_count_little(weighted: tuple[Path, np.ndarray]) -> None:
    """What an attempt may go over is a number of draws: an honest one passes many rows over where few have a weight."""
    path, weights = weighted
    claim: Any = SimpleNamespace(store_digest="sha256:x", seed=4)
    spent: list[int] = []
    found = list(draws.draw_order(claim, Rows(path), 2, (), spent.append))
    assert sorted(found) == np.flatnonzero(weights).tolist()
    assert len(found) <= sum(spent) <= len(found) + len(weights) / 100


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A campaign that asks for so small a share that an attempt may draw all rows."""
    found = played(*two_sides(tmp_path_factory.mktemp("once"), 300), **ASKED)
    found.about["error"] = found.record["parameters"]["error"] = 1e-9
    return found


def attempts(played: Played, place: int, many: int = 500) -> Played:
    """With draws of so many other attempts, skipped: the first ones of their orders, or the last."""
    forged, seed = played.copy(), played.record["parameters"]["seed"]
    for attempt in range(2, many + 2):
        row = list(drawing(played.about["digest"], seed, attempt, 300))[place]
        entry = {"row": row, "label": None, "action": "skip", "why": "draw", "attempt": attempt, **LINE}
        forged.lines.insert(attempt - 2, entry)
    return forged


def earlier(place: Path, store: Path) -> bool:
    """What the verifier says of the draws of earlier attempts."""
    [found] = [check.ok for check in examine(place, store, threads=1).checks if check.name == "earlier draws"]
    return found


@pytest.mark.slow
def test_attempts_without_number_do_not_take_for_ever(
    once: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Honest draws are found at once; those that no attempt drew end the walk at the third; and there is a limit."""
    walked = Counter[int]()
    order = draws.drawn

    def counted(*which: Any) -> Iterator[int]:
        for row in order(*which):
            walked[which[2]] += 1
            yield row

    monkeypatch.setattr(draws, "drawn", counted)
    assert earlier(attempts(once, 0).write(tmp_path / "first"), once.rows.path)
    del walked[1]
    assert len(walked) == 500
    assert walked.total() == 64 * 500  # what is looked at together
    walked.clear()
    known = attempts(once, 0)
    known.lines += [known.lines.pop(0) for _ in range(500)]
    for entry in known.lines[-500:]:
        entry["row"] = known.lines[0]["row"]
    assert not earlier(known.write(tmp_path / "known"), once.rows.path)
    del walked[1]
    assert not walked
    last = attempts(once, -1).write(tmp_path / "last")
    assert earlier(last, once.rows.path)
    monkeypatch.setattr(log, "_WALKED", 10_000)
    with pytest.raises(DataError, match="attempts without number"):
        earlier(last, once.rows.path)
