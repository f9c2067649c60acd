"""Models whose labels were asked for, and their campaigns: honest ones are confirmed, every forgery is named.

A forged campaign's chain of hashes is made anew, so that what it says has to give it away; one that is not is refused
as it is read.
"""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.sparse import csr_array

from coremargin.active import Campaign
from coremargin.cli import main
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import DataError
from coremargin.verify.examine import examine
from forge_active import CLASSES, LINE, Change, Played, drawing, hidden_corner, played, two_sides
from forge_active_judge import chance, lies
from forge_changes import about, array, failures, put, record

ASKED = {"error": 0.05, "confidence": 0.9}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A campaign whose first attempt found nothing wrong."""
    return played(*two_sides(tmp_path_factory.mktemp("once"), 300), **ASKED)


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A campaign whose first attempt found a wrong row, and whose second did not."""
    rows, truth = hidden_corner(tmp_path_factory.mktemp("twice"))
    found = played(rows, truth, **ASKED, resident_rows=4, sample_share=0.01, sample_bytes=600)
    assert found.record["evidence"]["attempt"] == 2
    return found


@pytest.fixture(scope="module")
def halfway(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A campaign that was stopped after a few answers."""
    return played(*two_sides(tmp_path_factory.mktemp("half"), 300), **ASKED, most=6)


STORES: dict[str, dict[str, Any]] = {
    "dense": {}, "sparse": {"sparse": True, "dtype": "float64"}, "labelled": {"labels": ["yes", "no", None] * 100},
    "weighted": {"weights": np.random.default_rng(5).choice([0.0, 1.0, 2.0], 300)},
    "sparse-weighted": {"sparse": True, "weights": np.random.default_rng(6).choice([0.0, 1.0, 2.0], 300)},
}  # fmt: skip


@pytest.mark.specimens(6)
@pytest.mark.parametrize("asked", [{}, {"intercept": False}, {"scaling": "standard"}, {"scaling": "rownorm"}], ids=str)
@pytest.mark.parametrize("kind", list(STORES))
def test_honest_campaigns_are_confirmed(tmp_path: Path, kind: str, asked: dict[str, Any]) -> None:
    """Of dense and sparse rows, with weights and labels of their own, as stored and scaled: model and campaign hold."""
    rows, truth = two_sides(tmp_path, 300, 4, 11, **STORES[kind])
    for most in (10**6, 8):
        found = played(rows, truth, **ASKED, **asked, most=most)
        assert found.record["status"] == ("certified" if most > 8 else "stopped")
        assert failures(found.write_model(tmp_path / "m"), rows.path) == []
        assert failures(found.write(tmp_path / "c"), rows.path) == []


def test_two_attempts_are_confirmed(twice: Played, tmp_path: Path) -> None:
    """A campaign whose first attempt was void holds, and the verdict says what is proven."""
    told = CliRunner().invoke(main, ["verify", str(twice.write(tmp_path / "c")), str(twice.rows.path), "--quiet"])
    assert told.exit_code == 0, told.output
    assert "attempt 2" in told.stdout
    assert "verified: if no row is labelled wrongly, the margin is at least (1 - 0.1) of the best" in told.stdout
    assert "not the best of many campaigns" in told.stdout
    alone = CliRunner().invoke(main, ["verify", str(tmp_path / "c" / "model"), str(twice.rows.path), "--quiet"])
    assert alone.exit_code == 0
    assert "give the campaign's folder" in alone.stdout


def test_labels_of_the_store_are_told_and_count_for_nothing(tmp_path: Path) -> None:
    """A store whose labels are others than the answers: told with numbers, and no failure."""
    rows, truth = two_sides(tmp_path, 300, labels=["yes", "no", None] * 100)
    found = examine(played(rows, truth, **ASKED).write(tmp_path / "c"), rows.path)
    assert found.ok
    [told] = [check.text for check in found.checks if check.name == "store's labels"]
    words = told.split()
    answers = {line["row"]: line["label"] for line in played(rows, truth, **ASKED).lines}
    both = [row for row in answers if rows.labels[row] is not None]
    assert int(words[1]) == len(both)
    assert int(words[-5]) == sum(rows.labels[row] != answers[row] for row in both) > 0


def easy_draw(played: Played) -> None:
    """The row that lies farthest from the hyperplane instead of one drawn."""
    taken = set(played.arrays["draws_ids"].tolist()) | set(played.arrays["answered_ids"].tolist())
    values = played.rows.X @ played.arrays["w"] + played.arrays["b"][0]
    row = next(int(row) for row in np.argsort(-np.abs(values)) if int(row) not in taken)
    played.arrays["draws_ids"][9], played.arrays["draws_signs"][9] = row, np.sign(values[row])


def levelled(played: Played) -> None:
    """All rows of a side have one weight."""
    signs = played.arrays["coreset_y"]
    played.arrays["alpha"] = 1.0 / np.where(signs > 0, (signs > 0).sum(), (signs < 0).sum())


def swapped(played: Played) -> None:
    """The first two draws have changed places."""
    for name in ("draws_ids", "draws_signs"):
        played.arrays[name][[0, 1]] = played.arrays[name][[1, 0]]


def fewer_draws(played: Played) -> None:
    """The last draw is left out, and the bound stays."""
    played.record["evidence"]["draws"] -= 1
    played.record["answers"] -= 1
    for name in ("draws_ids", "draws_signs"):
        played.arrays[name] = played.arrays[name][:-1]


def answered_more(played: Played, rows: list[int], signs: list[int]) -> None:
    """More rows that are said to be answered."""
    ids = np.concatenate([played.arrays["answered_ids"], rows])
    signs = np.concatenate([played.arrays["answered_signs"], np.array(signs, np.int8)])
    order = np.argsort(ids)
    played.arrays.update(answered_ids=ids[order], answered_signs=signs[order])
    played.record["answers"] += len(rows)


def slab_hidden(sign: int) -> Change:
    """Rows within the slab are said to be answered, with the sign of the hypothesis or the other."""

    def change(played: Played) -> None:
        claims = played.record["certificate"]
        claims["lower"] = 0.95 * claims["upper"]
        claims["ratio"] = claims["lower"] / claims["upper"]
        values = played.rows.X @ played.arrays["w"] + played.arrays["b"][0]
        near = np.flatnonzero(np.abs(values) < claims["lower"])
        near = near[~np.isin(near, played.arrays["answered_ids"])]
        assert len(near)
        answered_more(played, near.tolist(), (sign * np.sign(values[near])).astype(int).tolist())

    return change


def bare_claim(played: Played) -> None:
    """A run that was stopped claims to be done."""
    claims = played.record["certificate"]
    claims["lower"] = 0.95 * claims["upper"]
    claims["ratio"] = claims["lower"] / claims["upper"]
    played.record["status"] = "certified"


def undrawn(played: Played) -> None:
    """All draws are gone."""
    played.record["answers"] -= played.record["evidence"]["draws"]
    played.record["evidence"] = None
    played.arrays.update(draws_ids=np.zeros(0, np.int64), draws_signs=np.zeros(0, np.int8))


def answer_turned(played: Played) -> None:
    """An answer about a row of the coreset is another."""
    place = played.arrays["answered_ids"] == played.arrays["coreset_ids"][0]
    played.arrays["answered_signs"][place] *= -1


def draw_turned(played: Played) -> None:
    """The answer about the first draw is another."""
    played.arrays["draws_signs"][0] *= -1


def drawn_coreset(played: Played) -> None:
    """A draw is among the rows of the coreset, with no weight."""
    larger_coreset(played, int(played.arrays["draws_ids"][0]), int(played.arrays["draws_signs"][0]))


def larger_coreset(played: Played, row: int, sign: int) -> None:
    """One more row of the coreset, with no weight."""
    played.arrays.update(
        coreset_ids=np.append(played.arrays["coreset_ids"], row),
        coreset_y=np.append(played.arrays["coreset_y"], np.int8(sign)),
        coreset_x=np.vstack([played.arrays["coreset_x"], played.rows.X[row]]),
        alpha=np.append(played.arrays["alpha"], 0.0),
    )
    played.record["certificate"]["coreset_rows"] += 1


def hopeless(flip: bool) -> Change:
    """Nothing separates the answers, it says; with signs that are turned, or not."""

    def change(played: Played) -> None:
        played.record.update(status="not_separable", evidence=None)
        played.record["certificate"].update(kind="not_separable", lower=None, ratio=None, upper=1e-300)
        ids, signs = (np.concatenate([played.arrays[f"{name}_{what}"] for name in ("answered", "draws")])
                      for what in ("ids", "signs"))  # fmt: skip
        order = np.argsort(ids)
        played.arrays.update(answered_ids=ids[order], answered_signs=signs[order])
        played.arrays.update(draws_ids=np.zeros(0, np.int64), draws_signs=np.zeros(0, np.int8))
        if flip:
            played.arrays["coreset_y"] = -played.arrays["coreset_y"]

    return change


def hopeless_by_name(played: Played) -> None:
    """Nothing separates the answers, it says, and has the evidence that it had."""
    played.record.update(status="not_separable")
    played.record["certificate"].update(kind="not_separable", lower=None, ratio=None)


def wrong_draw(told: Any) -> Change:
    """A draw was answered otherwise than the hypothesis says; so many wrong ones are claimed."""

    def change(played: Played) -> None:
        played.arrays["draws_signs"][5] *= -1
        played.record["evidence"]["wrong"] = told

    return change


#: Forgeries of a model by itself: (what is changed, the claims that must be found false, all of them).
MODELS: dict[str, tuple[Change, set[str]]] = {
    "another seed": (record(seed=1), {"draws"}),
    "another attempt": (record(attempt=2), {"draws", "evidence"}),
    "an easy draw": (easy_draw, {"draws"}),
    "draws in another order": (swapped, {"draws"}),
    "a draw less": (fewer_draws, {"evidence"}),
    "a wrong draw": (wrong_draw(0), {"evidence"}),
    "a smaller population": (record(population=lambda n: n - 1), {"evidence"}),
    "a larger population": (record(population=lambda n: n + 1), {"evidence"}),
    "a smaller bound": (record(error_bound=lambda n: n - 1), {"evidence"}),
    "more confidence": (record(confidence=0.95), {"evidence"}),
    "evidence of more confidence": (lambda p: p.record["evidence"].update(confidence=0.95), {"evidence"}),
    "evidence of less confidence": (lambda p: p.record["evidence"].update(confidence=0.8), {"evidence"}),
    "a smaller share": (record(error=0.02), {"evidence"}),
    "no evidence": (undrawn, {"evidence"}),
    "weights moved": (levelled, {"upper bound"}),
    "an upper bound too low": (record(upper=lambda v: v * 0.99), {"ratio", "upper bound"}),
    "a lower bound too high": (record(lower=lambda v: v * 1.001), {"ratio", "lower bound"}),
    "another ratio": (record(ratio=1.0), {"ratio"}),
    "negated": (lambda p: p.arrays.update(w=-p.arrays["w"], b=-p.arrays["b"]), {"lower bound", "evidence"}),
    "moved": (array("b", lambda b: b + 0.05), {"lower bound"}),
    "a longer hyperplane": (array("w", lambda w: 2 * w), {"hypothesis"}),
    "an answer turned": (answer_turned, {"coreset", "lower bound"}),
    "a coreset of draws": (drawn_coreset, {"coreset"}),
    "coreset rows of no answer": (array("coreset_ids", put(0, lambda v: 0 if v else 1)), {"coreset"}),
    "other coreset rows": (array("coreset_x", lambda x: 1.1 * x), {"coreset", "upper bound"}),
    "another digest": (record(store_digest=f"sha256:{0:064}"), {"content", "draws"}),
    "another radius": (record(radius=1.0), {"radius"}),
    "hopeless": (hopeless(flip=False), {"overlap", "upper bound"}),
    "hopeless by turned signs": (hopeless(flip=True), {"overlap", "upper bound", "coreset"}),
    "not separable, with evidence": (hopeless_by_name, {"overlap", "evidence"}),
    "epsilon": (record(epsilon=0.001), {"status", "evidence"}),
}  # fmt: skip


@pytest.mark.parametrize("name", list(MODELS))
def test_forged_models_are_refuted(once: Played, tmp_path: Path, name: str) -> None:
    """Each forgery is found by the claims that are false of it, and by no others."""
    change, names = MODELS[name]
    forged = once.copy()
    change(forged)
    assert set(failures(forged.write_model(tmp_path / "m"), once.rows.path)) == names


@pytest.mark.parametrize("told", [1, -1, True, 0.0, "0", None])
def test_no_draw_of_evidence_is_wrong(once: Played, tmp_path: Path, told: Any) -> None:
    """A wrong draw ends an attempt: a record that tells of one, or of what is no number, is refused as it is read."""
    noisy = once.copy()
    wrong_draw(told)(noisy)
    noisy.record["status"] = "stopped"
    noisy.record["evidence"]["error_bound"] = noisy.record["evidence"]["population"]
    with pytest.raises(DataError, match=r"wrong"):
        examine(noisy.write_model(tmp_path / "m"), once.rows.path)


def fitted(played: Played, *, lower: float | None) -> None:
    """Another hyperplane, that fits the draws and nothing else; lower None: or no draw even, which are chosen for it.

    The rows that it labels wrongly are said to be answered, where no lower bound is claimed of them.
    """
    arrays, evidence, claims = played.arrays, played.record["evidence"], played.record["certificate"]
    truth = {line["row"]: 1 if line["label"] == "yes" else -1 for line in played.lines}
    known = np.array(sorted(truth) if lower is not None else arrays["draws_ids"])
    X, signs = played.rows.X, np.array([truth[row] for row in known.tolist()])
    w = np.linalg.lstsq(np.hstack([X[known], np.ones((len(known), 1))]), signs, rcond=None)[0]
    arrays.update(w=w[:-1] / np.linalg.norm(w[:-1]), b=w[-1:] / np.linalg.norm(w[:-1]))
    claims.update(lower=lower, ratio=None if lower is None else max(0.0, lower / claims["upper"]))
    played.record["status"] = "stopped"
    assert evidence["draws"] == len(arrays["draws_ids"])


def chosen_draws(played: Played, truth: np.ndarray) -> None:
    """The draws that a hyperplane gets wrong are said to be answered before, and others are drawn."""
    arrays, evidence, claims = played.arrays, played.record["evidence"], played.record["certificate"]
    w = np.random.default_rng(4).standard_normal(played.rows.X.shape[1])
    arrays.update(w=w / np.linalg.norm(w), b=np.zeros(1))
    right = played.rows.X @ w * truth > 0
    known, draws, wrong = set(arrays["answered_ids"].tolist()), list[int](), list[int]()
    for row in drawing(claims["store_digest"], 0, 1, played.record["rows"]):
        if row not in known:
            (draws if right[row] else wrong).append(row)
        if len(draws) == evidence["draws"]:
            break
    arrays.update(draws_ids=np.array(draws), draws_signs=truth[draws].astype(np.int8))
    answered_more(played, wrong, truth[wrong].tolist())
    evidence["population"] -= len(wrong)
    bounds = range(evidence["population"])
    evidence["error_bound"] = next(b for b in bounds if chance(len(bounds), b + 1, len(draws), 0) <= Fraction(1, 20))
    claims.update(lower=None, ratio=None)
    played.record["status"] = "stopped"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fitted", "chosen", -1e300, 1e-300], ids=str)
def test_evidence_is_of_a_hypothesis_that_the_answers_leave(tmp_path: Path, way: str | float) -> None:
    """What draws say of a hyperplane that was made of them, or they for it, is refused, bounds being as they are; and
    of one whose bounds prove epsilon it holds, though too few were drawn to certify it.
    """
    rows, truth = two_sides(tmp_path, 400, 200)
    honest = played(rows, truth, **ASKED)
    forged = honest.copy()
    if way == "chosen":
        chosen_draws(forged, truth)
    else:
        fitted(forged, lower=way if isinstance(way, float) else None)
    place = forged.write_model(tmp_path / "m")
    assert failures(place, rows.path) == ["evidence"]
    assert any("do not prove epsilon" in lie for lie in lies(rows, forged.record, forged.arrays))
    few = honest.copy()
    few.record["status"] = "stopped"
    assert failures(few.write_model(tmp_path / "few"), rows.path) == []


def test_a_draw_in_the_coreset_is_called_one(once: Played, tmp_path: Path) -> None:
    """Who trains with a draw is told that it was drawn, not only that it has no answer."""
    forged = once.copy()
    drawn_coreset(forged)
    [told] = examine(forged.write_model(tmp_path / "m"), once.rows.path).failures
    assert f"row {once.arrays['draws_ids'][0]} is drawn to try the hypothesis" in told.text


@pytest.mark.parametrize("sign", [1, -1])
def test_rows_within_the_slab_are_found_though_they_are_called_answered(
    halfway: Played, tmp_path: Path, sign: int
) -> None:
    """A bound that rows within the slab refute is refuted, with and without their being called answered."""
    forged = halfway.copy()
    slab_hidden(sign)(forged)
    assert failures(forged.write_model(tmp_path / "m"), halfway.rows.path) == ["lower bound"]
    forged = halfway.copy()
    bare_claim(forged)
    assert set(failures(forged.write_model(tmp_path / "n"), halfway.rows.path)) == {"lower bound", "evidence"}


#: Arrays that no model has.
STRANGE: dict[str, Change] = {
    "a row that is answered and drawn": array("draws_ids", put(0, lambda v: 0)),
    "a row twice": array("answered_ids", lambda v: put(1, v[0])(v)),
    "a draw twice": array("draws_ids", lambda v: put(1, v[0])(v)),
    "a row beyond the store": array("draws_ids", put(3, 300)),
    "a row before the first": array("answered_ids", put(0, -1)),
    "rows out of order": array("answered_ids", lambda v: v[::-1].copy()),
    "no sign": array("answered_signs", put(0, 0)),
    "a draw without sign": array("draws_signs", put(0, 0)),
    "no number": array("w", put(0, np.nan)),
    "no end": array("b", put(0, np.inf)),
    "a weight without end": array("alpha", put(0, np.inf)),
    "more draws than there are": record(draws=10**6),
    "more answers than there are": record(answers=lambda n: n + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", list(STRANGE))
def test_strange_files_are_refused(once: Played, tmp_path: Path, name: str) -> None:
    """What no model can have is refused as it is read."""
    forged = once.copy()
    if name == "a row that is answered and drawn":
        forged.arrays["draws_ids"][0] = forged.arrays["answered_ids"][0]
    else:
        STRANGE[name](forged)
    with pytest.raises(DataError):
        examine(forged.write_model(tmp_path / "m"), once.rows.path)


def other_class(played: Played) -> None:
    """The first answer is another."""
    played.lines[0]["label"] = "yes" if played.lines[0]["label"] == "no" else "no"


def more(row: int, action: str = "label", label: Any = "yes", why: str = "query", **values: Any) -> Change:
    """One more line at the end, which the model is not about."""

    def change(played: Played) -> None:
        played.model_line = len(played.lines)
        attempt = values.get("attempt")
        played.lines.append({"row": row, "label": label, "action": action, "why": why, "attempt": attempt, **LINE})

    return change


def unanswered(played: Played, sign: int) -> int:
    """A row without answer that the hypothesis has on this side."""
    known = {line["row"] for line in played.lines}
    values = sign * (played.rows.X @ played.arrays["w"] + played.arrays["b"][0])
    return next(row for row in range(len(values)) if row not in known and values[row] > 0)


def first_draw(played: Played) -> int:
    """The place of the first line about a draw of the model's."""
    wanted = played.record["evidence"]["attempt"]
    return next(k for k, line in enumerate(played.lines) if line["attempt"] == wanted)


def renumbered(old: int, new: int) -> Change:
    """The draws of an attempt are of another in the log."""

    def change(played: Played) -> None:
        for entry in played.lines:
            if entry["attempt"] == old:
                entry["attempt"] = new

    return change


def unknown_to_the_model(played: Played) -> None:
    """One more answer in the log."""
    played.lines.insert(3, {**played.lines[0], "row": unanswered(played, 1)})


def drawn_before(played: Played) -> None:
    """The first draw is a query, by the log."""
    played.lines[first_draw(played)].update(why="query", attempt=None)


def corrected_meanwhile(played: Played) -> None:
    """An answer is changed, and changed back, while the attempt is on."""
    row, k = played.lines[0]["row"], first_draw(played) + 4
    for label in (played.lines[0]["label"], "yes" if played.lines[0]["label"] == "no" else "no"):
        played.lines.insert(
            k, {"row": row, "label": label, "action": "correct", "why": "query", "attempt": None, **LINE}
        )


def draw_corrected(played: Played) -> None:
    """The answer about a draw is changed, and changed back."""
    k = first_draw(played) + 2
    entry = played.lines[k]
    for label in ("yes", "no") if entry["label"] == "no" else ("no", "yes"):
        k += 1
        played.lines.insert(k, {**entry, "label": label, "action": "correct"})


def asked_meanwhile(played: Played) -> None:
    """A row that was known before is told to have come while the attempt was on."""
    played.lines.insert(first_draw(played) + 4, played.lines.pop(0))


def looked_at(played: Played) -> None:
    """Draws are passed over, a row is answered about that was known before, and then the draws are answered."""
    k = first_draw(played)
    for place in range(3):
        played.lines.insert(k, {**played.lines[k + 2 * place], "action": "unsure", "label": None})
    played.lines.insert(k + 3, played.lines.pop(0))


def next_draw(played: Played) -> int:
    """The row that the generator draws next."""
    asked, claims = played.record["evidence"]["attempt"], played.record["certificate"]
    known = {line["row"] for line in played.lines}
    order = drawing(claims["store_digest"], played.record["parameters"]["seed"], asked, played.record["rows"])
    return next(row for row in order if row not in known)


def draw_dropped(played: Played) -> None:
    """A draw is called a query, as if it had been wrong; the attempt goes on with one more, as if it were whole."""
    k, row = first_draw(played), next_draw(played)
    gone = played.lines[k + 3]
    gone.update(why="query", attempt=None)
    answered_more(played, [gone["row"]], [1 if gone["label"] == "yes" else -1])
    value = played.rows.X[row] @ played.arrays["w"] + played.arrays["b"][0]
    played.lines.append({**played.lines[-1], "row": row, "label": "yes" if value > 0 else "no"})
    drawn = [line for line in played.lines if line["attempt"]]
    played.arrays["draws_ids"] = np.array([line["row"] for line in drawn])
    played.arrays["draws_signs"] = np.array([1 if line["label"] == "yes" else -1 for line in drawn], np.int8)
    played.record["evidence"]["population"] -= 1


def claimed_as_first(played: Played) -> None:
    """The second attempt is claimed as the first, which is called queries."""
    for entry in played.lines:
        if entry["attempt"] == 1:
            entry.update(why="query", attempt=None)
        elif entry["attempt"] == 2:
            entry["attempt"] = 1
    played.record["evidence"]["attempt"] = 1


def strange_draw(played: Played) -> None:
    """A draw of the first attempt that the generator does not draw."""
    k = next(k for k, entry in enumerate(played.lines) if entry["attempt"] == 1)
    order = list(drawing(played.about["digest"], 0, 1, 300))
    other = next(entry for entry in played.lines if entry["why"] == "query" and order.index(entry["row"]) > 150)
    played.lines[k].update(why="query", attempt=None)
    other.update(why="draw", attempt=1)


def draw_tries(tried: str) -> Change:
    """One draw of the evidence tries another hypothesis, "": none that anybody wrote down."""

    def change(played: Played) -> None:
        played.lines[first_draw(played) + 3]["tried"] = tried

    return change


def looked_at_another(played: Played) -> None:
    """The first draw is seen, and passed over, while another hypothesis is tried."""
    k = first_draw(played)
    seen = {**played.lines[k], "action": "skip", "label": None, "tried": "5" * 64}
    played.lines.insert(k, seen)


def taken_back_before(played: Played) -> None:
    """A draw was answered, and that taken back, before its attempt began: somebody has seen that it is right."""
    k = first_draw(played)
    answer = {**played.lines[k + 3], "why": "example", "attempt": None}
    played.lines[k:k] = [answer, {**answer, "action": "undo", "label": None}]


def fitted_afterwards(name: str) -> Change:
    """The hypothesis is another one than was tried, by one in 1e12."""

    def change(played: Played) -> None:
        tried = played.tried()
        for line in played.lines:
            if line["why"] == "draw":
                line["tried"] = tried
        played.arrays[name][0] *= 1 + 1e-12
        played.record["certificate"]["lower"] *= 1 - 1e-9

    return change


#: Forgeries of a campaign, the chain being made anew: (of which campaign, what is changed, what must be found false).
CAMPAIGNS: dict[str, tuple[str, Change, set[str]]] = {
    "an answer turned in the log": ("once", other_class, {"answers"}),
    "an answer turned in the model": ("once", draw_turned, {"answers", "evidence"}),
    "an answer left out of the log": ("once", lambda p: p.lines.pop(0), {"answers"}),
    "a draw left out of the log": ("once", lambda p: p.lines.pop(), {"answers", "attempt"}),
    "an answer left out of the model": ("once", unknown_to_the_model, {"answers"}),
    "another seed of the campaign": ("once", about(seed=5), {"campaign"}),
    "another share": ("once", about(error=0.01), {"campaign"}),
    "another store": ("once", about(digest=f"sha256:{0:064}"), {"campaign"}),
    "other classes": ("once", lambda p: p.record.update(classes=["yes", "no"]), {"campaign", "answers"}),
    "an answer changed meanwhile": ("once", corrected_meanwhile, {"attempt"}),
    "a draw changed meanwhile": ("once", draw_corrected, {"attempt"}),
    "an answer that came meanwhile": ("once", asked_meanwhile, {"attempt"}),
    "draws that were looked at before": ("once", looked_at, {"attempt"}),
    "a draw before the others": ("once", drawn_before, {"attempt"}),
    "a draw that tries another hypothesis": ("once", draw_tries("5" * 64), {"attempt"}),
    "a draw that tries nothing": ("once", draw_tries(""), {"attempt"}),
    "a draw that was seen before the hypothesis": ("once", looked_at_another, {"attempt"}),
    "a draw whose answer was known, and taken back": ("once", taken_back_before, {"attempt"}),
    "weights that are fitted afterwards": ("once", fitted_afterwards("w"), {"attempt"}),
    "an intercept that is fitted afterwards": ("once", fitted_afterwards("b"), {"attempt"}),
    "a wrong draw that is dropped": ("once", draw_dropped, {"attempt"}),
    "draws of another attempt": ("once", renumbered(1, 2), {"attempt", "earlier draws"}),
    "the second attempt as the first": ("twice", claimed_as_first, {"draws"}),
    "a later attempt in the log": ("twice", renumbered(1, 3), {"attempt", "earlier draws"}),
    "a row that nobody drew": ("twice", strange_draw, {"earlier draws"}),
    "taken back later": ("once", lambda p: more(p.lines[2]["row"], "undo", None)(p), {"taken back"}),
    "corrected later": ("once", lambda p: more(p.lines[2]["row"], "correct", "yes")(p), {"taken back"}),
    "contradicted later": ("once", lambda p: more(unanswered(p, -1))(p), {"late answers"}),
    "about no line": ("once", lambda p: p.record.update(log="1" * 64), {"log"}),
    "about no log": ("once", lambda p: p.record.update(log=None), {"log"}),
    "about an earlier line": ("once", lambda p: setattr(p, "model_line", 20), {"answers", "attempt"}),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CAMPAIGNS))
def test_forged_campaigns_are_refuted(once: Played, twice: Played, tmp_path: Path, name: str) -> None:
    """Each forgery of a log whose chain is whole is found by the claims that are false of it."""
    which, change, names = CAMPAIGNS[name]
    forged = {"once": once, "twice": twice}[which].copy()
    change(forged)
    assert set(failures(forged.write(tmp_path / "c"), forged.rows.path)) == names


def test_later_answers_that_agree_change_nothing(once: Played, tmp_path: Path) -> None:
    """A row answered after the model, as the model says; skipped rows; half a line at the end: all claims hold."""
    late = once.copy()
    late.lines.insert(first_draw(late) + 2, {**late.lines[-1], "action": "skip", "label": None})
    more(unanswered(late, 1))(late)
    place = late.write(tmp_path / "c")
    with open(place / "answers.jsonl", "ab") as file:
        file.write(b'{"number": 99, "row"')
    found = examine(place, once.rows.path)
    assert found.ok, found.failures
    assert "late answers" in [check.name for check in found.checks]


@pytest.mark.parametrize("status", ["stopped", "not_separable"])
def test_a_model_without_evidence_is_out_of_date_and_not_false(
    halfway: Played, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, status: str
) -> None:
    """Who stops a campaign and goes on without another model: answers that differ from the one there make nothing that
    it claims false, and are told; where it claims something of all rows they do.
    """
    left = halfway
    if status == "not_separable":
        rows, truth = two_sides(tmp_path_factory.mktemp("rows"), 300)
        truth[np.argsort(-np.abs(rows.X @ rows.X[0]))[::7]] *= -1
        left = played(rows, truth, **ASKED)
    assert left.record["status"] == status
    late = left.copy()
    late.model_line = len(late.lines)
    for row, action, label in [
        (unanswered(left, -1), "skip", None), (unanswered(left, -1), "label", "yes"),
        (left.lines[1]["row"], "correct", "yes"), (left.lines[2]["row"], "undo", None),
    ]:  # fmt: skip
        late.lines.append({"row": row, "label": label, "action": action, "why": "query", "attempt": None, **LINE})
    found = examine(late.write(tmp_path / "c"), left.rows.path)
    assert found.ok, found.failures
    told = {check.name: check.text for check in found.checks}
    assert "out of date by 1 answer;" in told["late answers"]
    assert "out of date by 3 lines" in told["taken back"]


def test_lines_that_are_cut_off_are_nobody_s_to_find(once: Played, tmp_path: Path) -> None:
    """A log that ends with the model's line is whole, whatever came after it: that is said."""
    late = once.copy()
    more(unanswered(late, -1))(late)
    place = late.write(tmp_path / "c")
    assert failures(place, once.rows.path) == ["late answers"]
    lines = (place / "answers.jsonl").read_bytes().split(b"\n")
    (place / "answers.jsonl").write_bytes(b"\n".join([*lines[:-2], b""]))
    found = examine(place, once.rows.path)
    assert found.ok
    assert any("cut off from the log" in text for text in found.unchecked)


@pytest.mark.parametrize("place", ["model", ""])
def test_seeds_that_were_tried_are_nobody_s_to_find(once: Played, tmp_path: Path, place: str) -> None:
    """Who draws by one seed after the other, or by one digest, until all draws are right: that is said of both."""
    once.write(tmp_path / "c")
    found = examine(tmp_path / "c" / place, once.rows.path)
    assert any("seeds were not tried" in text for text in found.unchecked)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("kind", list(STORES))
def test_rows_that_are_appended_change_nothing(tmp_path: Path, kind: str) -> None:
    """A campaign about a store that grew meanwhile holds of the rows that it began with, and of no others."""
    rows, truth = two_sides(tmp_path, 300, 4, 11, **STORES[kind])
    found = played(rows, truth, **ASKED)
    found.write(tmp_path / "c")
    options = STORES[kind]
    x = np.zeros((70, 4), rows.dtype)  # in the slab, wherever that is
    for _ in range(2):
        with StoreWriter.append(rows.path) as writer:
            more = None if options.get("weights") is None else np.ones(70)
            writer.write(csr_array(x) if options.get("sparse") else x, ["third"] * 70, more)
    for place in (tmp_path / "c", tmp_path / "c" / "model"):
        told = examine(place, rows.path)
        assert told.ok, told.failures
        assert told.rows == 300
        [text] = [check.text for check in told.checks if check.name == "rows"]
        assert "140 rows appended since are not checked" in text
    forged = found.copy()
    forged.record["rows"] = 440
    assert failures(forged.write_model(tmp_path / "m"), rows.path) == ["rows"]
    forged.record["certificate"]["store_digest"] = Store.open(rows.path).digest
    forged.record["certificate"].pop("store_sha256", None)
    assert {"draws", "evidence", "lower bound"} <= set(failures(forged.write_model(tmp_path / "n"), rows.path))


def _other_toml(old: str, new: str) -> Callable[[Path], Any]:
    def changed(place: Path) -> None:
        file = place / "campaign.toml"
        file.write_text(file.read_text().replace(old, new))

    return changed


def _other_label(text: bytes) -> bytes:
    return text.replace(b'"no"', b'"?"').replace(b'"yes"', b'"no"').replace(b'"?"', b'"yes"')


def _without_chain(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], Any]:
    def changed(place: Path) -> None:
        log = place / "answers.jsonl"
        log.write_bytes(b"\n".join(change(log.read_bytes().split(b"\n"))))

    return changed


#: What breaks the chain, or the folder: and words of the message.
BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "an answer": (_without_chain(lambda t: [_other_label(t[0]), *t[1:]]), "line 2: hash of the line before"),
    "another row": (_without_chain(lambda t: [t[0].replace(b'"row": ', b'"row": 1'), *t[1:]]), "line 2: hash"),
    "a line gone": (_without_chain(lambda t: [*t[:4], *t[5:]]), "line 5: number"),
    "lines swapped": (_without_chain(lambda t: [t[1], t[0], *t[2:]]), "line 1: number"),
    "the seed": (_other_toml("seed = 0", "seed = 1"), "line 1: hash of the line before"),
    "no JSON": (_without_chain(lambda t: [t[0][:-1], *t[1:]]), "line 1"),
    "a third label": (_without_chain(lambda t: [t[0].replace(b'"label": "', b'"label": "x'), *t[1:]]), "line 2: hash"),
    "no log": (lambda place: (place / "answers.jsonl").unlink(), "without answers.jsonl"),
    "no model": (lambda place: (place / "model").rename(place / "other"), "none yet"),
    "no TOML": (lambda place: (place / "campaign.toml").write_text("format ="), "campaign.toml"),
    "a log of line feeds": (lambda place: (place / "answers.jsonl").write_bytes(b"\n" * (64 << 20)), "line 1"),
    "a log without end": (lambda place: os.truncate(place / "answers.jsonl", 1 << 30), "at most 65,536"),
    "a log beyond all": (lambda place: os.truncate(place / "answers.jsonl", 1 << 40), "at most 1,073,741,824"),
    "an endless file": (lambda place: os.truncate(place / "campaign.toml", 1 << 30), "at most 65,536"),
    "a newer format": (_other_toml("version = 1", "version = 2"), "newer coremargin"),
    "a number of many digits": (_other_toml("memory = 1048576", f"memory = {'9' * 5000}"), "campaign.toml"),
    "a version beyond all floats": (_other_toml("version = 1", f"version = 0x{'f' * 300}"), "beyond 64 bits"),
    "a number that nobody can print": (_other_toml("memory = 1048576", f"memory = 0x{'f' * 4000}"), "beyond 64 bits"),
    "a number in a list": (_other_toml("classes = [", f"classes = [[0x{'f' * 4000}],"), "beyond 64 bits"),
    "a deep table": (_other_toml("memory = 1048576", f"memory = {{{'a.' * 30_000}a = 1}}"), "more levels"),
    "a deep version": (_other_toml("version = 1", f"version = {{{'a.' * 30_000}a = 1}}"), "more levels"),
    "no number": (_other_toml("error = 0.05", "error = nan"), "nan"),
    "tables in tables": (_other_toml("memory", f"{'a.' * 20_000}a"), "line 13"),
    "quoted tables in tables": (_other_toml("memory", '  "".' + '"".' * 15_000 + '"a"'), "line 13"),
    "a long file": (_other_toml("memory", f"#{' ' * (1 << 16)}\nmemory"), "at most 65,536 bytes"),
}  # fmt: skip


@pytest.mark.specimens(10)
@pytest.mark.parametrize("name", list(BROKEN))
def test_broken_folders_are_refused(once: Played, tmp_path: Path, name: str) -> None:
    """A line that was changed, left out or moved, a file that is gone: refused as it is read, the place named."""
    place = once.copy().write(tmp_path / "c")
    change, words = BROKEN[name]
    change(place)
    tracemalloc.start()
    with pytest.raises(DataError, match=words) as told:
        examine(place, once.rows.path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 << 20  # of which 16 are for the record
    assert len(str(told.value)) < 1000


def test_a_third_label_is_refused_though_the_chain_is_whole(once: Played, tmp_path: Path) -> None:
    """A label that is neither class, in a log whose hashes fit."""
    forged = once.copy()
    forged.lines[0]["label"] = "maybe"
    with pytest.raises(DataError, match="line 1: label"):
        examine(forged.write(tmp_path / "c"), once.rows.path)


def test_another_kind_of_model_is_no_campaign_s(once: Played, tmp_path: Path) -> None:
    """A hard margin in the folder of a campaign is refused."""
    place = once.copy().write(tmp_path / "c")
    values = json.loads((place / "model" / "model.json").read_text())
    for key in ("evidence", "answers", "log"):
        del values[key]
    values.update(problem="hard_margin", parameters={"epsilon": 0.1, "intercept": True, "strategy": "fast"})
    (place / "model" / "model.json").write_text(json.dumps(values))
    with np.load(place / "model" / "arrays.npz") as found:
        kept = {name: found[name] for name in ("w", "b", "alpha", "coreset_ids", "coreset_y", "coreset_x")}
    np.savez(place / "model" / "arrays.npz", **kept)
    with pytest.raises(DataError, match="expected the model of a campaign"):
        examine(place, once.rows.path)


def test_answers_that_contradict_each_other_are_proven(tmp_path: Path) -> None:
    """Rows that no hyperplane separates, as they are answered: confirmed of the model and of the campaign."""
    rows, truth = two_sides(tmp_path, 300)
    values = rows.X @ rows.X[0]
    other_class = truth.copy()
    other_class[np.argsort(-np.abs(values))[::7]] *= -1
    found = played(rows, other_class, **ASKED)
    assert found.record["status"] == "not_separable"
    assert failures(found.write_model(tmp_path / "m"), rows.path) == []
    assert failures(found.write(tmp_path / "c"), rows.path) == []


def test_rows_of_weight_zero_count_for_nothing(tmp_path: Path) -> None:
    """A draw, or a row of the coreset, that has weight 0 is refused; the population does not count such rows."""
    weights = np.random.default_rng(5).choice([0.0, 1.0], 300, p=[0.2, 0.8])
    rows, truth = two_sides(tmp_path, 300, 3, 4, weights=weights)
    found = played(rows, truth, **ASKED)
    assert found.record["evidence"]["population"] == (weights > 0).sum() - len(found.arrays["answered_ids"])
    forged = found.copy()
    forged.record["evidence"]["population"] = 300 - len(found.arrays["answered_ids"])
    assert failures(forged.write_model(tmp_path / "m"), rows.path) == ["evidence"]
    nobody = int(np.flatnonzero(weights == 0)[0])
    forged = found.copy()
    answered_more(forged, [nobody], [int(truth[nobody])])
    assert failures(forged.write_model(tmp_path / "o"), rows.path) == []
    larger_coreset(forged, nobody, int(truth[nobody]))
    assert failures(forged.write_model(tmp_path / "p"), rows.path) == ["coreset"]
    forged = found.copy()
    forged.arrays["draws_ids"][3] = int(np.flatnonzero(weights == 0)[0])
    forged.arrays["draws_signs"][3] = truth[np.flatnonzero(weights == 0)[0]]
    assert failures(forged.write_model(tmp_path / "n"), rows.path) == ["draws"]


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_campaigns_as_people_leave_them_are_confirmed(tmp_path: Path, seed: int, weighted: bool) -> None:
    """Rows skipped, answers in any order, late, corrected, taken back, attempts void: what is left holds; the engine
    draws by itself here, of rows with weights, too.
    """
    rng = np.random.default_rng(seed)
    options = {"weights": rng.choice([0.0, 0.5, 2.0], 300, p=[0.3, 0.4, 0.3])} if weighted else {}
    rows, truth = hidden_corner(tmp_path, **options) if seed % 2 else two_sides(tmp_path, 300, seed=seed, **options)
    campaign = Campaign.create(tmp_path / "c", rows.path, **ASKED, classes=CLASSES if seed else None, seed=seed)
    waiting, known = list[int](), dict[int, int]()
    while campaign.status["status"] == "running":
        if not waiting or rng.random() < 0.2:
            waiting += [one.row for one in campaign.ask(int(rng.integers(1, 9))) if one.row not in waiting]
        waiting = waiting or [one.row for one in campaign.ask(again=True)]
        row = waiting.pop(int(rng.integers(len(waiting))))
        if rng.random() < 0.03:
            campaign.skip(row)
            continue
        known[row] = truth[row]
        campaign.tell([row], [CLASSES[int(truth[row] > 0)]])
        again = int(rng.choice(list(known)))
        if rng.random() < 0.02 and len(known) > 5:
            campaign.undo(again)
            del known[again]
        elif rng.random() < 0.02 and len(known) > 5:
            for sign in (-truth[again], truth[again]):
                campaign.correct(again, CLASSES[int(sign > 0)])
    campaign.stop()
    campaign.close()
    found = examine(tmp_path / "c", rows.path)
    assert found.ok, found.failures
    assert found.status == "certified"
