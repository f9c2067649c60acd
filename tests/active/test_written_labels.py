"""Answers of a campaign become labels of its store: a commit of their own, which the campaign does not mind."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from filelock import FileLock

from campaign_kit import CLASSES, rows_and_labels, same_state, unlabelled
from coremargin.active import Campaign
from coremargin.cli import main
from coremargin.data.amend import write_labels
from coremargin.data.check import check_store
from coremargin.data.place import Place
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import Busy, LabelError, OutputError, StoreError
from coremargin.verify import verify

X, LABELS = rows_and_labels(700)
FIRST = 500


def know(rows: Any) -> dict[int, str]:
    """Somebody who knows all labels."""
    return {int(row): LABELS[int(row)] for row in rows}


def labels_of(store: Store) -> list[Any]:
    """The label of each row."""
    codes = np.concatenate([store.labels(chunk) for chunk in range(store.chunks)])
    return [None if code < 0 else store.classes[code] for code in codes]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """500 rows without labels; the last chunk is not full."""
    return unlabelled(tmp_path / "rows.zarr", X[:FIRST])


@pytest.fixture
def campaign(tmp_path: Path, store: Path) -> Campaign:
    """A campaign about them that asks for little proof."""
    return Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05)


def test_answers_become_labels_once(campaign: Campaign, store: Path) -> None:
    """The rows that were answered have their answers as labels, all others none; a second time there is no commit."""
    campaign.run(know, most=30)
    before = Store.open(store)
    found = campaign.write_labels()
    answered = campaign._state.log.current.labels
    assert (found.given, found.added, found.replaced) == (len(answered), len(answered), 0)
    after = Store.open(store)
    assert (after.digest, after.rows, after.classes) == (found.digest, FIRST, CLASSES)
    assert labels_of(after) == [answered.get(row) for row in range(FIRST)]
    assert labels_of(Store.open(store, digest=before.digest)) == [None] * FIRST
    again = campaign.write_labels()
    assert (again.changed, again.digest, Store.open(store).commits) == (0, found.digest, 2)
    assert check_store(store).whole


@pytest.mark.slow
def test_the_campaign_goes_on_with_its_own_commit(campaign: Campaign, store: Path, tmp_path: Path) -> None:
    """Labels written in the middle, and twice, change neither questions nor proof, which is of the old commit."""
    alone = Campaign.create(
        tmp_path / "alone", unlabelled(tmp_path / "alone.zarr", X[:FIRST]), classes=CLASSES, error=0.05
    )
    alone.run(know)
    campaign.run(know, most=20)
    campaign.write_labels()
    campaign.close()
    campaign = Campaign(campaign.path)
    campaign.run(know, most=40)
    campaign.write_labels()
    assert campaign.grow() == 0
    campaign.run(know)
    assert same_state(campaign, alone)
    assert campaign.status["status"] == "certified"
    first = campaign.settings.digest
    assert campaign.model.certificate.store_digest == first != Store.open(store).digest
    shown = CliRunner().invoke(main, ["verify", str(campaign.path / "model"), str(store)])
    assert (shown.exit_code, "labels and weights changed since are not checked" in shown.output) == (
        0,
        True,
    )
    with Campaign(campaign.path) as opened:
        assert opened.store.digest == first


@pytest.mark.slow
def test_growth_after_labels_were_written(campaign: Campaign, store: Path) -> None:
    """Rows appended after labels were written are growth as ever, and verify follows it, labels changed or not."""
    campaign.run(know)
    first = campaign.write_labels().given
    with StoreWriter.append(store) as writer:
        writer.write(X[FIRST:], None, None, origin="more")
    assert campaign.grow() == len(X) - FIRST
    campaign.run(know)
    verify(campaign.path / "model", store)
    found = campaign.write_labels()
    assert (found.added, found.replaced) == (found.given - first, 0)
    answered = campaign._state.log.current.labels
    assert labels_of(Store.open(store)) == [answered.get(row) for row in range(len(X))]
    verify(campaign.path / "model", store)


def test_labels_of_another_kind_and_other_labels(tmp_path: Path) -> None:
    """A row that has another label is told of and gets the answer; labels of another kind are refused, all of them."""
    wrong = [*LABELS[:FIRST]]
    store = unlabelled(tmp_path / "rows.zarr", X[:FIRST], wrong)
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05)
    asked = [question.row for question in campaign.ask(2)]
    other = ["spam" if LABELS[row] == "ham" else "ham" for row in asked]
    campaign.tell(asked[:1], [LABELS[asked[0]]])
    campaign.tell(asked[1:], other[1:])
    found = campaign.write_labels()
    assert (found.given, found.added, found.replaced) == (2, 0, 1)
    assert found.examples == ((asked[1], LABELS[asked[1]], other[1]),)
    assert labels_of(Store.open(store))[asked[1]] == other[1]
    numbers = unlabelled(tmp_path / "numbers.zarr", X[:FIRST], np.arange(FIRST) % 3)
    campaign = Campaign.create(tmp_path / "n", numbers, classes=CLASSES, error=0.05)
    campaign.run(know, most=3)
    digest = Store.open(numbers).digest
    with pytest.raises(LabelError, match=r"numbers.zarr: labels in the order given: row 0: expected a whole number"):
        campaign.write_labels()
    assert Store.open(numbers).digest == digest


@pytest.mark.specimens(1)
@pytest.mark.parametrize("then", ["undo", "unsure"])
def test_labels_of_answers_that_were_taken_back_go(campaign: Campaign, store: Path, then: str) -> None:
    """A row whose answer was taken back after its label was written has none again, and the report says so, of answers
    that were changed before, and after a growth, too; a second time there is nothing to do.
    """
    campaign.run(know, most=20)
    first, second = sorted(campaign._state.log.current.labels)[:2]
    campaign.write_labels()
    campaign.correct(second, "ham" if LABELS[second] == "spam" else "spam")
    with StoreWriter.append(store) as writer:
        writer.write(X[FIRST:], None, None, origin="more")
    campaign.grow()
    campaign.tell([FIRST + 3], [LABELS[FIRST + 3]], examples=True)
    assert (campaign.write_labels().added, labels_of(Store.open(store))[FIRST + 3]) == (1, LABELS[FIRST + 3])
    for row in (first, second, FIRST + 3):
        campaign.undo(row)
        if then == "unsure":
            campaign.skip(row, unsure=True)
    found = campaign.write_labels()
    answered = campaign._state.log.current.labels
    assert (found.given, found.added, found.replaced, found.removed) == (len(answered), 0, 0, 3)
    assert [(row, now) for row, _, now in found.examples] == [(first, None), (second, None), (FIRST + 3, None)]
    assert labels_of(Store.open(store)) == [answered.get(row) for row in range(len(X))]
    again = campaign.write_labels()
    assert (again.changed, again.digest) == (0, found.digest)
    assert check_store(store).whole


def test_labels_of_others_stay(tmp_path: Path) -> None:
    """A label that a row had when it came to the campaign stays when its answer is taken back, and so does one that
    somebody else has given it since.
    """
    had = [None] * FIRST
    store = unlabelled(tmp_path / "rows.zarr", X[:FIRST], [LABELS[0], *had[1:]])
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05)
    with StoreWriter.append(store) as writer:
        writer.write(X[FIRST:], LABELS[FIRST:], None, origin="more")
    campaign.grow()
    campaign.tell([0, 1, 2, FIRST], [LABELS[row] for row in (0, 1, 2, FIRST)], examples=True)
    assert campaign.write_labels().added == 2
    other = "ham" if LABELS[1] == "spam" else "spam"
    write_labels(store, [1], [other])
    for row in (0, 1, 2, FIRST):
        campaign.undo(row)
    found = campaign.write_labels()
    assert (found.removed, found.examples) == (1, ((2, LABELS[2], None),))
    assert labels_of(Store.open(store)) == [LABELS[0], other, *had[2:], *LABELS[FIRST:]]


def test_a_store_that_is_replaced_in_the_last_moment(
    campaign: Campaign, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other rows that take the store's place after the look, and before its lock, are given no labels."""
    campaign.run(know, most=20)
    real = Place.existing

    def replaced(path: Any) -> Place:
        with StoreWriter.create(store, features=4, overwrite=True) as writer:
            writer.write(X[200:][::-1], None)
        return real(path)

    with monkeypatch.context() as patched:
        patched.setattr(Place, "existing", replaced)
        with pytest.raises(StoreError, match="the store was replaced or changed"):
            campaign.write_labels()
    assert (labels_of(Store.open(store)), Store.open(store).commits) == ([None] * FIRST, 1)


def test_a_store_that_cannot_be_written(campaign: Campaign, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer, or a disk that is read-only, is named, and nothing is written."""
    campaign.run(know, most=5)
    before = sorted(path.name for path in store.rglob("*"))
    with StoreWriter.append(store), pytest.raises(Busy, match="rows.zarr: another writer is at work there"):
        campaign.write_labels()

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patched:
        real = FileLock.acquire
        patched.setattr(
            FileLock, "acquire",
            lambda self, *args, **kw: refused() if str(store) in self.lock_file else real(self, *args, **kw),
        )  # fmt: skip
        with pytest.raises(OutputError, match="rows.zarr: cannot be written: Read-only file system"):
            campaign.write_labels()
    assert sorted(path.name for path in store.rglob("*")) == before
    assert campaign.write_labels().added == 5


@pytest.mark.slow
def test_from_the_command_line(campaign: Campaign, store: Path, tmp_path: Path) -> None:
    """``active labels`` tells what it wrote, and that there is nothing more; ``train`` learns from those rows alone."""
    campaign.run(know)
    campaign.close()
    run = CliRunner().invoke
    answered = len(campaign._state.log.current.labels)
    told = run(main, ["active", "labels", str(campaign.path)])
    assert told.exit_code == 0, told.output
    assert f"{answered:,} rows without label got one, 0 rows had another one" in told.output
    again = json.loads(run(main, ["active", "labels", str(campaign.path), "--json"]).stdout)
    assert (again["given"], again["added"], again["replaced"], again["examples"]) == (answered, 0, 0, [])
    assert (again["digest"], again["removed"]) == (Store.open(store).digest, 0)
    trained = run(main, ["train", str(store), "--out", str(tmp_path / "m"), "--quiet"])
    assert trained.exit_code == 0, trained.output
    model = json.loads((tmp_path / "m" / "model.json").read_text())
    assert model["certificate"]["store_digest"] == again["digest"]
    verify(tmp_path / "m", store)
    shown = run(main, ["info", str(store)])
    assert f"{FIRST - answered:,} rows are unlabelled" in shown.output


def test_the_command_says_what_was_taken_back(campaign: Campaign, store: Path) -> None:
    """``active labels`` counts and names the rows that have no label any longer, and then has nothing to write."""
    campaign.run(know, most=20)
    campaign.write_labels()
    row = min(campaign._state.log.current.labels)
    campaign.undo(row)
    campaign.close()
    told = CliRunner().invoke(main, ["active", "labels", str(campaign.path)]).output
    assert "0 rows had another one, 1 row whose answer was taken back lost theirs; 19 answers there already" in told
    assert f"  row {row:,} was {LABELS[row]!r}, has none now\n" in told
    again = CliRunner().invoke(main, ["active", "labels", str(campaign.path)]).output
    assert "nothing to write" in again


def test_three_classes(tmp_path: Path) -> None:
    """Answers of several classes become labels in the order of the campaign's classes, and are trained on."""
    rng = np.random.default_rng(4)
    y = rng.permutation(np.arange(300) % 3)
    rows = (4.0 * np.eye(3)[y] + 0.3 * rng.standard_normal((300, 3))).astype(np.float32)
    store = unlabelled(tmp_path / "rows.zarr", rows)
    names = ("low", "middle", "high")
    campaign = Campaign.create(tmp_path / "c", store, classes=names, error=0.1)
    campaign.run(lambda asked: {int(row): names[y[row]] for row in asked})
    found = campaign.write_labels()
    assert found.added == found.given > 3
    written = Store.open(store)
    assert written.classes == names
    labels = labels_of(written)
    assert sum(label is not None for label in labels) == found.given
    assert all(label in (None, names[y[row]]) for row, label in enumerate(labels))
    verify(campaign.path / "model", store)
