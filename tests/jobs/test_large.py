"""The bench's stores that are made while they are read, and the answers that need few of their rows."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from coremargin.engine.executors import InProcess
from coremargin.engine.plan import plan_blocks
from coremargin.engine.scan import run_scan


@pytest.fixture
def made() -> Any:
    """40 chunks of 6 features, the last one shorter."""
    from made import Made

    return Made(rows=40 * 10_000 - 17, features=6, chunk_bytes=240_000).open_source()


def test_made_rows_are_those_of_their_ids(made: Any) -> None:
    """A row is the same by its chunk and by its id, in every process that has the handle."""
    again = type(made)(made.handle())
    rows, codes = made.read(39)
    start, stop = made.span(39)
    assert (stop - start, made.chunks) == (9983, 40)
    some, their = again.rows_at(np.array([stop - 1, start + 5]))
    assert np.array_equal(some, rows[[-1, 5]])
    assert np.array_equal(their, codes[[-1, 5]])


def test_made_chunks_are_what_their_source_says(made: Any) -> None:
    """No row is nearer to the plane than its place says, none longer than the radius, and the lowest come first."""
    from made import LOW, MARGIN

    for chunk in (0, 17, 39):
        rows, codes = made.read(chunk)
        t = (2 * codes - 1) * (rows.astype(float) @ made.u)
        assert t.min() >= MARGIN - 1e-6
        assert (np.diff(t[:LOW]) >= -1e-6).all()
        assert t[LOW:].min() >= t[:LOW].max() - 1e-6
        assert np.linalg.norm(rows.astype(float), axis=1).max() <= made.scalars().radius[chunk]


def probe_of(made: Any, cut: float, lean: float) -> Any:
    """The question of a stage whose hypothesis leans away from the true one, about all chunks."""
    from coremargin.problems.hard.probe import MarginProbe

    w = made.u + lean * np.roll(made.u, 1)
    return MarginProbe(
        base=(w / np.linalg.norm(w))[:, None], mix=np.ones((1, 1)), offset=0.0, codes=(1, 0), level=0.5, keep=1,
        keep_per_chunk=50, known_ids=np.array([0, 10_001]), low=0.0, high=4.0, bins=8, dtype="float32",
        chunk_rows=made.chunk_rows, cut_chunks=np.arange(made.chunks), cuts=np.full((made.chunks, 2), cut),
    )  # fmt: skip


@pytest.mark.parametrize(("cut", "lean"), [(0.52, 1e-3), (0.501, 1e-4), (0.7, 0.3)])
def test_answers_from_few_rows_are_those_of_all_rows(made: Any, cut: float, lean: float) -> None:
    """The rows that are sent are those that the real probe sends, and floors are true, and high enough to be of use."""
    from made_answers import MadeProbe

    plain = probe_of(made, cut, lean)
    quick = MadeProbe(**{field.name: getattr(plain, field.name) for field in fields(plain)})
    blocks = plan_blocks(made)
    all_rows, few = (run_scan(InProcess(), made, probe, blocks) for probe in (plain, quick))
    assert len(all_rows.row_id) > 0
    same, here, there = np.intersect1d(all_rows.row_id, few.row_id, return_indices=True)
    assert np.array_equal(all_rows.sent.rows[here], few.sent.rows[there])
    # Of rows with the same value one is sent, and another one in its place: which are alike to the last bit of float32
    # follows from the order of sums, which is another one where few rows are multiplied.
    assert len(all_rows.row_id) == len(few.row_id) <= len(same) + len(few.row_id) // 1000
    assert np.array_equal(all_rows.chunks, few.chunks)
    other = np.setxor1d(all_rows.row_id, few.row_id) // made.chunk_rows
    alike = np.isin(all_rows.chunks, other, invert=True)
    assert (few.chunk_lower <= all_rows.chunk_lower + 1e-5)[alike].all()
    assert (few.chunk_lower >= np.minimum(all_rows.chunk_lower, cut) - 1e-5)[alike].all()
    assert (few.smallest <= all_rows.smallest + 1e-9).all()


@pytest.mark.slow
def test_part_j_says_what_a_driver_needs(tmp_path: Any) -> None:
    """A job on a made store is proven by one read, in process and on a cluster, by as many tasks."""
    from large import large
    from stores import Settings

    (group,) = large(Settings(work=tmp_path, data=tmp_path, terabytes=(0.002,)))
    here, cluster = group.rows
    assert "certified" in here.note
    assert "certified" in cluster.note
    assert here.read == cluster.read == 1
    assert here.seconds > 0
    assert 0 < here.memory < 2**31
