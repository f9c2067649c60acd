"""Campaigns that begin with rows similar to examples: which rows these are, and that they are asked about first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics.pairwise import cosine_similarity

import coremargin
from coremargin.active import Campaign
from coremargin.active.similar import FIRST, similar_rows
from coremargin.errors import CoremarginError, DataError, UsageError

if TYPE_CHECKING:
    from click.testing import Result

ROWS, FEATURES = 900, 12
POSITIVE = np.arange(ROWS) % 60 == 7


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    """Unit rows, of which one in sixty lies in the direction of the first feature."""
    X = rng.normal(size=(ROWS, FEATURES)) + 6.0 * POSITIVE[:, None] * np.eye(FEATURES)[0]
    X[5] = 0
    return np.asarray(X * rng.uniform(0.5, 2.0, size=(ROWS, 1)), np.float32)


def store_of(X: Any, path: Path, **options: Any) -> coremargin.Store:
    """A store of chunks of few rows."""
    coremargin.ingest(X, path, chunk_bytes=8192, unlabelled=True, **options)
    return coremargin.Store.open(path)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_most_similar_rows_are_found(rows: np.ndarray, tmp_path: Path, *, sparse: bool) -> None:
    """They are those of scikit-learn's cosine similarity, on average over the examples, in any number of chunks."""
    store = store_of(csr_array(rows) if sparse else rows, tmp_path / "rows.zarr")
    assert store.chunks > 3
    examples = [7, 67, 127]
    expected = cosine_similarity(rows.astype(float), rows[examples].astype(float)).mean(axis=1)
    found = similar_rows(store, examples, most=40)
    np.testing.assert_allclose(expected[found], np.sort(expected)[::-1][:40], atol=1e-12)
    assert POSITIVE[found[:FIRST]].all()
    np.save(tmp_path / "examples.npy", rows[examples])
    assert similar_rows(store, tmp_path / "examples.npy", most=40) == found
    assert similar_rows(store, rows[examples], most=40) == found


def test_equal_rows_come_by_number_and_rows_without_weight_do_not(tmp_path: Path) -> None:
    """Ties are ordered, also over chunks, and no row of weight 0 is asked about."""
    X = np.ones((3000, 2), np.float32)
    weights = np.ones(3000)
    weights[[0, 2]] = 0
    store = store_of(X, tmp_path / "rows.zarr", weights=weights)
    assert similar_rows(store, [9], most=5) == [1, 3, 4, 5, 6]


def test_rare_rows_are_asked_about_first(rows: np.ndarray, tmp_path: Path, run_cli: Callable[..., Result]) -> None:
    """The first questions are the similar rows, in their order, also after a restart; the campaign then goes on."""
    store = store_of(rows, tmp_path / "rows.zarr")
    oracle = tmp_path / "labels.txt"
    oracle.write_text("".join("yes\n" if one else "no\n" for one in POSITIVE))
    out = tmp_path / "c"
    run_cli("active", "start", store.path, "--out", out, "--classes", "no,yes", "--like", "7,67")
    wanted = similar_rows(store, [7, 67])
    assert run_cli("active", "status", out, "--json").stdout
    with Campaign(out) as campaign:
        assert campaign.status["like"] == wanted
        for row in wanted[:4]:
            question = campaign.ask()[0]
            assert (question.row, question.why) == (row, "start")
            campaign.tell([row], ["yes"])
    with Campaign(out) as campaign:
        assert [one.row for one in campaign.ask(3)] == wanted[4:7]
        campaign.skip(wanted[4])
        campaign.tell(wanted[5:7], ["yes", "yes"])
        assert campaign.ask()[0].row == wanted[7]
    run_cli("active", "run", out, "--oracle", oracle)
    run_cli("verify", out, store.path)
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    assert {line["why"] for line in lines[:8]} == {"start"}


def test_a_mapped_campaign_begins_with_stored_rows(rows: np.ndarray, tmp_path: Path) -> None:
    """Similar rows are those of the store; scaling and maps change no question of the beginning."""
    store = store_of(rows, tmp_path / "rows.zarr")
    options: dict[str, Any] = {"classes": [0, 1], "like": [7], "scaling": "standard", "map": "polynomial", "degree": 2}
    with Campaign.create(tmp_path / "c", store.path, **options) as campaign:
        assert campaign.ask()[0].row == similar_rows(store, [7])[0] == 7


def test_texts_are_hashed_as_the_store_was(tmp_path: Path, run_cli: Callable[..., Result]) -> None:
    """A file of texts finds the documents with their words; a file of rows of the same column does, too."""
    topics = ["cheap pills online", "meeting agenda notes", "football match result"]
    lines = [f'"{topics[k % 3]} number{k}"' for k in range(90)]
    (tmp_path / "mails.csv").write_text("body\n" + "\n".join(lines) + "\n")
    run_cli("ingest", tmp_path / "mails.csv", tmp_path / "mails.zarr", "--text", "body", "--unlabelled")
    (tmp_path / "like.txt").write_text("agenda of the meeting\nnotes of a meeting\n\n")
    store = coremargin.Store.open(tmp_path / "mails.zarr")
    found = similar_rows(store, tmp_path / "like.txt")
    assert {row % 3 for row in found} == {1}
    (tmp_path / "like.csv").write_text('body\n"agenda of the meeting"\n"notes of a meeting"\n')
    assert similar_rows(store, tmp_path / "like.csv") == found
    out = tmp_path / "c"
    run_cli("active", "start", store.path, "--out", out, "--classes", "a,b", "--like", tmp_path / "like.txt")
    assert Campaign(out).status["like"] == found


def test_bad_examples_are_refused_and_nothing_is_made(rows: np.ndarray, tmp_path: Path) -> None:
    """Numbers of no row, other features, rows without direction, texts where there are none."""
    store = store_of(rows, tmp_path / "rows.zarr")
    (tmp_path / "texts.txt").write_text("agenda\n")
    np.save(tmp_path / "nan.npy", np.where(np.eye(FEATURES) > 0, np.nan, 1.0))
    cases: list[tuple[Any, type[CoremarginError], str]] = [
        ([ROWS], UsageError, "expected numbers of rows from 0 to 899, found 900"),
        ([-1], UsageError, "expected numbers of rows"),
        ([True], UsageError, "expected numbers of rows"),
        ([], UsageError, "expected 1 to 10,000 rows"),
        ([5], DataError, "found zeros only"),
        (np.stack([rows[0], -rows[0]]), DataError, "the directions of these rows cancel"),
        (rows[:2, :5], DataError, "5"),
        (tmp_path / "texts.txt", UsageError, "needs a store that was made of one column of texts"),
        (tmp_path / "nan.npy", DataError, "nan"),
        (tmp_path / "none.npy", CoremarginError, "none.npy"),
        ("hdfs://bucket/rows.npy", UsageError, "hdfs:// is not supported yet"),
        ("s3://bucket/texts.txt", UsageError, "s3:// is not supported yet"),
    ]
    for like, error, text in cases:
        with pytest.raises(error, match=text):
            Campaign.create(tmp_path / "c", store.path, classes=[0, 1], like=like)
        assert not (tmp_path / "c").exists()


def test_a_changed_list_of_rows_is_rejected(rows: np.ndarray, tmp_path: Path) -> None:
    """The log continues from the bytes of the campaign's file; rows beyond the store, or twice, are refused."""
    store = store_of(rows, tmp_path / "rows.zarr")
    with Campaign.create(tmp_path / "c", store.path, classes=[0, 1], like=[7]) as campaign:
        row = campaign.ask()[0].row
        campaign.tell([row], [1])
    file = tmp_path / "c" / "campaign.toml"
    text = file.read_text()
    for before, after in (
        (f"    {row},\n", ""),
        (f"    {row},\n", "    900,\n"),
        (f"    {row},\n", f"    {row},\n" * 2),
    ):
        assert before in text
        file.write_text(text.replace(before, after, 1))
        with pytest.raises(CoremarginError):
            Campaign(tmp_path / "c")
