"""Stores that grow while campaigns go on: what is proven is of all rows, and the log alone gives it again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from campaign_kit import CLASSES, forgotten, rows_and_labels, same_state, unlabelled
from coremargin.active import Campaign
from coremargin.cli import main
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.loop import Callbacks
from coremargin.errors import ClaimRefuted, Interrupted, LabelError, StoreError
from coremargin.formats.draws import drawn
from coremargin.models.registry import load
from coremargin.verify import verify

X, LABELS = rows_and_labels(900)
FIRST = 500  # rows that the store begins with


def know(rows: Any) -> dict[int, str]:
    """Somebody who knows all labels."""
    return {int(row): LABELS[int(row)] for row in rows}


def more(store: Path, stop: int = 900) -> None:
    """Append the next rows."""
    with StoreWriter.append(store) as writer:
        writer.write(X[Store.open(store).rows : stop], None, None, origin="more")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """500 rows of 4 features, without labels; the last chunk is not full."""
    return unlabelled(tmp_path / "rows.zarr", X[:FIRST])


@pytest.fixture
def campaign(tmp_path: Path, store: Path) -> Campaign:
    """A campaign about them that asks for little proof."""
    return Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05)


def growths(campaign: Campaign) -> list[dict[str, Any]]:
    """The lines of growth as they are in the file."""
    lines = (campaign.path / "answers.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["action"] == "grow"]


def holds(campaign: Campaign, rows: int) -> None:
    """What a certified campaign claims is true of so many rows, as NumPy finds it, and as ``verify`` does."""
    model = load(campaign.path / "model")
    assert (model.status, model.rows) == ("certified", rows)
    signs = np.where(np.array(LABELS[:rows]) == "spam", 1, -1)
    margins = signs * (X[:rows].astype(np.float64) @ model.w + model.b)
    assert model.certificate.lower <= margins.min()
    assert model.certificate.lower >= 0.9 * model.certificate.upper
    known = set(model.arrays()["answered_ids"].tolist())
    order = (row for row in drawn(model.store_digest, 0, model.evidence["attempt"], rows) if row not in known)
    assert [next(order) for _ in range(model.evidence["draws"])] == model.arrays()["draws_ids"].tolist()
    assert model.evidence["population"] == rows - len(known)
    assert verify(campaign.path, campaign.settings.store).ok


def test_rows_that_are_appended_while_it_goes_on(campaign: Campaign, store: Path, tmp_path: Path) -> None:
    """The next scan sees them, the proof is of all rows, and one line of the log says so; campaign.toml stays."""
    about = (campaign.path / "campaign.toml").read_bytes()
    campaign.run(know, most=5)
    more(store)
    status = campaign.run(know)
    assert (status["status"], status["rows"], status["grown"]) == ("certified", 900, 1)
    [line] = growths(campaign)
    assert (line["rows"], line["digest"], line["attempt"]) == (900, Store.open(store).digest, 1)
    assert not {"row", "label", "why"} & set(line)
    assert (campaign.path / "campaign.toml").read_bytes() == about
    holds(campaign, 900)
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


def test_nothing_is_written_of_a_store_that_stays(campaign: Campaign) -> None:
    """A log about a store that did not grow has no such line, and ``grow`` changes no byte of anything."""
    campaign.run(know)
    before = {path: path.read_bytes() for path in campaign.path.rglob("*") if path.is_file()}
    assert campaign.grow() == 0
    assert growths(campaign) == []
    assert {path: path.read_bytes() for path in campaign.path.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_campaign_that_has_ended_looks_only_when_it_is_told(campaign: Campaign, store: Path, tmp_path: Path) -> None:
    """A certified model stays what it is until ``grow``; then nothing is claimed before all rows are proven anew, the
    attempt is spent, and what was answered is not asked again.
    """
    campaign.run(know)
    holds(campaign, FIRST)
    rows = {line.row for line in campaign._state.log.lines}
    more(store)
    assert campaign.ask() == []
    assert campaign.run(know)["rows"] == FIRST
    holds(Campaign(campaign.path), FIRST)
    assert campaign.grow(who="anna") == 400
    status = campaign.status
    assert (status["status"], status["lower"], status["error_bound"], status["attempt"]) == ("running", None, None, 2)
    assert load(campaign.path / "model").status == "stopped"
    assert verify(campaign.path, store).ok
    assert growths(campaign)[0]["attempt"] == 2
    assert campaign.run(know)["status"] == "certified"
    asked = [line.row for line in campaign._state.log.lines]
    assert len(set(asked)) == len(asked) > len(rows)
    holds(campaign, 900)
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


def test_draws_that_are_out_are_void(campaign: Campaign, store: Path, tmp_path: Path) -> None:
    """Rows drawn from fewer rows are no evidence about more: with some of them answered the attempt ends; an answer to
    one of them that comes later is taken as any other, and everything holds.
    """
    while not len(campaign._state.state.draws):
        for question in campaign.ask():
            campaign.tell([question.row], [LABELS[question.row]])
    draws = campaign.ask(20)
    assert {question.why for question in campaign.ask(100, again=True)} == {"draw"}
    for question in draws[:5]:
        campaign.tell([question.row], [LABELS[question.row]])
    more(store)
    assert campaign.grow() == 400
    assert campaign._state.state.attempt == 2
    assert not len(campaign._state.state.draws)
    campaign.tell([draws[7].row], [LABELS[draws[7].row]])
    assert campaign._state.log.lines[-1].attempt == 1
    campaign.run(know)
    holds(campaign, 900)
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


@pytest.mark.specimens(1)
@pytest.mark.parametrize("scaling", ["standard", "rownorm"])
def test_scaled_rows_are_those_of_the_commit(tmp_path: Path, store: Path, scaling: Any) -> None:
    """Means and deviations are of all rows: after growth all rows in memory, answered or not, have other values."""
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05, scaling=scaling)
    campaign.run(know, most=8)
    with StoreWriter.append(store) as writer:
        writer.write(X[FIRST:] * np.float32(1.5), None, None, origin="more")
    status = campaign.run(know)
    assert (status["status"], status["rows"]) == ("certified", 900)
    model, rows = load(campaign.path / "model"), np.concatenate([X[:FIRST], X[FIRST:] * np.float32(1.5)])
    if scaling == "standard":
        assert np.allclose(model.shift, rows.mean(axis=0), atol=1e-6)
        assert np.allclose(1 / model.factor, rows.std(axis=0), rtol=1e-6)
    assert model.predict(rows).tolist() == LABELS
    assert verify(campaign.path, store).ok
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sparse", "weighted"])
def test_sparse_and_weighted_rows(tmp_path: Path, kind: str) -> None:
    """Rows that are sparse, or have weights, grow as others do: the log gives the state, and ``verify`` agrees."""
    from scipy.sparse import csr_array

    weights = np.where(np.arange(900) % 7 == 0, 0.0, 1.0) if kind == "weighted" else None
    rows: Any = csr_array(X) if kind == "sparse" else X
    place = tmp_path / "r.zarr"
    with StoreWriter.create(
        place, features=4, dtype="float32", chunk_bytes=1024, weighted=weights is not None, sparse=kind == "sparse"
    ) as writer:
        writer.write(rows[:FIRST], None, None if weights is None else weights[:FIRST], origin="test")
    campaign = Campaign.create(tmp_path / "c", place, classes=CLASSES, error=0.05)
    campaign.run(know)
    for stop in (700, 900):
        start = Store.open(place).rows
        with StoreWriter.append(place) as writer:
            writer.write(rows[start:stop], None, None if weights is None else weights[start:stop], origin="more")
        assert campaign.grow() == 200
    assert campaign.run(know)["status"] == "certified"
    assert verify(campaign.path, place).ok
    assert load(campaign.path / "model").rows == 900
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


@pytest.mark.slow
def test_new_rows_are_asked_about_drawn_and_given_as_examples(campaign: Campaign, store: Path) -> None:
    """Before the campaign has grown a new row is none of it; afterwards it is like any other."""
    campaign.run(know)
    more(store)
    with pytest.raises(Exception, match="expected a row from 0 to 499, found 800"):
        campaign.tell([800], [LABELS[800]], examples=True)
    campaign.grow()
    assert campaign.tell([800], [LABELS[800]], examples=True) == 1
    campaign.run(know)
    rows = [line.row for line in campaign._state.log.lines if line.number > growths(campaign)[0]["number"]]
    assert sum(row >= FIRST for row in rows) > 1
    assert {line.why for line in campaign._state.log.lines if line.row >= FIRST} >= {"draw", "example"}


def test_rows_that_are_appended_during_a_scan_wait_for_the_next_one(tmp_path: Path, store: Path) -> None:
    """A scan reads its own commit: rows that come while it reads belong to the next one."""
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05, memory=4000)  # so more than one
    scans: list[int] = []

    def begun(_: object, size: int) -> None:
        scans.append(size)
        if len(scans) == 1:
            more(store)

    campaign._state._callbacks = Callbacks(on_scan=begun)
    status = campaign.run(know)
    assert scans[0] == Store.open(store, rows=FIRST).nbytes < scans[-1] == Store.open(store).nbytes
    assert (status["rows"], status["grown"]) == (900, 1)
    holds(campaign, 900)


@pytest.mark.parametrize("how", ["rewritten", "shorter"])
def test_a_store_that_was_not_only_appended_to(campaign: Campaign, store: Path, tmp_path: Path, how: str) -> None:
    """Other rows, or fewer, are refused, when it grows and when it is opened; nothing is written, no answer lost."""
    campaign.run(know, most=8)
    log = (campaign.path / "answers.jsonl").read_bytes()
    shutil.rmtree(store)
    if how == "shorter":
        unlabelled(store, X[:300])
    else:
        unlabelled(store, np.concatenate([X[1:FIRST], X[:1]]))
        more(store)
    with pytest.raises(StoreError, match="the store was changed"):
        campaign.grow()
    with pytest.raises(StoreError, match="changed"):
        Campaign(campaign.path)
    assert (campaign.path / "answers.jsonl").read_bytes() == log


def test_a_store_that_lost_what_it_had_grown_by(campaign: Campaign, store: Path, tmp_path: Path) -> None:
    """A campaign that has grown does not go on with the store as it was before."""
    shutil.copytree(store, tmp_path / "before")
    campaign.run(know)
    more(store)
    campaign.grow()
    campaign.close()
    shutil.rmtree(store)
    os.rename(tmp_path / "before", store)
    with pytest.raises(StoreError, match="expected a commit of 900 rows"):
        Campaign(campaign.path)


@pytest.mark.slow
def test_growth_from_the_command_line(campaign: Campaign, store: Path, tmp_path: Path) -> None:
    """``active grow`` tells how many rows there are more, and that there are none; an oracle may name new rows."""
    campaign.run(know)
    campaign.close()
    more(store)
    path, said = str(campaign.path), CliRunner()
    found = json.loads(said.invoke(main, ["active", "grow", path, "--json", "--who", "anna"]).stdout.splitlines()[-1])
    assert (found["new_rows"], found["rows"], found["status"]) == (400, 900, "running")
    again = said.invoke(main, ["active", "grow", path])
    assert (again.exit_code, "no rows were appended" in again.stdout) == (0, True)
    oracle = tmp_path / "labels.txt"
    oracle.write_text("\n".join(LABELS) + "\n")
    run = said.invoke(main, ["active", "run", path, "--oracle", str(oracle), "--quiet"])
    assert run.exit_code == 0, run.output
    checked = said.invoke(main, ["verify", path, str(store), "--quiet"])
    assert checked.exit_code == 0, checked.output
    assert "from 500 rows to 900, those from before unchanged" in checked.stdout


@pytest.mark.specimens(1)
@pytest.mark.parametrize("rows", [FIRST, 900])
def test_an_oracle_has_a_label_for_each_row_of_either_commit(
    campaign: Campaign, store: Path, tmp_path: Path, rows: int
) -> None:
    """A list of labels for the rows that the campaign began with goes as far as it can; one for all to the end."""
    campaign.run(know, most=5)
    campaign.close()
    more(store)
    oracle = tmp_path / "labels.txt"
    oracle.write_text("\n".join(LABELS[:rows]) + "\n")
    run = CliRunner().invoke(main, ["active", "run", str(campaign.path), "--oracle", str(oracle), "--json"])
    found = json.loads(run.stdout.splitlines()[-1])
    assert (found["rows"], found["status"]) == (900, "certified" if rows == 900 else "running")
    assert all(row >= FIRST for row in found["unknown"])
    assert bool(found["unknown"]) == (rows == FIRST)
    oracle.write_text("\n".join(LABELS[:700]) + "\n")
    other = CliRunner().invoke(main, ["active", "run", str(campaign.path), "--oracle", str(oracle)])
    assert (other.exit_code, "found 700" in other.output) == (3, True)


def test_before_the_first_answer_and_with_none_of_a_class(tmp_path: Path, store: Path) -> None:
    """A campaign without answers begins with all rows; one whose answers were all the same finds the other class among
    the rows that came.
    """
    begun = Campaign.create(tmp_path / "begun", store, classes=CLASSES, error=0.05)
    one = Campaign.create(tmp_path / "one", store, classes=CLASSES, error=0.05)
    with pytest.raises(LabelError):
        one.run(lambda rows: dict.fromkeys(rows, "ham"))
    attempt = one.status["attempt"]
    more(store)
    assert begun.grow() == one.grow() == 400
    assert begun._state.state.resident.ids.max() >= FIRST
    assert same_state(begun, forgotten(begun, tmp_path / "copy"))
    assert (one.status["status"], one.status["attempt"]) == ("running", attempt + 1)
    far = int(np.argmax(X[FIRST:, 0])) + FIRST
    one.run(lambda rows: {row: "spam" if row == far else "ham" for row in rows}, most=one.status["labels"] + 1)
    one.tell([far], ["spam"], examples=True)
    assert one.status["classes"] == list(CLASSES)
    assert one.model.predict(X[[far]]).tolist() == ["spam"]


def test_a_scan_that_is_interrupted_and_rows_that_come_then(tmp_path: Path, store: Path) -> None:
    """What was read of the rows before is of no use for all of them: the next scan reads every block, and the bits are
    those that the log gives without a break.
    """
    asked = {"classes": CLASSES, "error": 0.05, "block": 1024, "cluster": "threads"}
    campaign = Campaign.create(tmp_path / "c", store, **asked)
    done: list[int] = []

    def stop(result: Any) -> None:
        done.append(result.block.index)
        if len(done) == 3:
            raise KeyboardInterrupt

    campaign._state._callbacks = Callbacks(on_block=stop)
    with pytest.raises(Interrupted):
        campaign.run(know)
    campaign.close()
    more(store)
    done.clear()
    again = Campaign(
        campaign.path, cluster="threads", watch=Callbacks(on_block=lambda one: done.append(one.block.index))
    )
    assert again.run(know)["status"] == "certified"
    assert len(set(done[:15])) == 15
    holds(again, 900)
    assert same_state(again, forgotten(again, tmp_path / "copy"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "lines"), [("learner.Learner.recompute", 0), ("campaign_state.CampaignState._move_to", 1)]
)
def test_an_interrupted_growth_is_done_again(
    campaign: Campaign, store: Path, monkeypatch: pytest.MonkeyPatch, where: str, lines: int
) -> None:
    """Interrupted before its line growth has not been; between its line and the state, it is made up for by whatever
    comes next.
    """
    campaign.run(know, most=8)
    more(store)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"coremargin.active.{where}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            campaign.grow()
    assert len(growths(campaign)) == lines
    assert campaign.status["rows"] == campaign.store.rows == (900 if lines else FIRST)
    assert campaign.grow() == (0 if lines else 400)
    assert len(growths(campaign)) == 1
    assert campaign.run(know)["status"] == "certified"
    holds(campaign, 900)


def flipped(path: Path) -> None:
    """Alter the last byte of a file."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("scaling", [None, "standard"])
@pytest.mark.parametrize("asked_for", [True, False])
def test_rows_that_cannot_be_read_are_no_growth(tmp_path: Path, store: Path, scaling: Any, asked_for: bool) -> None:
    """Where the statistics of the new commit are damaged, neither ``grow`` nor a scan that is due writes a line: the
    campaign goes on with its own rows wherever those do, and with all when the store is whole again.
    """
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05, scaling=scaling)
    campaign.run(know, most=None if asked_for else 3)
    log, found = (campaign.path / "answers.jsonl").read_bytes(), campaign.status
    more(store)
    [damaged] = (store / "blocks" / "000001").glob("total/c.*" if scaling else "digest/c.*")
    whole = damaged.read_bytes()
    flipped(damaged)
    with pytest.raises(StoreError):
        campaign.grow() if asked_for else campaign.run(know)
    if asked_for:
        assert (campaign.path / "answers.jsonl").read_bytes() == log
        assert campaign.store.rows == FIRST
        campaign.close()
        campaign = Campaign(campaign.path)
        assert (campaign.status["status"], campaign.status["labels"]) == ("certified", found["labels"])
    assert growths(campaign) == []
    assert campaign.stop()
    assert verify(campaign.path, store).ok
    damaged.write_bytes(whole)
    assert campaign.run(know)["status"] == "certified"
    assert campaign.grow() == (400 if asked_for else 0)
    campaign.run(know)
    assert verify(campaign.path, store).ok
    if scaling is None:
        holds(campaign, 900)


@pytest.mark.slow
def test_scans_on_workers(tmp_path: Path, embedded: Any) -> None:
    """Scans by two processes of a store that grows leave the same bits as scans in this one."""
    both = []
    for name in ("alone", "shared"):
        place = unlabelled(tmp_path / f"{name}.zarr", X[:FIRST])
        campaign = Campaign.create(tmp_path / name, place, classes=CLASSES, error=0.05, block=4096, memory=4000)
        if name == "shared":
            campaign._state._executor = embedded
        campaign.run(know)
        more(place)
        campaign.grow()
        assert campaign.run(know)["status"] == "certified"
        both.append(campaign)
    assert same_state(*both)


def test_a_model_from_before_the_store_grew_still_holds(campaign: Campaign, store: Path, tmp_path: Path) -> None:
    """Beside a log that has grown since, a model of the rows before is true, and of no use for the rows after."""
    campaign.run(know)
    known = campaign._state.log.lines
    shutil.copytree(campaign.path / "model", tmp_path / "model")
    more(store)
    campaign.grow()
    wrong = {"ham": "spam", "spam": "ham"}[LABELS[800]]
    campaign.tell([7, 800], [LABELS[7], wrong], examples=True)
    campaign.close()
    shutil.rmtree(campaign.path / "model")
    shutil.copytree(tmp_path / "model", campaign.path / "model")
    checked = verify(campaign.path, store)
    assert [check.text for check in checked.checks if check.name == "late answers"] == [
        "1 answers came after the model, and are what it says"
    ]
    assert [check.text[:14] for check in checked.checks if check.name == "log"] == [f"{len(known):,} lines, eac"]
    record = json.loads((campaign.path / "model" / "model.json").read_text())
    record["rows"] = 900
    (campaign.path / "model" / "model.json").write_text(json.dumps(record))
    with pytest.raises(ClaimRefuted, match="rows"):
        verify(campaign.path, store)
