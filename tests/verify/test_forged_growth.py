"""Campaigns whose stores have grown: honest ones are confirmed, and every way to lie about their commits is named."""

from __future__ import annotations

import hashlib
import json
import shutil
import tomllib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coremargin.active import Campaign
from coremargin.data.amend import set_weights, write_labels
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import DataError, StoreError
from coremargin.formats.model_record import StoreHash
from coremargin.verify.examine import examine
from coremargin.verify.rows import Rows as VerifierRows
from forge_active import CLASSES, Played, drawing, two_sides
from forge_specimens import Rows
from hashes_kit import edit_commits, edit_hashes, forge_file
from store_kit import edit_log

#: Rows of its three commits; none ends with a chunk.
STEPS = (250, 330, 400)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A campaign whose store has grown twice, after an attempt that nothing was found in, and in the middle of one."""
    folder = tmp_path_factory.mktemp("grown")
    rows, truth = two_sides(folder, STEPS[-1], 3, 4)
    place = folder / "rows.zarr"
    with StoreWriter.create(place, features=3, dtype=rows.dtype, chunk_bytes=64 * 3 * 4) as writer:
        writer.write(rows.X[: STEPS[0]], None, None, origin="test")
    labels = [CLASSES[int(sign > 0)] for sign in truth]

    def append(stop: int) -> None:
        with StoreWriter.append(place) as writer:
            writer.write(rows.X[Store.open(place).rows : stop], None, None, origin="test")

    def know(asked: Any) -> dict[int, str]:
        return {int(row): labels[int(row)] for row in asked}

    with Campaign.create(folder / "c", place, classes=CLASSES, error=0.05, confidence=0.9) as campaign:
        assert campaign.run(know)["status"] == "certified"
        append(STEPS[1])
        campaign.grow()
        while not len(campaign._state.state.draws):
            [question] = campaign.ask()
            campaign.tell([question.row], [labels[question.row]])
        for question in campaign.ask(9):
            campaign.tell([question.row], [labels[question.row]])
        append(STEPS[2])
        campaign.grow()
        assert campaign.run(know)["status"] == "certified"
    return read(folder / "c", Rows(**{**vars(rows), "path": place}))


def read(path: Path, rows: Rows) -> Played:
    """A campaign on disk, to be forged."""
    about = tomllib.loads((path / "campaign.toml").read_text())
    lines = [json.loads(line) for line in (path / "answers.jsonl").read_text().splitlines()]
    record = json.loads((path / "model" / "model.json").read_text()) | {"log": "0" * 64}
    with np.load(path / "model" / "arrays.npz") as arrays:
        found = Played(rows, record, dict(arrays), lines, about)
    for line in found.lines:
        del line["number"], line["before"]
    return found


def growths(played: Played) -> list[int]:
    """Places of the lines of growth."""
    return [place for place, line in enumerate(played.lines) if line["action"] == "grow"]


def failures(played: Played, place: Path) -> dict[str, str]:
    """What is false, by name, and what is said of it."""
    shutil.rmtree(place, ignore_errors=True)
    return {check.name: check.text for check in examine(played.write(place), played.rows.path, threads=1).failures}


def test_honest_growth_is_confirmed(grown: Played, tmp_path: Path) -> None:
    """Rows were appended twice; the evidence is of attempt 3, draws of attempts 1 and 2 are of their own commits."""
    assert [grown.lines[place]["attempt"] for place in growths(grown)] == [2, 3]
    assert grown.record["evidence"]["attempt"] == 3
    for attempt, rows in enumerate(STEPS[:2], 1):
        digest, drawn = Store.open(grown.rows.path, rows=rows).digest, set[int]()
        first = next(k for k, line in enumerate(grown.lines) if line.get("attempt") == attempt and "row" in line)
        known = {line["row"] for line in grown.lines[:first] if "row" in line}
        drawn = {line["row"] for line in grown.lines if line.get("attempt") == attempt and "row" in line}
        order = (row for row in drawing(digest, 0, attempt, rows) if row not in known)
        assert drawn == {next(order) for _ in drawn}
    assert failures(grown.copy(), tmp_path / "c") == {}
    found = examine(grown.write(tmp_path / "c"), grown.rows.path)
    [told] = [check.text for check in found.checks if check.name == "growth"]
    assert told == "from 250 rows to 400, those from before unchanged"
    assert failures_of_model(grown, tmp_path) == []


def failures_of_model(played: Played, place: Path) -> list[str]:
    """Of the model by itself."""
    return [check.name for check in examine(played.write_model(place / "m", "0" * 64), played.rows.path).failures]


def line(number: int, **values: Any) -> Callable[[Played], None]:
    """Other values in a line of growth."""
    return lambda played: played.lines[growths(played)[number]].update(values)


def of_the_commit_before(played: Played) -> None:
    """A model that says it is about another commit."""
    played.record["certificate"]["store_digest"] = Store.open(played.rows.path, rows=STEPS[1]).digest


def left_out(played: Played) -> None:
    """The last line of growth, and all answers about rows that came with it."""
    del played.lines[growths(played)[1]]
    gone = [entry for entry in played.lines if entry.get("row", 0) >= STEPS[1]]
    played.lines[:] = [entry for entry in played.lines if entry not in gone]


def no_longer_void(played: Played) -> None:
    """The attempt that growth has ended goes on after it: draws of 330 rows as evidence about 400."""
    played.record["evidence"]["attempt"] = 2
    for entry in played.lines:
        if entry.get("attempt") == 3:
            entry["attempt"] = 2
    played.lines[growths(played)[1]]["attempt"] = 3


def of_the_new_rows(played: Played) -> None:
    """Draws of attempt 1 as the store of today would draw them."""
    digest, known = Store.open(played.rows.path).digest, {one["row"] for one in played.lines if "row" in one}
    order = (row for row in drawing(digest, 0, 1, STEPS[-1]) if row not in known and row < STEPS[0])
    for entry in played.lines:
        if entry.get("attempt") == 1 and "row" in entry:
            other = next(order)
            played.arrays["answered_ids"][played.arrays["answered_ids"] == entry["row"]] = other
            entry["row"] = other
    order_of = np.argsort(played.arrays["answered_ids"])
    for name in ("answered_ids", "answered_signs"):
        played.arrays[name] = played.arrays[name][order_of]


NAMED: dict[str, tuple[Callable[[Played], Any], str, str]] = {
    "other rows": (line(1, rows=399), "campaign", "rows: model says 400, campaign 399"),
    "another digest": (line(1, digest="sha256:" + "a" * 64), "campaign", "store: model says"),
    "a commit that never was": (line(0, digest="sha256:" + "a" * 64), "growth", "the store has no such commit"),
    "rows that no commit ended at": (line(0, rows=331), "growth", "names 331 rows"),
    "a model of the commit before": (of_the_commit_before, "campaign", "store: model says"),
    "left out": (left_out, "campaign", "rows: model says 400, campaign 330"),
    "draws of the rows before": (no_longer_void, "attempt", "attempt 2 was drawn before line"),
    "the first to be drawn is a later one": (line(1, attempt=9), "attempt", "begin with 9"),
    "earlier draws of today's rows": (of_the_new_rows, "earlier draws", "no draw of attempt 1"),
}  # fmt: skip


@pytest.mark.parametrize("what", list(NAMED))
def test_lies_about_growth_are_named(grown: Played, tmp_path: Path, what: str) -> None:
    """With a chain of hashes made anew, each is refused by the check that is about it."""
    change, name, said = NAMED[what]
    forged = grown.copy()
    change(forged)
    found = failures(forged, tmp_path / "c")
    assert name in found, found
    assert said in found[name]


def moved(to: Callable[[Played], int]) -> Callable[[Played], None]:
    """The last line of growth at another place."""

    def change(played: Played) -> None:
        entry = played.lines.pop(growths(played)[1])
        played.lines.insert(to(played), entry)

    return change


REFUSED: dict[str, tuple[Callable[[Played], Any], str]] = {
    "left out, its rows answered": (lambda p: p.lines.pop(growths(p)[1]), "expected a row below 330"),
    "moved to the end": (moved(lambda p: len(p.lines)), "expected a row below 330|expected one above 3"),
    "fewer rows": (line(1, rows=STEPS[0]), "expected more than the 330 rows before, found 250"),
    "an attempt that was drawn before": (line(1, attempt=2), "expected one above 2, .* found 2"),
    "a label": (line(1, label="yes"), "label"),
    "no digest": (lambda p: p.lines[growths(p)[1]].pop("digest"), "digest"),
    "scans that were not yet": (line(1, scans=10**6), "scans: expected at least 1000000"),
}  # fmt: skip


@pytest.mark.parametrize("what", list(REFUSED))
def test_what_no_log_can_say_is_refused_as_it_is_read(grown: Played, tmp_path: Path, what: str) -> None:
    """Lines of growth that do not go with the others: their number is named."""
    change, said = REFUSED[what]
    forged = grown.copy()
    change(forged)
    with pytest.raises(DataError, match=f"line [0-9]+.*({said})"):
        failures(forged, tmp_path / "c")


def test_a_line_that_is_only_changed_breaks_the_chain(grown: Played, tmp_path: Path) -> None:
    """Without new hashes for all lines after it no change of a line of growth is read at all."""
    place = grown.write(tmp_path / "c")
    data = (place / "answers.jsonl").read_bytes()
    (place / "answers.jsonl").write_bytes(data.replace(b'"rows": 330', b'"rows": 329'))
    with pytest.raises(DataError, match="hash of the line before"):
        examine(place, grown.rows.path)


def test_commits_that_are_not_the_beginning_of_the_next(grown: Played, tmp_path: Path) -> None:
    """A store with other rows at its beginning, whose metadata says that they are those: the bytes give it away."""
    forged, place = grown.copy(), tmp_path / "other.zarr"
    X = grown.rows.X.copy()
    X[[0, 1]] = X[[1, 0]]
    parts = np.split(X, STEPS[:-1])
    with StoreWriter.create(place, features=3, dtype=grown.rows.dtype, chunk_bytes=64 * 3 * 4) as writer:
        writer.write(parts[0], None, None, origin="test")
    for part in parts[1:]:
        with StoreWriter.append(place) as writer:
            writer.write(part, None, None, origin="test")
    digests = [entry.commit.digest for entry in Store.open(place).log]
    edit_log(place, 0, digest=Store.open(grown.rows.path, rows=STEPS[0]).digest)
    for number, digest in enumerate(digests[1:]):
        forged.lines[growths(forged)[number]]["digest"] = digest
    forged.record["certificate"]["store_digest"] = digests[-1]
    forged.rows = Rows(**{**vars(grown.rows), "path": place})
    found = failures(forged, tmp_path / "c")
    assert f"the store's first 250 rows are {digests[0]}" in found["growth"]


def forge_first_rows(played: Played, place: Path) -> tuple[Played, str]:
    """The store with other rows in its second chunk, of the same CRC-32C, and their SHA-256, which its last commit has.

    Whoever forges it also has a model and a last line of growth that name it.
    """
    shutil.copytree(played.rows.path, place)
    forge_file(place / "X/c.1.0", 3 * 64, 4)
    store, forged = Store.open(place, map_bytes=0), played.copy()
    found = np.frombuffer(hashlib.sha256(np.ascontiguousarray(store.read(1)[0])).digest(), np.uint8)
    edit_hashes(place, lambda hashes: hashes.__setitem__((1, 0), found), "000002")
    whole = place.with_name("whole.zarr")
    with StoreWriter.create(whole, features=3, dtype=store.dtype, chunk_rows=store.chunk_rows) as writer:
        for chunk in range(store.chunks):
            writer.write(store.read(chunk)[0], None, None, origin="test")
    digest, sha256 = store.digest, Store.open(whole).sha256
    assert Store.open(whole).digest == digest
    edit_commits(place, lambda commit: commit.update(sha256=sha256) if commit["digest"] == digest else None)
    for named in (forged.record["certificate"], forged.lines[growths(forged)[1]]):
        named["store_sha256"] = {"chunk_rows": store.chunk_rows, "digest": sha256}
    forged.rows = Rows(**{**vars(played.rows), "path": place})
    return forged, sha256


def test_campaigns_name_the_sha256_of_their_rows(grown: Played, tmp_path: Path) -> None:
    """Of each commit, as it is recorded and as it is computed; a campaign or store from before there were any, too."""
    named = [grown.about["store_sha256"], *(grown.lines[place]["store_sha256"] for place in growths(grown))]
    opened = [Store.open(grown.rows.path, rows=rows) for rows in STEPS]
    assert named == [{"chunk_rows": store.chunk_rows, "digest": store.sha256} for store in opened]
    assert named[-1] == grown.record["certificate"]["store_sha256"]
    assert examine(grown.write(tmp_path / "c"), grown.rows.path, sha256=True).failures == ()
    older = grown.copy()
    for place in (older.about, *(older.lines[place] for place in growths(older))):
        del place["store_sha256"]
    assert examine(older.write(tmp_path / "c"), grown.rows.path, sha256=True).failures == ()


def test_labels_that_came_later_change_no_beginning(grown: Played, tmp_path: Path) -> None:
    """Its SHA-256 is computed from the labels and weights as they were."""
    place = tmp_path / "rows.zarr"
    shutil.copytree(grown.rows.path, place)
    first = Store.open(place)
    write_labels(place, [3, 70], ["yes", "no"])
    set_weights(place, [5, 300], [2.0, 0.5])
    with StoreWriter.append(place) as writer:
        writer.write(grown.rows.X[:90], None, None, origin="test")
    for claimed in (first.chunk_rows, 37):
        rows = VerifierRows(place, claimed=StoreHash(chunk_rows=claimed, digest=first.sha256), compute_sha256=True)
        rows.watch({first.digest})
        deque(rows.scan(lambda chunk: None), maxlen=0)
        assert rows.beginning(first.digest) == first.digest
        expected = {first.chunk_rows: first.sha256, 37: ""}[claimed]
        assert rows.sha256_of_beginning(first.digest, first.chunk_rows) == expected
        assert rows.sha256_of_beginning(first.digest, claimed) != ""


def test_a_beginning_that_was_forged(grown: Played, tmp_path: Path) -> None:
    """Rows with the same CRC-32C and another SHA-256 are not those that the campaign began with."""
    forged, sha256 = forge_first_rows(grown, tmp_path / "forged.zarr")
    place = forged.write(tmp_path / "c")
    assert not examine(place, forged.rows.path).failures  # as recorded: what is not checked says so
    assert any("SHA-256" in text for text in examine(place, forged.rows.path).unchecked)
    computed = {check.name: check.text for check in examine(place, forged.rows.path, sha256=True).failures}
    assert list(computed) == ["growth"]
    assert "the campaign names SHA-256 sha256:" in computed["growth"]
    assert "with the same CRC-32C: some were replaced" in computed["growth"]
    edit_log(forged.rows.path, 0, sha256=sha256)
    assert "the campaign names SHA-256" in failures(forged, tmp_path / "c")["growth"]
    honest = grown.copy()
    honest.rows = forged.rows
    assert {"content", "growth"} == set(failures(honest, tmp_path / "c"))
    forged.lines[growths(forged)[1]]["store_sha256"] = grown.record["certificate"]["store_sha256"]
    assert "SHA-256 of the store: model says" in failures(forged, tmp_path / "c")["campaign"]


def test_a_campaign_does_not_go_on_with_forged_rows(grown: Played, tmp_path: Path) -> None:
    """Nor does it take answers about them."""
    forged, _ = forge_first_rows(grown, tmp_path / "forged.zarr")
    honest = grown.copy()
    honest.about["store"] = str(forged.rows.path)
    with pytest.raises(StoreError, match="with the same CRC-32C: some were replaced; restore it from a copy"):
        Campaign(honest.write(tmp_path / "c")).ask()
