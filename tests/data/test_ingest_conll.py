"""CoNLL files: tokens in sentences, with the features of CRFsuite's example for chunking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from coremargin.data.check import check_store
from coremargin.data.group_parts import group_parts, row_groups
from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.data.tables.conll import input_names, templates
from coremargin.errors import DataError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "the DT B\ncat NN I\nsat VB O\n\n\nthe DT B\ndog NN I\n \nsat VB O\nthe DT B\n"


def expected_features(text: str) -> list[set[str]]:
    """The attributes of each token, written down as CRFsuite's example has them."""
    found = []
    for sentence in text.replace("\n \n", "\n\n").strip().split("\n\n"):
        tokens = [line.split() for line in sentence.strip().split("\n")]

        def at(place: int, column: int, tokens: list[list[str]] = tokens) -> str:
            return "<s>" if place < 0 else "</s>" if place >= len(tokens) else tokens[place][column]

        for here in range(len(tokens)):
            row = {f"word[{d}]={at(here + d, 0)}" for d in range(-2, 3)}
            row |= {f"tag[{d}]={at(here + d, 1)}" for d in range(-2, 3)}
            row |= {f"word[{d}]|word[{d + 1}]={at(here + d, 0)}|{at(here + d + 1, 0)}" for d in (-1, 0)}
            row |= {f"tag[{d}]|tag[{d + 1}]={at(here + d, 1)}|{at(here + d + 1, 1)}" for d in range(-2, 2)}
            row |= {
                f"tag[{d}]|tag[{d + 1}]|tag[{d + 2}]={at(here + d, 1)}|{at(here + d + 1, 1)}|{at(here + d + 2, 1)}"
                for d in range(-2, 1)
            }
            found.append(row)
    return found


def features_of(store: Store) -> list[set[str]]:
    """Names of the features of each row."""
    assert store.columns is not None
    names = np.array(list(store.columns.features))
    return [
        {str(name) for name in names[np.flatnonzero(row)]}
        for chunk in range(store.chunks)
        for row in store.read(chunk)[0].toarray()
    ]


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_tokens_have_the_features_of_their_window(tmp_path: Path, separator: str) -> None:
    """Values that occur twice have a feature; others share one; sentences are groups."""
    (tmp_path / "a.txt").write_text(TEXT.replace(" ", separator).replace(f"\n{separator}\n", "\n\n"))
    ingest(tmp_path / "a.txt", tmp_path / "a.zarr", format="conll", sparse=True)
    store, wanted = Store.open(tmp_path / "a.zarr"), expected_features(TEXT)
    counts = {name: sum(name in row for row in wanted) for row in wanted for name in row}
    shown = [{name if counts[name] > 1 else f"{name.split('=')[0]} (other)" for name in row} for row in wanted]
    assert features_of(store) == shown
    assert [name for chunk in range(store.chunks) for name in row_groups(store, chunk)] == [*"00011", *"22"]
    assert [store.classes[code] for code in store.labels(0)] == list("BIOBIOB")
    assert check_store(tmp_path / "a.zarr").whole


def test_appended_and_unlabelled_files_have_the_columns_of_the_store(tmp_path: Path) -> None:
    """Unknown words share a feature; numbers of sentences go on; no format has to be named."""
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_text("-DOCSTART- X O\n\nbird NN I\nthe DT B\n\nsat VB O\n")
    (tmp_path / "c.txt").write_text("bird NN\nthe DT\n\nsat VB\n")
    ingest(tmp_path / "a.txt", tmp_path / "a.zarr", format="conll", sparse=True)
    before = Store.open(tmp_path / "a.zarr")
    ingest(tmp_path / "b.txt", tmp_path / "a.zarr", append=True)
    store = Store.open(tmp_path / "a.zarr")
    ids = [name for chunk in range(store.chunks) for name in row_groups(store, chunk)]
    assert ids == [*"0001122", *"334"]
    assert "word[0] (other)" in features_of(store)[7]
    ingest(tmp_path / "c.txt", tmp_path / "c.zarr", columns=before.columns, unlabelled=None, sparse=True)
    alone = Store.open(tmp_path / "c.zarr")
    assert features_of(alone) == features_of(store)[7:]
    assert alone.classes == ()
    assert [len(part.offsets) - 1 for part in group_parts(alone, range(alone.chunks))] == [2]
    with pytest.raises(DataError, match=r"a.txt, line 1: found 3 columns, expected 2|expected 4"):
        ingest([tmp_path / "c.txt", tmp_path / "a.txt"], tmp_path / "d.zarr", format="conll")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("the DT B\ncat NN\n", {}, r"a.txt, line 2: found 2 columns, expected 3 as in the first line"),
        ("\n\n \n", {}, r"a.txt: no rows: expected a token in each line"),
        ("the\ncat\n", {}, r"a.txt, line 1: found 1 columns, expected 2"),
        (TEXT, {"label": "x"}, r"--label does not apply to .*a CoNLL file"),
        (TEXT, {"group": "x"}, r"--group does not apply to .*a CoNLL file"),
        (TEXT, {"only": ["B"]}, r"--only cannot be combined with groups"),
        (TEXT, {"categorical": "word[0]"}, r"do not apply to .*a CoNLL file"),
    ],
)
def test_bad_files_and_options_are_refused(tmp_path: Path, text: str, options: dict[str, object], message: str) -> None:
    """With file and line."""
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises((DataError, UsageError), match=message):
        ingest(tmp_path / "a.txt", tmp_path / "a.zarr", format="conll", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "a.zarr").exists()


def test_sentences_may_lie_across_pieces_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same store, however many bytes are read at a time."""
    rng = np.random.default_rng(0)
    lines = [
        f"w{rng.integers(30)} t{rng.integers(5)} {'BIO'[rng.integers(3)]}\n" + "\n" * int(rng.random() < 0.2)
        for _ in range(400)
    ]
    (tmp_path / "a.txt").write_text("".join(lines))
    digests = set()
    for size in (64, 1000, 1 << 20):
        monkeypatch.setattr("coremargin.data.sources.text._READ", size)
        monkeypatch.setattr("coremargin.data.tables.conll._PIECE_BYTES", size)
        ingest(tmp_path / "a.txt", tmp_path / f"{size}.zarr", format="conll")
        digests.add(Store.open(tmp_path / f"{size}.zarr").digest)
    assert len(digests) == 1


def test_names_of_columns() -> None:
    """19 features of words and one column of tags, as in CRFsuite's example."""
    assert input_names(3) == ["word", "tag", "tag2"]
    assert len(templates(["word", "tag"])) == 19
    assert templates(["word"])[-1] == "word[0]|word[1]"
