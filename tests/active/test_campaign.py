"""Campaigns: what they ask, what they claim, and that the log alone gives all of it again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from campaign_kit import CLASSES, forgotten, rows_and_labels, same_state, state_of, unlabelled
from coremargin.active import Campaign
from coremargin.active.answer_files import oracle_of
from coremargin.active.status import status_without_state
from coremargin.blas import one_blas_thread
from coremargin.cli.campaign_status import status_text
from coremargin.data.owned import Kind
from coremargin.data.scaled import scaled
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.checkpoint import Checkpoint, NoCheckpoint
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import Callbacks, Engine, rounds
from coremargin.errors import DataError, Interrupted, LabelError
from coremargin.formats.draws import drawn
from coremargin.maths.evidence import most_wrong, share_of
from coremargin.models.registry import load
from coremargin.problems.active.problem import problem_of
from coremargin.problems.active.strategies import Coreset, Slab
from coremargin.verify import verify

X, LABELS = rows_and_labels()
ORACLE = dict(enumerate(LABELS))


def know(rows: Any) -> dict[int, str]:
    """Somebody who knows all labels."""
    return {int(row): ORACLE[int(row)] for row in rows}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """600 rows of 4 features, in ten chunks, without labels."""
    return unlabelled(tmp_path / "rows.zarr", X)


@pytest.fixture
def campaign(tmp_path: Path, store: Path) -> Campaign:
    """A campaign about them that asks for little proof."""
    return Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05)


def test_a_campaign_is_the_problem_driven_by_hand(campaign: Campaign) -> None:
    """Asked one by one, the same rows are answered and the hypothesis has the same bits as without a campaign."""
    asked: list[int] = []

    def answer(questions: Any) -> dict[int, int]:
        asked.append(questions[0])
        return {questions[0]: CLASSES.index(ORACLE[questions[0]])}

    job = campaign._state.job
    problem = problem_of(job, scaled(Store.open(job.store), None))
    engine = Engine(problem.source, InProcess(), NoCheckpoint(), Callbacks(), job.block, answer=answer)
    with one_blas_thread():
        state = problem.start()
        for step in rounds(engine, problem, state):
            state = step.state
    assert campaign.run(know)["status"] == "certified" == state.status
    assert [line.row for line in campaign._state.log.lines] == asked
    known = state_of(campaign)
    assert all(known[name].tobytes() == values.tobytes() for name, values in state.to_arrays().items())
    assert campaign.model.w.tobytes() == state.hypothesis.w[0].tobytes()


def test_what_is_claimed_is_true(campaign: Campaign) -> None:
    """Margin and best margin are those that NumPy finds with all labels; the draws are the rows that the store's digest
    says, all answered as the model says; no row is asked about twice.
    """
    status = campaign.run(know)
    model = load(campaign.path / "model")
    signs = np.where(np.array(LABELS) == "spam", 1, -1)
    margins = signs * (X.astype(np.float64) @ model.w + model.b)
    assert status["lower"] <= margins.min() <= status["upper"] * (1 + 1e-9)
    assert status["lower"] >= 0.9 * status["upper"]
    counts = Counter(line.row for line in campaign._state.log.lines)
    assert set(counts.values()) == {1}
    evidence, arrays = model.evidence, model.arrays()
    known = set(arrays["answered_ids"].tolist())
    order = (row for row in drawn(model.store_digest, 0, evidence["attempt"], 600) if row not in known)
    assert [next(order) for _ in range(evidence["draws"])] == arrays["draws_ids"].tolist()
    assert evidence["population"] == 600 - len(known)
    share = share_of(1 - 0.99, evidence["attempt"])
    assert evidence["error_bound"] == most_wrong(evidence["population"], evidence["draws"], 0, share)
    assert evidence["error_bound"] <= 0.05 * 600
    assert model.log == campaign._state.log.last
    assert (model.answers, status["labels_asked"]) == (len(counts), len(counts))
    assert model.predict(X).tolist() == LABELS


@pytest.mark.slow
def test_the_log_alone_gives_the_state_again(store: Path, tmp_path: Path) -> None:
    """With the state lost, at any moment of a campaign with several scans, the log gives the same bits, whatever was
    answered, put off, corrected or taken back meanwhile; and so does the checkpoint.
    """
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05, memory=4000)  # some 30 rows
    rng = np.random.default_rng(3)
    wrongly = {"ham": "spam", "spam": "ham"}
    kinds = Counter[str]()
    for step in range(12):
        questions = campaign.ask(int(rng.integers(1, 9)))
        for question in rng.permutation(np.array(campaign.ask(1, again=True), object)).tolist():
            kind = rng.choice(["tell", "tell", "tell", "wrong", "skip", "unsure", "late"])
            label = ORACLE[question.row]
            if kind in ("tell", "wrong"):
                campaign.tell([question.row], [label if kind == "tell" else wrongly[label]])
            elif kind in ("skip", "unsure"):
                campaign.skip(question.row, unsure=kind == "unsure")
            kinds[str(kind)] += 1
        labels = {line.row: line.label for line in campaign._state.log.lines if line.label is not None}
        wrong = [row for row, label in campaign._state.labels.items() if label != ORACLE[row]]
        for row in wrong[: None if step % 2 else 1]:  # else the answers contradict each other before long
            if step % 3:
                campaign.correct(row, ORACLE[row])
            else:
                campaign.undo(row)
            kinds["changed"] += 1
        assert questions or labels
        if step % 3 == 0:
            campaign._state.save()
            again = forgotten(campaign, tmp_path / f"copy{step}")
            assert same_state(campaign, again)
            assert again._state.position == campaign._state.position
            assert same_state(campaign, Campaign(campaign.path))
    assert min(kinds[kind] for kind in ("tell", "wrong", "skip", "unsure", "late", "changed")) > 0
    assert len({line.scans for line in campaign._state.log.lines}) >= 3
    assert same_state(campaign, forgotten(campaign, tmp_path / "last"))


@pytest.mark.parametrize("how", ["undo", "correct", "number"])
def test_a_mistyped_label_is_taken_back(store: Path, tmp_path: Path, how: str) -> None:
    """A label that no answer holds any longer is no class: the campaign goes on to its proof with the two that are
    meant, the log alone gives its state again, and the model has their names.
    """
    campaign = Campaign.create(tmp_path / "c", store, error=0.05)
    first, second, *rest = [one.row for one in campaign.ask(6)]
    typed = 1 if how == "number" else "hma"
    campaign.tell([first, second], [typed, typed])
    campaign.undo(second)
    if how == "correct":
        campaign.tell(rest[:1], ["egg"])
        campaign.correct(rest[0], typed)
        campaign.correct(rest[0], "egg")
        campaign.undo(rest[0])
        campaign.correct(first, ORACLE[first])
    else:
        campaign.undo(first)
        assert campaign.classes == []
        campaign.tell([first], [ORACLE[first]])
    assert campaign.run(know)["status"] == "certified"
    assert sorted(campaign.classes) == list(CLASSES)
    assert campaign.model.predict(X).tolist() == LABELS
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


def test_a_class_whose_answers_all_go_changes_the_sides(store: Path, tmp_path: Path) -> None:
    """Where the negative class goes with its last answer the positive one takes its side, in the log's state, too."""
    campaign = Campaign.create(tmp_path / "c", store, error=0.05)
    plane = np.linalg.lstsq(X, np.where(np.array(LABELS) == "spam", 1.0, -1.0), rcond=None)[0]
    low, high = int(np.argmin(X @ plane)), int(np.argmax(X @ plane))
    campaign.tell([low, high], ["eggs", "spam"], examples=True)
    campaign.undo(low)
    assert campaign.classes == ["spam"]
    assert campaign._state.state.answered.codes.tolist() == [0]
    campaign.tell([low], ["ham"], examples=True)
    assert campaign.run(know)["status"] == "certified"
    assert campaign.classes == ["spam", "ham"]
    assert campaign.model.predict(X).tolist() == LABELS
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


@pytest.mark.parametrize("batch", [1, 7, 50])
def test_batches_end_the_same_way(campaign: Campaign, tmp_path: Path, batch: int) -> None:
    """Many questions at a time, answered in any order, end in a certified model whose margin holds, too."""
    rng = np.random.default_rng(batch)

    def shuffled(rows: Any) -> dict[int, str]:
        some = rng.permutation(np.array(rows))[: max(1, len(rows) // 2)]
        return know(some)

    status = campaign.run(shuffled, batch=batch)
    assert status["status"] == "certified"
    margins = np.where(np.array(LABELS) == "spam", 1, -1) * (X.astype(np.float64) @ campaign.model.w + campaign.model.b)
    assert status["lower"] <= margins.min()
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


def test_questions_of_a_batch_differ_and_stay_until_answered(campaign: Campaign) -> None:
    """Whoever asks next gets other rows; those without an answer are there again, in another process, too."""
    first, second = campaign.ask(5), campaign.ask(5)
    rows = [one.row for one in (*first, *second)]
    assert len(set(rows)) == 10
    assert [one.row for one in Campaign(campaign.path).ask(again=True)] == rows
    campaign.tell(rows[3:5], [ORACLE[row] for row in rows[3:5]])
    (third,) = campaign.ask(1, who="anna")
    assert [one.row for one in campaign.ask(again=True, who="anna")] == [third.row]
    campaign.tell([third.row], [ORACLE[third.row]])
    assert [one.row for one in campaign.ask(again=True)] == rows[:3] + rows[5:]
    assert first[0].why == "start"
    assert np.array_equal(first[0].features, X[first[0].row].astype(np.float64))


def test_open_questions_are_solved_for_once(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many questions are open, whoever asks next waits for one solve, and gets another row."""
    campaign.tell([0, 1, 2, 3], LABELS[:4], examples=True)
    rows = [one.row for one in campaign.ask(12)]
    solved, solve = [0], Coreset.solve

    def counted(*words: Any, **options: Any) -> Any:
        solved[0] += 1
        return solve(*words, **options)

    monkeypatch.setattr(Coreset, "solve", counted)
    (question,) = campaign.ask(1)
    assert question.row not in rows
    assert solved == [1]


def test_questions_expire(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After their time questions are asked again, and late answers are taken all the same."""
    campaign, now = Campaign.create(tmp_path / "c", store, classes=CLASSES, expires=60.0), [1e9]
    monkeypatch.setattr("coremargin.active.questions.time.time", lambda: now[0])
    rows = [one.row for one in campaign.ask(3)]
    now[0] += 59
    assert [one.row for one in campaign.ask(again=True)] == rows
    now[0] += 2
    assert campaign.ask(again=True) == []
    assert [one.row for one in campaign.ask(2)] == rows[:2]
    assert campaign.tell(rows[2:], [ORACLE[rows[2]]]) == 1


def drawing(campaign: Campaign) -> list[Any]:
    """Go on until rows are drawn; the questions about ten of them."""
    while True:
        found = campaign.ask(10 if campaign._state.state.draws.ids.size else 1)
        if found and found[0].why == "draw":
            return [*found, *campaign.ask(10 - len(found))] if len(found) < 10 else found
        campaign.tell([one.row for one in found], [ORACLE[one.row] for one in found])


def test_the_log_names_what_draws_try(campaign: Campaign) -> None:
    """Each line about a draw has the hash of the hypothesis, and no other line; the same from w and b by hashlib."""
    campaign.run(know)
    model = campaign.model
    numbers = model.w.astype("<f8").tobytes() + np.array([model.b], "<f8").tobytes()
    lines = [json.loads(text) for text in (campaign.path / "answers.jsonl").read_text().splitlines()]
    tried = {line["row"]: line["tried"] for line in lines if "tried" in line}
    assert sorted(tried) == sorted(model.arrays()["draws_ids"].tolist())
    assert set(tried.values()) == {hashlib.sha256(numbers).hexdigest()}
    assert all(("tried" in line) == (line["why"] == "draw") for line in lines)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("tried", ["5" * 64, None])
def test_draws_of_another_hypothesis_are_void(campaign: Campaign, tmp_path: Path, tried: str | None) -> None:
    """Where the log says that draws tried another hypothesis than is computed again from it, or does not say, they
    show nothing: their attempt is spent, their answers hold, and others are drawn; verify confirms what comes of it.
    """
    drawn_rows = [one.row for one in drawing(campaign)][:5]
    campaign.tell(drawn_rows, know(drawn_rows).values())
    path = tmp_path / "other"
    shutil.copytree(campaign.path, path, ignore=shutil.ignore_patterns("state", "model", ".*"))
    before, texts = hashlib.sha256((path / "campaign.toml").read_bytes()).hexdigest(), list[str]()
    for text in (path / "answers.jsonl").read_text().splitlines():
        line = json.loads(text) | {"before": before}
        if "tried" in line:
            line |= {"tried": tried}
        texts.append(json.dumps({name: value for name, value in line.items() if value is not None or name != "tried"}))
        before = hashlib.sha256(texts[-1].encode()).hexdigest()
    (path / "answers.jsonl").write_text("".join(text + "\n" for text in texts))
    other = Campaign(path)
    assert (campaign.status["attempt"], other.status["attempt"]) == (1, 2)
    assert other.run(know)["status"] == "certified"
    arrays = other.model.arrays()
    assert set(drawn_rows) <= set(arrays["answered_ids"].tolist())
    assert not set(drawn_rows) & set(arrays["draws_ids"].tolist())
    assert verify(path, campaign.settings.store).ok


@pytest.mark.slow
def test_a_draw_that_is_corrected_voids_its_attempt(campaign: Campaign, tmp_path: Path) -> None:
    """An answer about a drawn row that is changed, or taken back, ends the attempt: its number is spent, the answers
    that hold stay, the next attempt draws other rows, and the campaign is certified by these.
    """
    drawn_rows = [one.row for one in drawing(campaign)]
    campaign.tell(drawn_rows[:4], [ORACLE[row] for row in drawn_rows[:4]])
    assert campaign.status["attempt"] == 1
    campaign.undo(drawn_rows[0])
    assert campaign.status["attempt"] == 2
    status = campaign.run(know)
    assert (status["status"], status["attempt"]) == ("certified", 2)
    model = campaign.model
    assert not set(drawn_rows[1:4]) & set(model.arrays()["draws_ids"].tolist())
    assert set(drawn_rows[1:4]) <= set(model.arrays()["answered_ids"].tolist())
    row = int(model.arrays()["draws_ids"][0])
    campaign.undo(row)
    assert (campaign.status["status"], campaign.status["attempt"]) == ("running", 3)
    assert load(campaign.path / "model").status == "stopped"
    campaign.tell([row], [ORACLE[row]])
    status = campaign.run(know)
    assert (status["status"], status["attempt"]) == ("certified", 3)
    assert load(campaign.path / "model").status == "certified"
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


@pytest.mark.slow
def test_a_draw_that_is_wrong_joins_the_answers(tmp_path: Path) -> None:
    """Far rows on the wrong side, which no question near the hyperplane finds, are found by draws: the attempt is lost,
    and the hypothesis has them right in the end.
    """
    rng = np.random.default_rng(0)
    rows = (0.1 * rng.standard_normal((400, 2))).astype(np.float32)
    rows[:, 0] += np.where(np.arange(400) < 200, -6, 6)
    rows[380:, 1] += 60  # a far cloud, of the other class than its neighbour
    labels = ["a"] * 200 + ["b"] * 180 + ["a"] * 20
    campaign = Campaign.create(tmp_path / "c", unlabelled(tmp_path / "s", rows), classes=["a", "b"])
    campaign.tell([0, 200], ["a", "b"], examples=True)
    status = campaign.run(lambda asked: {row: labels[row] for row in asked})
    assert (status["status"], status["attempt"], status["draws_wrong"]) == ("certified", 2, 1)
    assert campaign.model.predict(rows).tolist() == labels
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


def test_the_page_tells_what_was_shown_and_nothing_else(campaign: Campaign) -> None:
    """The page of a certified campaign has its claim and its draws, and no heading above nothing."""
    campaign.run(know)
    page = (campaign.path / "model" / "report.html").read_text(encoding="utf-8")
    assert "rows that had no answer when" in page
    assert "rows were drawn from all those that had no answer then" in page
    assert "All rows, seen along" not in page
    assert "<section></section>" not in "".join(page.split())


def test_an_answer_that_comes_late(campaign: Campaign, tmp_path: Path) -> None:
    """While draws are out, an answer about another row ends the attempt; when all is certified one that agrees changes
    nothing, and one that does not goes on.
    """
    late = campaign.ask(3)
    for one in late:
        campaign.skip(one.row)
    drawing(campaign)
    campaign.tell([late[0].row], [ORACLE[late[0].row]])
    assert campaign.status["attempt"] == 2
    assert campaign.run(know)["status"] == "certified"
    before, log = state_of(campaign), load(campaign.path / "model").log
    assert campaign.tell([late[1].row], [ORACLE[late[1].row]]) == 1
    assert all(state_of(campaign)[name].tobytes() == values.tobytes() for name, values in before.items())
    assert load(campaign.path / "model").log == log != campaign._state.log.last
    wrong = {"ham": "spam", "spam": "ham"}[ORACLE[late[2].row]]
    campaign.tell([late[2].row], [wrong])
    assert campaign.status["status"] != "certified"
    assert load(campaign.path / "model").status != "certified"
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_that_are_fetched_by_number_count_as_read(tmp_path: Path, sparse: bool) -> None:
    """Examples that lie in no memory, and rows that somebody looks at, are bytes read, once each."""
    rows = csr_array(X) if sparse else X
    place = tmp_path / "s"
    kind = {"sparse": True} if sparse else {}
    with StoreWriter.create(place, features=4, dtype="float32", chunk_bytes=1024, **kind) as writer:
        writer.write(rows, None, origin="test")
    campaign = Campaign.create(tmp_path / "c", place, classes=CLASSES, memory=4000)
    before, resident = campaign.status["bytes_read"], campaign._state.state.resident.ids
    far = next(row for row in range(600) if row not in resident)
    campaign.tell([far], [LABELS[far]], examples=True)
    one = 4 * 8 if sparse else 4 * 4  # four values, and where they are
    assert campaign.status["bytes_read"] == before + one
    assert campaign.rows([1, 2, 3]).shape == (3, 4)
    campaign.close()
    assert Campaign(campaign.path).status["bytes_read"] == before + 4 * one


def test_status_of_a_lost_state_reads_no_row(
    campaign: Campaign, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its checkpoint a campaign is told of by its log and its model: what is claimed as long as no answer came
    since, else only how many answers there are; the keys are those that a campaign has, and no chunk is read.
    """
    status = campaign.run(know)
    campaign.close()
    assert status_without_state(campaign.path) is None
    shutil.rmtree(campaign.path / "state")
    with monkeypatch.context() as patch:
        for name in ("read", "rows_at"):
            patch.setattr(Store, name, lambda *_: pytest.fail("the store was read"))
        found = status_without_state(campaign.path)
        assert found is not None
        row = campaign._state.log.lines[0].row
    assert set(found) | {"unknown"} == set(status)
    same = (
        "status",
        "labels",
        "labels_asked",
        "draws",
        "scans",
        "lower",
        "upper",
        "ratio",
        "error_bound",
        "population",
    )
    assert {name: found[name] for name in same} == {name: status[name] for name in same}
    assert found["reason"].endswith(f"with a sample of the store and {status['scans']} scan")
    again = Campaign(campaign.path)
    assert again.status["status"] == "certified"
    again.undo(row)
    again.close()
    shutil.rmtree(campaign.path / "state")
    found = status_without_state(campaign.path)
    assert found is not None
    assert (found["status"], found["error_bound"], found["labels"]) == ("unknown", None, status["labels"] - 1)
    assert "unknown" in "\n".join(status_text(found))
    Campaign.create(tmp_path / "fresh", store).close()
    assert status_without_state(tmp_path / "fresh") is None
    shutil.rmtree(tmp_path / "fresh" / "state")
    found = status_without_state(tmp_path / "fresh")
    assert found is not None
    assert (found["status"], found["labels"], found["scans"]) == ("unknown", 0, 0)


def test_a_lost_state_changes_nothing_about_what_is_open(campaign: Campaign) -> None:
    """Which rows are put off, unsure and awaited is told from the log as from the state: neither an answer that was
    taken back nor a row that no annotator can label is put off, and draws of an attempt that is over are not awaited.
    """
    campaign.run(know, most=10)
    drawn_rows = drawing(campaign)
    first, second, third, fourth = drawn_rows[:4]
    campaign.skip(first.row)
    campaign.skip(second.row)
    campaign.skip(second.row, unsure=True)
    campaign.skip(third.row)
    campaign.tell([third.row], [ORACLE[third.row]])
    names = ("passed", "passed_rows", "awaited", "unsure", "unsure_rows", "labels")
    for undone in (False, True):
        if undone:
            campaign.undo(third.row)
            campaign.skip(fourth.row)
        status = campaign.status
        campaign.close()
        shutil.rmtree(campaign.path / "state")
        found = status_without_state(campaign.path)
        assert found is not None
        assert {name: found[name] for name in names} == {name: status[name] for name in names}
        assert (status["awaited"] > 0) != undone
        campaign = Campaign(campaign.path)
    assert status["passed_rows"] == sorted([first.row, fourth.row])


def test_everything_can_be_taken_back(campaign: Campaign, tmp_path: Path) -> None:
    """With the last answer undone a campaign wants what it wanted first, and its log is all there."""
    first = campaign.ask(3)
    campaign.tell([one.row for one in first], [ORACLE[one.row] for one in first])
    for _ in first:
        campaign.undo()
    assert (campaign.status["labels"], campaign.status["labels_asked"]) == (0, 3)  # people have given them all the same
    assert len(campaign._state.log.lines) == 6
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))
    campaign.tell([first[0].row], [ORACLE[first[0].row]])
    assert campaign.run(know)["status"] == "certified"


def test_a_model_follows_its_log_after_a_kill(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the line of the log and the model, a campaign leaves no proof behind once it is opened again."""
    campaign.run(know)
    campaign.close()
    row = int(campaign.model.arrays()["draws_ids"][0])
    with monkeypatch.context() as patched:
        patched.setattr(Campaign, "_update_model", lambda _: None)
        campaign.undo(row)
    assert load(campaign.path / "model").status == "certified"
    assert Campaign(campaign.path).status["status"] == "running"
    assert load(campaign.path / "model").status == "stopped"


@pytest.mark.slow
def test_no_model_outlives_its_answers(tmp_path: Path, store: Path) -> None:
    """Where the answers of one class are all taken back and draws find no other, the model of both goes."""
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05)
    campaign.tell([0, 1, 2, 3], [ORACLE[row] for row in range(4)], examples=True)
    assert len({ORACLE[row] for row in range(4)}) == 2
    assert campaign.stop()
    assert (campaign.path / "model").exists()
    for row in range(4):
        if ORACLE[row] == "spam":
            campaign.undo(row)
    with pytest.raises(LabelError, match="all of them 'ham'"):
        campaign.run(lambda rows: dict.fromkeys(rows, "ham"))
    assert not (campaign.path / "model").exists()


@pytest.mark.slow
def test_what_is_put_off_comes_back_and_what_nobody_knows_does_not(campaign: Campaign) -> None:
    """Skipped rows are asked again when nothing else is left; for those that nobody can tell others are drawn."""
    put_off = set[int]()
    for _ in range(400):
        found = campaign.ask(1)
        if not found or found[0].row in put_off:
            break
        put_off.add(found[0].row)
        campaign.skip(found[0].row)
    assert found
    assert found[0].row in put_off
    campaign.tell([found[0].row], [ORACLE[found[0].row]])
    drawn_rows = drawing(campaign)
    for one in drawn_rows:
        campaign.skip(one.row, unsure=True)
    asked: list[int] = []

    def told(rows: Any) -> dict[int, str]:
        asked.extend(rows)
        return know(rows)

    status = campaign.run(told)
    assert (status["status"], status["unsure_rows"]) == ("certified", sorted(one.row for one in drawn_rows))
    assert not set(asked) & set(status["unsure_rows"])
    assert load(campaign.path / "model").record["unsure"] == len(drawn_rows)


@pytest.mark.slow
def test_answers_that_contradict_each_other_are_shown(campaign: Campaign) -> None:
    """One row answered wrongly ends in the rows whose hulls meet, it among them; corrected, the campaign goes on."""
    campaign.tell([0, 1, 2], LABELS[:3], examples=True)
    plane = np.linalg.lstsq(X, np.where(np.array(LABELS) == "spam", 1.0, -1.0), rcond=None)[0]
    wrong = int(np.argmax(X @ plane))
    campaign.tell([wrong], ["ham"], examples=True)
    status = campaign.run(know)
    assert status["status"] == "not_separable"
    assert wrong in {one["row"] for one in status["contradiction"]}
    assert load(campaign.path / "model").status == "not_separable"
    campaign.correct(wrong, LABELS[wrong])
    assert campaign.run(know)["status"] == "certified"


def test_one_class_only_is_said(tmp_path: Path, store: Path) -> None:
    """Where all answers are equal for ever the campaign ends with what draws show of the other class; an example of it
    goes on.
    """
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05)
    with pytest.raises(LabelError, match=r"found \d+ answers, all of them 'ham'; with confidence 0.99 at most \d+ of"):
        campaign.run(lambda rows: dict.fromkeys(rows, "ham"))
    assert campaign.status["status"] == "stopped"
    assert not (campaign.path / "model").exists()
    campaign.tell([5], ["spam"], examples=True)
    assert campaign.status["status"] != "stopped"


def test_weights_and_scaling(tmp_path: Path) -> None:
    """Rows of weight 0 are not asked about and not counted; scaled rows have the margin that is claimed; the draws
    follow from the digest of the store.
    """
    weights = np.ones(600)
    weights[::3] = 0.0
    store = unlabelled(tmp_path / "w", X * np.float32(3), weights=weights)
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05, scaling="standard")
    status = campaign.run(know)
    assert status["status"] == "certified"
    assert not any(line.row % 3 == 0 for line in campaign._state.log.lines)
    model = campaign.model
    assert model.evidence["population"] == 400 - len(model.arrays()["answered_ids"])
    rows = (X * np.float32(3)).astype(np.float64)
    Z = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    margins = np.where(np.array(LABELS) == "spam", 1, -1) * (Z @ model.w + model.b)
    assert margins[weights > 0].min() >= status["lower"] * (1 - 1e-5)
    assert model.store_digest == Store.open(store).digest
    known = set(model.arrays()["answered_ids"].tolist())
    order = (row for row in drawn(model.store_digest, 0, 1, 600) if row not in known and row % 3)
    assert model.arrays()["draws_ids"].tolist() == [next(order) for _ in range(model.evidence["draws"])]


def test_oracles(tmp_path: Path, store: Path) -> None:
    """A store with labels, CSV, JSONL, Parquet, NPY of either shape and a list of labels all give the same answers."""
    pairs = [(row, LABELS[row]) for row in range(0, 600, 7)]
    (tmp_path / "a.csv").write_text("row,label\n" + "".join(f"{row},{label}\n" for row, label in pairs))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"row": r, "label": x}) + "\n" for r, x in pairs))
    (tmp_path / "a.txt").write_text("\n".join(LABELS))
    codes = np.array([CLASSES.index(label) for label in LABELS])
    np.save(tmp_path / "a.npy", codes)
    np.save(tmp_path / "b.npy", np.array([(row, CLASSES.index(label)) for row, label in pairs]))
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"row": [r for r, _ in pairs], "label": [x for _, x in pairs]}), tmp_path / "a.parquet")
    unlabelled(tmp_path / "labelled", X, LABELS)
    for name in ("a.csv", "a.jsonl", "a.parquet", "a.txt", "labelled"):
        assert oracle_of(tmp_path / name, 600)([7, 14]) == {7: LABELS[7], 14: LABELS[14]}, name
    for name in ("a.npy", "b.npy"):
        assert oracle_of(tmp_path / name, 600)([7, 14]) == {7: codes[7], 14: codes[14]}, name
    assert oracle_of(tmp_path / "a.csv", 600)([8]) == {}
    assert oracle_of(tmp_path / "a.txt", 600)([10_000]) == {}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "row,label\n1,ham\n2,ham\n1,spam\n", "a.csv, line 4: row 1: expected 'ham' as before, found 'spam'"),
        ("a.csv", "row,label\n3,ham\n", "a.csv, line 2: expected a row from 0 to 2, found 3"),
        ("a.csv", f"row,label\n{'9' * 5000},ham\n", "line 2: row: expected a whole number, found '999"),
        ("a.csv", "row,label,Label\n1,ham,spam\n", "line 1: expected different columns, found row, label, label"),
        ("a.csv", "id,label\n0,ham\n1,spam\n", "line 1: expected a head with the columns row and label"),
        ("a.tsv", "row|label\n0|ham\n1|spam\n", "line 1: expected a head with the columns row and label"),
        ("a.txt", "ham\nspam\n", "expected a label for each of the 3 rows, found 2"),
        ("a.txt", "ham\nspam\nham\nspam\n", "expected a label for each of the 3 rows, found 4"),
        ("a.jsonl", '{"row": 1, "lable": "ham"}\n', "line 1: expected the keys row and label, found row, lable"),
        ("a.jsonl", '{"row": 1, "label": "ham"}\n{"row": -1, "label": "ham"}\n', "line 2: expected a row from 0"),
        ("a.npy", np.array([0, 1, 1, 0]), "expected a label for each of the 3 rows, found 4"),
        ("a.npy", np.array([[0, 1], [1.5, 0]]), "pair 1: row: expected a whole number, found"),
        ("a.npy", np.array([[0, 1], [np.nan, 0]]), "pair 1: row: expected a whole number, found"),
        ("a.npy", np.array([[2, 1], [2, 0]]), "pair 1: row 2: expected 1 as before, found 0"),
    ],
)  # fmt: skip
def test_oracles_that_contradict_themselves(tmp_path: Path, name: str, content: Any, message: str) -> None:
    """Two labels for a row, labels of another number of rows, strange rows, misspelt columns: refused by place."""
    if isinstance(content, str):
        (tmp_path / name).write_text(content)
    else:
        np.save(tmp_path / name, content)
    with pytest.raises(DataError, match=message):
        oracle_of(tmp_path / name, 3)


def test_labels_hold_what_is_no_end_of_a_line(tmp_path: Path) -> None:
    """In a list of labels only a line feed ends one; the same label said twice of a row is no contradiction."""
    (tmp_path / "a.txt").write_text("ham\u2028s\nsp\x0cam\r\nham\u2028s\n", encoding="utf-8", newline="")
    assert oracle_of(tmp_path / "a.txt", 3)(range(3)) == {0: "ham\u2028s", 1: "sp\x0cam", 2: "ham\u2028s"}
    (tmp_path / "a.csv").write_text("row,label\n1,1\n1,1.0\n2,\n")
    assert oracle_of(tmp_path / "a.csv", 3)(range(3)) == {1: "1"}
    (tmp_path / "a.jsonl").write_text('{"Row": 1, "Label": "ham"}\n')
    assert oracle_of(tmp_path / "a.jsonl", 3)(range(3)) == {1: "ham"}


def test_rows_that_an_oracle_does_not_know_are_named(campaign: Campaign) -> None:
    """Without some labels everything else is asked about all the same, and the rows that were wanted are named."""
    first = campaign.ask()[0].row
    status = campaign.run(lambda rows: {row: ORACLE[row] for row in rows if row != first})
    assert (status["status"], status["unknown"]) == ("running", [first])
    assert status["labels_asked"] > 1
    assert (campaign.run(know)["status"], campaign.run(know)["unknown"]) == ("certified", [])


@pytest.mark.slow
def test_scans_on_workers(tmp_path: Path, store: Path, embedded: Any) -> None:
    """Scans by two processes leave the same bits as scans in this one."""
    alone = Campaign.create(tmp_path / "alone", store, classes=CLASSES, error=0.05, block=4096)
    shared = Campaign.create(tmp_path / "shared", store, classes=CLASSES, error=0.05, block=4096)
    shared._state._executor = embedded
    assert alone.run(know)["status"] == shared.run(know)["status"] == "certified"
    assert same_state(alone, shared)
    assert (alone.path / "model" / "arrays.npz").read_bytes() == (shared.path / "model" / "arrays.npz").read_bytes()


def interrupted(campaign: Campaign, after: int) -> int:
    """Ask until a scan begins, and interrupt it when so many blocks are done; how many that were."""
    done = 0

    def block(_: Any) -> None:
        nonlocal done
        done += 1
        if done == after:
            raise KeyboardInterrupt

    campaign._state._callbacks = Callbacks(on_block=block)
    with pytest.raises(Interrupted, match="what was read is stored: run the same command again to continue"):
        campaign.run(know)
    return done


@pytest.mark.specimens(1)
@pytest.mark.parametrize("answer", [False, True])
def test_a_scan_that_is_interrupted(tmp_path: Path, store: Path, answer: bool) -> None:
    """What was read of a scan need not be read again, unless an answer came in between: then none of it is used. The
    bits are those that the log gives without a break.
    """
    asked = {"classes": CLASSES, "error": 0.05, "block": 1024, "cluster": "threads"}
    broken = Campaign.create(tmp_path / "broken", store, **asked)
    interrupted(broken, after=4)
    if answer:
        row = next(row for row in range(600) if row not in broken._state.labels)
        broken.tell([row], [ORACLE[row]], examples=True)
    read: list[int] = []
    watch = Callbacks(on_block=lambda result: read.append(result.block.index))
    again, scans = Campaign(broken.path, cluster="threads", watch=watch), broken._state.state.round
    while again._state.state.round == scans:
        for question in again.ask(1):
            again.tell([question.row], [ORACLE[question.row]])
    assert len(read) == (10 if answer else 6)
    assert again.run(know)["status"] == "certified"
    assert same_state(again, forgotten(again, tmp_path / "copy"))


def rest_of(campaign: Campaign) -> list[int]:
    """The blocks that are read until a scan is finished."""
    read: list[int] = []
    campaign._state._callbacks = Callbacks(on_block=lambda result: read.append(result.block.index))
    scans = campaign._state.state.round
    while campaign._state.state.round == scans:
        for question in campaign.ask(1):
            campaign.tell([question.row], [ORACLE[question.row]])
    return read


def test_blocks_of_an_earlier_scan_are_of_no_use(tmp_path: Path, store: Path) -> None:
    """A process that has seen blocks of a scan, which another one finishes, takes those of the next scan alone."""
    asked = {"classes": CLASSES, "error": 0.05, "block": 1024, "cluster": "threads", "memory": 4000}
    interrupted(Campaign.create(tmp_path / "c", store, **asked), after=3)
    first, second = (Campaign(tmp_path / "c", cluster="threads") for _ in range(2))
    interrupted(second, after=8)  # seven blocks, and one of the next scan
    assert len(rest_of(first)) == 9
    assert same_state(first, forgotten(first, tmp_path / "copy"))


def test_blocks_are_kept_where_the_lock_is_held_to_the_end(tmp_path: Path, store: Path) -> None:
    """As the commands do: after answers that no checkpoint knows of, a scan is interrupted and the campaign closed."""
    asked = {"classes": CLASSES, "error": 0.05, "block": 1024, "cluster": "threads", "memory": 4000}
    begun = Campaign.create(tmp_path / "c", store, **asked)
    for question in begun.ask(2):
        begun.tell([question.row], [ORACLE[question.row]])
    second = Campaign(tmp_path / "c", cluster="threads")
    with second.locked():
        interrupted(second, after=4)
        second.close()
    third = Campaign(tmp_path / "c", cluster="threads")
    assert len(rest_of(third)) == 6
    assert same_state(third, forgotten(third, tmp_path / "copy"))


def test_blocks_that_a_kill_left_are_of_no_use(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed while it throws a state away leaves its blocks: no other state is taken for theirs."""
    monkeypatch.setitem(Checkpoint.__init__.__kwdefaults__, "every_s", 0.0)  # a file for each block
    asked = {"classes": CLASSES, "error": 0.05, "block": 1024, "cluster": "threads", "memory": 4000}
    interrupted(Campaign.create(tmp_path / "c", store, **asked), after=4)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("coremargin.engine.checkpoint.version", lambda: "another")
        patch.setattr(Kind, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            Campaign(tmp_path / "c")
    campaign = Campaign(tmp_path / "c", cluster="threads")
    row = next(row for row in range(600) if row not in campaign._state.labels)
    campaign.tell([row], [ORACLE[row]], examples=True)
    interrupted(campaign, after=1)
    again = Campaign(tmp_path / "c", cluster="threads")
    assert len(rest_of(again)) == 9
    assert same_state(again, forgotten(again, tmp_path / "copy"))


@pytest.mark.slow
@pytest.mark.parametrize("before", ["loose", "exact"])
def test_a_state_that_is_computed_otherwise_spends_no_attempt_twice(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, before: str
) -> None:
    """Where another coremargin comes to other hypotheses, what was tried before is over: the evidence is of an attempt
    of which the log has no draw yet, and the campaign is verified.
    """
    solvers = {"loose": Slab.solve, "exact": Coreset.solve}
    after = "exact" if before == "loose" else "loose"
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05, memory=4000, epsilon=0.4)
    with monkeypatch.context() as patch:
        patch.setattr(Coreset, "solve", solvers[before])
        for _ in range(3):
            rows = [one.row for one in drawing(campaign)[:6]]
            campaign.tell(rows[:4], [ORACLE[row] for row in rows[:4]])
            campaign.skip(rows[4])
            campaign.undo(rows[0])
        rows = [one.row for one in drawing(campaign)]
        campaign.tell(rows, [ORACLE[row] for row in rows])
        campaign.close()
    tried = max(line.attempt for line in campaign._state.log.lines if line.attempt is not None)
    record = json.loads((campaign.path / "state" / "job.json").read_text())
    record["identity"]["software"] = "0.0.9"
    (campaign.path / "state" / "job.json").write_text(json.dumps(record))
    monkeypatch.setattr(Coreset, "solve", solvers[after])
    again = Campaign(campaign.path)
    assert again.run(know)["status"] == "certified"
    assert again.model.evidence["attempt"] > tried >= 3
    assert verify(campaign.path, store).ok
    (warned,) = [one.getMessage() for one in caplog.records if "computed again" in one.getMessage()]
    assert (
        "found one that another wrote (0.0.9, format 7); the state has to be computed again from the answers" in warned
    )
    assert same_state(again, forgotten(again, tmp_path / "copy"))
