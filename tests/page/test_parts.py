"""What the page is made of: addresses, images, texts beside the store, words, and a page that is opened twice."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from campaign_kit import CLASSES, rows_and_labels, unlabelled
from coremargin.active import Campaign
from coremargin.active.status import Forecast
from coremargin.data.store import Store
from coremargin.errors import Busy, DataError, UsageError
from coremargin.page import texts
from coremargin.page.row_view import MOST_BYTES, RowView, drawn, read_picture, values_of
from coremargin.page.server import FILE, as_json
from coremargin.serve.access import open_listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

X, _ = rows_and_labels(40, 6)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """40 rows of 6 features."""
    return Store.open(unlabelled(tmp_path_factory.mktemp("rows") / "rows.zarr", X))


def png(width: int, height: int) -> bytes:
    """The beginning of one that says that it is so large."""
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\0\0\0\0"


JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc2\x00\x0b\x08\x00\x05\x00\x07"
WEBP = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0" + bytes([6, 0, 0, 4, 0, 0])


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(7, 5), "image/png"), (JPEG, "image/jpeg"), (b"GIF89a\x07\0\x05\0", "image/gif"), (WEBP, "image/webp"),
        (b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x06\x00\x01\x00", "image/webp"),
        (b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x07\0\x05\0", "image/webp"),
    ],
)  # fmt: skip
def test_images_are_known_by_what_is_in_them(tmp_path: Path, data: bytes, kind: str) -> None:
    """Not by their names: a PNG, JPEG, GIF or WebP is served as what it is."""
    (tmp_path / "a").write_bytes(data)
    assert read_picture(tmp_path / "a") == (kind, data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "expected an image, found nothing there"),
        (b"", "expected a PNG, JPEG, GIF or WebP"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", "expected a PNG, JPEG, GIF or WebP"),
        (b"<html>GIF89a", "expected a PNG, JPEG, GIF or WebP"),
        (b"\xff\xd8\xff\xe0", "expected a PNG, JPEG, GIF or WebP"),
        (b"RIFF\0\0\0\0WEBPVP8X", "expected a PNG, JPEG, GIF or WebP"),
        (png(100_000, 100_000), "expected at most 50,000,000 pixels, found 100,000 x 100,000"),
        (png(1, 1) + b"\0" * MOST_BYTES, "expected an image of at most 32 MiB"),
    ],
)
def test_images_that_are_none_or_huge(tmp_path: Path, data: bytes | None, message: str) -> None:
    """Missing, something else, a program, a bomb: each is said, and nothing of it is served."""
    if data is not None:
        (tmp_path / "a.png").write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_picture(tmp_path / "a.png")


def test_features_as_an_image() -> None:
    """The smallest value is black, the largest white, what is no number black; three values a pixel are its colour."""
    kind, data = drawn(np.array([0.0, 1.0, 2.0, np.nan, 4.0, 4.0]), (2, 3))
    assert kind == "image/png"
    start = data.index(b"IDAT") + 4
    size = int.from_bytes(data[start - 8 : start - 4], "big")
    assert zlib.decompress(data[start : start + size]) == bytes([0, 0, 64, 128, 0, 0, 255, 255])
    assert drawn(np.full(12, 3.0), (2, 2, 3)).data[25] == 2  # in colour, and no division by nothing
    assert data.endswith(struct.pack(">I", zlib.crc32(b"IEND")))


def test_texts_beside_the_store(tmp_path: Path) -> None:
    """Lines, a column, a column of some rows: each row has its own, and a file of too few is refused."""
    (tmp_path / "a.txt").write_bytes("eins\r\nzwei \u2028 noch\n\nvier".encode())
    lines = values_of(str(tmp_path / "a.txt"), 4, "--text")
    assert [lines.get(k) for k in range(-1, 5)] == [None, "eins", "zwei \u2028 noch", "", "vier", None]
    (tmp_path / "a:b.csv").write_text('row,t\n9,"x\ny"\n2,z\n')
    some = values_of(f"{tmp_path / 'a:b.csv'}:t", 40, "--text")
    assert [some.get(k) for k in (9, 2, 3)] == ["x\ny", "z", None]
    pq.write_table(pa.table({"t": ["p", None]}), tmp_path / "t.parquet")
    every = values_of(f"{tmp_path / 't.parquet'}:t", 2, "--text")
    assert [every.get(k) for k in (0, 1, 2)] == ["p", None, None]
    (tmp_path / "t.tsv").write_text("row\tt\nx\ty\n")
    wrong: list[tuple[str, int, type[Exception], str]] = [
        ("a.txt", 5, DataError, "expected an entry for each of the 5 rows, found 4"),
        ("none.txt", 1, UsageError, "found nothing at"),
        ("t.parquet", 2, UsageError, "expected the name of a column"),
        ("t.parquet:u", 2, DataError, "expected a column 'u', found t"),
        ("t.parquet:t", 3, DataError, "expected an entry for each of the 3 rows, found 2"),
        ("t.tsv:t", 1, DataError, "row: expected whole numbers"),
    ]
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    wrong.append(("broken.parquet:t", 1, DataError, "expected a table, cannot be read"))
    for name, rows, error, message in wrong:
        with pytest.raises(error, match=message):
            values_of(str(tmp_path / name), rows, "--text")


def test_what_is_shown_of_a_row(tmp_path: Path, store: Store) -> None:
    """By nothing else its features; where a text or an image is missing that is said, and its features are shown."""
    plain = RowView(store).content(3)
    assert plain["features"][0] == ("feature 0", f"{X[3, 0]:.6g}")
    assert (len(plain["features"]), plain["more"], plain["zeros"]) == (6, 0, 0)
    (tmp_path / "t.csv").write_text(f"row,t\n3,<b>{'x' * 30_000}\n")
    texts = RowView(store, text=f"{tmp_path / 't.csv'}:t")
    found = texts.content(3)
    assert (found["text"][:4], len(found["text"]), found["cut"]) == ("<b>x", 20_000, True)
    assert texts.content(4)["missing"] == ["expected a text for row 4, found none"]
    assert len(texts.content(4)["features"]) == 6
    (tmp_path / "3.gif").write_bytes(b"GIF89a\x07\0\x05\0")
    images = RowView(store, image=str(tmp_path / "{row}.gif"))
    assert images.content(3) == {"row": 3, "missing": [], "image": "image/3", "pixels": False}
    assert "found nothing there" in images.content(4)["missing"][0]
    assert RowView(store, pixels="2x3").content(0)["image"] == "image/0"
    with pytest.raises(DataError, match="found a campaign that shows none"):
        RowView(store).picture(3)


def test_a_table_names_images_beside_it_only(tmp_path: Path, store: Store) -> None:
    """A path that leads elsewhere, by dots, from the root, or by a link, is not followed; nor is one that is none."""
    inside = tmp_path / "in"
    inside.mkdir()
    for place in (tmp_path / "secret.gif", inside / "a.gif"):
        place.write_bytes(b"GIF89a\x07\0\x05\0")
    (inside / "link.gif").symlink_to(tmp_path / "secret.gif")
    paths = ["a.gif", "../secret.gif", str(tmp_path / "secret.gif"), "link.gif", "", "./a.gif"]
    pq.write_table(pa.table({"row": range(7), "image": [*paths, "a\0.gif"]}), inside / "t.parquet")
    shown = RowView(store, image=f"{inside / 't.parquet'}:image")
    seen = ["image" in shown.content(row) for row in range(8)]
    assert seen == [True, False, False, False, False, True, False, False]
    assert "found a path to elsewhere" in shown.content(1)["missing"][0]


@pytest.mark.parametrize("pixels", ["2x2", "0x6", "six", "2x3x4", "-2x3", "2x1x3x1"])
def test_pixels_that_do_not_fit(store: Store, pixels: str) -> None:
    """A shape of another number of features, or none, is refused."""
    with pytest.raises(UsageError, match="--pixels: expected"):
        RowView(store, pixels=pixels)


def test_json_begins_no_tag() -> None:
    """Nothing in what a browser is told can end a script or begin a tag, whoever puts it where."""
    assert as_json({"a": "</script>&"}) == b'{"a":"\\u003c/script\\u003e\\u0026"}'


def test_a_page_is_opened_once(tmp_path: Path, run_cli: Callable[..., Result]) -> None:
    """A second one says where the first is, and does no harm to it."""
    from coremargin.page.server import _PageLock

    begun = Campaign.create(tmp_path / "c", unlabelled(tmp_path / "rows.zarr", X), classes=CLASSES)
    begun.close()
    address, listener = open_listener(begun.path / FILE, None)
    listener.close()
    with _PageLock(begun.path):
        refused = run_cli("active", "page", begun.path, exit_code=Busy.exit_code)
    assert f"its page is open already at {address.url}" in refused.stderr
    with _PageLock(begun.path):
        pass


STATUS: dict[str, Any] = {
    "status": "running", "labels": 4, "rows": 100, "evidence": None, "parameters": {"error": 0.05}, "unsure": 0,
    "expected": None, "like": [],
    "confidence": 0.9, "loss": None, "upper": 1.0, "lower": None, "ratio": None, "draws_done": 2, "draws_open": 3,
    "attempt": 1, "contradiction": [], "reason": "it goes on", "out": "c",
}  # fmt: skip


def test_what_the_page_says() -> None:
    """Why a row is asked about, how many are still to come, what is proven: and where there is none, that."""
    assert "Draw 3 of 5 of attempt 1" in texts.reason("draw", None, STATUS)
    assert texts.reason("query", (0.12, 0.3), STATUS).startswith("It lies 0.12 from the boundary, within the 0.3")
    assert texts.reason("query", (0.4, 0.3), STATUS) == "It lay near the boundary when it was chosen."
    assert texts.reason("start", None, STATUS).startswith("Until rows of every class are known")
    assert texts.reason("start", None, {**STATUS, "like": [3]}).startswith("The rows most similar to the examples")
    facts = texts.facts(STATUS, Forecast(30, 12), 1)
    assert facts[:2] == [
        ["Answers", "5", "of 100 rows"],
        ["Still to come", "about 42", "12 near the boundary, 30 drawn by lot, if none is wrong"],
    ]
    assert facts[2:] == [
        ["Wrong labels", "not known yet", "asked for: at most 5 %"],
        ["Margin", "not known yet", "all rows are looked at before it is"],
    ]
    shown = {**STATUS, "ratio": 0.953125, "lower": 0.953125}
    assert texts.facts(shown, Forecast(3, 0), 0)[1][1] == "3"
    assert texts.facts(shown, Forecast(3, 0), 0)[-1][1] == "95.31 % of the best"
    evidence = {"population": 96, "error_bound": 4, "draws": 30, "wrong": 0}
    certified = {**STATUS, "status": "certified", "evidence": evidence}
    assert texts.facts(certified, Forecast(0, 0), 0)[1] == ["Wrong labels", "at most 4 (4.17 %)", "confidence 0.9"]
    assert texts.ended(STATUS) is None
    assert "is proven by 4 answers: at most 4 (4.17 %) of the 96 rows" in str(texts.ended(certified))
    against = {**STATUS, "status": "contradiction", "contradiction": [{"row": 7, "label": "ham"}]}
    assert "contradict each other" in str(texts.ended(against))
    assert "7 (ham)" in str(texts.ended(against))
