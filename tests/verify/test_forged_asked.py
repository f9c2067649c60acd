"""Campaigns of several classes, with a loss, by class, with unsure rows: honest ones hold, every forgery is named.

They are played by forge_asked.py, by no engine. A forged campaign's chain of hashes is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coremargin.errors import DataError
from coremargin.formats.model_files import read_model_files
from coremargin.formats.open_folder import read_folder
from coremargin.verify.active import draws as verified_draws
from coremargin.verify.active.claim import active_claim
from coremargin.verify.active.scan import predicted_classes as sides_found
from coremargin.verify.active.soft import dual_bound
from coremargin.verify.examine import examine
from forge_active import LINE, Change, Played, drawing
from forge_active_judge import decision
from forge_asked import Maker, corners, least_wrong, mixed, most_wrong
from forge_asked_judge import lies
from forge_changes import about, array, failures, put, record
from forge_specimens import write_store

if TYPE_CHECKING:
    from coremargin.verify.active.claim import ActiveClaim

THREE = ["a", "b", "c"]
TWO = ["no", "yes"]
NO_ROW = frozenset(range(0, 400, 9))
SOFT: dict[str, Any] = {"loss": "hinge", "C": 1.0, "trial": 60, "error": 0.3}


@pytest.fixture(scope="module")
def specimens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """A campaign of each sort, all with evidence."""
    folder = tmp_path_factory.mktemp("asked")
    apart, among, three = corners(folder), mixed(folder, 320), mixed(folder, 260, 3)
    found = {
        "three": Maker(*apart, THREE).play(),
        "by class": Maker(*apart, THREE, by_class=True, error=0.2, nobody=NO_ROW).play(first=20),
        "soft": Maker(*among, TWO, **SOFT, nobody=NO_ROW).play(first=60),
        "squared": Maker(*among, TWO, **SOFT | {"loss": "squared_hinge"}, by_class=True).play(first=60),
        "again": Maker(*among, TWO, **SOFT | {"trial": 30}, by_class=True).play(first=60, go_on=True),
        "soft three": Maker(*three, THREE, **SOFT).play(first=60),
        "anew": Maker(*among, TWO, **SOFT, nobody=NO_ROW).play(first=60, go_on=True),
    }
    assert {name: one.record["evidence"]["wrong"] > 0 for name, one in found.items()} == {
        "three": False, "by class": False, "soft": True, "squared": True, "again": True, "soft three": True,
        "anew": True,
    }  # fmt: skip
    assert {found[name].record["evidence"]["attempt"] for name in ("again", "anew")} == {2}
    for name in ("by class", "soft"):
        drawn = [line for line in found[name].lines if line["action"] == "unsure" and line["why"] == "draw"]
        assert drawn, name
    return found


def test_honest_campaigns_are_confirmed(specimens: dict[str, Played], tmp_path: Path) -> None:
    """Of each sort the model by itself and the campaign hold, and what a judge of our own finds true."""
    for name, one in specimens.items():
        assert failures(one.write_model(tmp_path / name / "m"), one.rows.path) == [], name
        assert failures(one.write(tmp_path / name / "c"), one.rows.path) == [], name
        assert list(lies(one.rows, one.record, one.arrays)) == [], name


@pytest.mark.specimens(4)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["plain", "weighted", "sparse"])
def test_honest_campaigns_of_other_stores_are_confirmed(tmp_path: Path, kind: str, seed: int) -> None:
    """Rows with weights of 0, sparse ones, of several chunks; with classes that are rare, and certified or not."""
    weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0], 200)
    options: dict[str, Any] = {"plain": {}, "weighted": {"weights": weights}, "sparse": {"sparse": True}}[kind]
    options |= {"dtype": "float64", "chunk_rows": 16 << seed}
    apart = corners(tmp_path, 200, seed, shares=(0.5, 0.45, 0.05), **options)
    three, two = (mixed(tmp_path, 200, classes, seed, **options) for classes in (3, 2))
    for k, maker in enumerate([
        Maker(*apart, THREE, by_class=True, seed=seed), Maker(*apart, [1, 2, 3], error=0.05, seed=seed, nobody=NO_ROW),
        Maker(*three, THREE, by_class=True, **SOFT, seed=seed, nobody=NO_ROW),
        Maker(*two, [False, True], **SOFT | {"loss": "squared_hinge", "error": 0.1}, seed=seed),
    ]):  # fmt: skip
        found = maker.play(first=30)
        place = found.write(tmp_path / str(k))
        assert failures(place, found.rows.path) == [], k
        assert failures(place / "model", found.rows.path) == [], k


def test_classes_of_no_open_rows_are_fine(tmp_path: Path) -> None:
    """Where all rows of a class are answered its stratum is empty; and where all rows are, the population."""
    rows, truth = corners(tmp_path, 60)
    maker = Maker(rows, truth, THREE, by_class=True, error=0.3)
    maker.queried(np.flatnonzero(truth == 2).tolist())
    found = maker.play()
    assert found.record["evidence"]["strata"][2]["population"] == 0
    assert found.record["status"] == "certified"
    assert failures(found.write(tmp_path / "c"), rows.path) == []
    for nothing in (True, False):
        maker = Maker(rows, truth, THREE, by_class=True, error=0.3)
        maker.queried(range(60))
        whole = maker.play()
        assert whole.record["evidence"]["population"] == 0
        whole.record["status"] = "certified"
        if nothing:
            whole.record["evidence"] = None
        assert failures(whole.write(tmp_path / f"w{nothing}"), rows.path) == []


def test_what_is_proven_is_told(specimens: dict[str, Played], tmp_path: Path) -> None:
    """The evidence is told with all its numbers, and what nobody can check of such models is named."""
    one = specimens["soft"]
    found = examine(one.write(tmp_path / "c"), one.rows.path)
    shown, [text] = one.record["evidence"], [check.text for check in found.checks if check.name == "evidence"]
    assert f"{shown['draws']} draws of {shown['population']} rows, {shown['wrong']} of them wrong" in text
    assert f"at most {shown['error_bound']} are labelled wrongly and, if all of them have a label, at least" in text
    assert f"{one.record['unsure']} rows not counted that no annotator could label" in text
    assert any("no annotator could label the rows" in told for told in found.unchecked)
    alone = examine(tmp_path / "c" / "model", one.rows.path)
    assert any("number of draws was fixed" in told for told in alone.unchecked)
    assert not any("number of draws was fixed" in told for told in found.unchecked)
    one = specimens["by class"]
    found = examine(one.write(tmp_path / "d"), one.rows.path)
    [text] = [check.text for check in found.checks if check.name == "evidence"]
    for part in one.record["evidence"]["strata"]:
        assert f"{part['error_bound']} called {part['label']!r}" in text


def worst(played: Played) -> int:
    """The place of the class that the certificate is about."""
    return int(np.argmin([one["lower"] / one["upper"] for one in played.record["members"]]))


def member(which: int, **values: Callable[[float], float]) -> Change:
    """Other bounds of a class: of the one that the certificate is about, and there too, or of one after it."""

    def change(played: Played) -> None:
        k, claims = (worst(played) + which) % len(THREE), played.record["certificate"]
        for name, value in values.items():
            found = value(played.record["members"][k][name])
            played.record["members"][k][name] = found
            if not which:
                claims[name] = found
        if not which:
            claims["ratio"] = min(1.0, claims["lower"] / claims["upper"])

    return change


def bound(**values: Callable[[float], float]) -> Change:
    """Other bounds of a certificate, with the ratio that they have then."""

    def change(played: Played) -> None:
        claims = played.record["certificate"]
        for name, value in values.items():
            claims[name] = value(claims[name])
        claims["ratio"] = min(1.0, claims["lower"] / claims["upper"])

    return change


def best_shown(played: Played) -> None:
    """The certificate is about the best of the classes."""
    best = max(played.record["members"], key=lambda one: one["lower"] / one["upper"])
    claims = {name: best[name] for name in ("lower", "upper")}
    played.record["certificate"].update(claims, ratio=min(1.0, best["lower"] / best["upper"]))


def evidence(**values: Any) -> Change:
    """Other numbers of evidence that is about all rows together."""

    def change(played: Played) -> None:
        shown = played.record["evidence"]
        shown.update({name: value(shown[name]) if callable(value) else value for name, value in values.items()})

    return change


def stratum(k: int, other: int | None = None, **values: int) -> Change:
    """A stratum's numbers are others by so much; another one's make good for it, or the sums are those then."""

    def change(played: Played) -> None:
        shown = played.record["evidence"]
        for name, more in values.items():
            shown["strata"][k][name] += more
            if other is None:
                shown[name] += more
            else:
                shown["strata"][other][name] -= more

    return change


def column(k: int, change: Callable[[np.ndarray], Any]) -> Change:
    """Other dual weights of a class."""

    def changed(duals: np.ndarray) -> np.ndarray:
        duals[:, k] = change(duals[:, k])
        return duals

    return array("duals", changed)


def levelled(k: int) -> Change:
    """All rows of a side of a class's hyperplane have one weight."""

    def change(played: Played) -> None:
        mine = played.arrays["coreset_classes"] == k
        played.arrays["duals"][:, k] = 1.0 / np.where(mine, mine.sum(), (~mine).sum())

    return change


def sides_of(played: Played) -> np.ndarray:
    """The classes (n,) that the model gives all rows, by their places; without a loss of several, the best."""
    arrays = played.arrays
    if "w" in arrays:
        return (played.rows.X @ arrays["w"] + arrays["b"][0] >= 0).astype(int)
    return np.asarray((played.rows.X @ arrays["hypothesis"][:, :-1].T + arrays["hypothesis"][:, -1]).argmax(axis=1))


def codes_name(played: Played) -> str:
    """What the arrays of classes are called, and what places are in them."""
    return "classes" if "hypothesis" in played.arrays else "signs"


def coded(played: Played, codes: np.ndarray) -> np.ndarray:
    """Classes by place as the arrays have them."""
    return codes.astype(np.int32) if "hypothesis" in played.arrays else (2 * codes - 1).astype(np.int8)


def free_rows(played: Played) -> np.ndarray:
    """Rows without an answer that may be drawn, farthest from the hyperplanes first."""
    arrays = played.arrays
    known = np.concatenate([arrays["answered_ids"], arrays["draws_ids"], arrays.get("unsure_ids", np.zeros(0, int))])
    planes = np.column_stack([arrays["w"]]).T if "w" in arrays else arrays["hypothesis"][:, :-1]
    order = np.argsort(-np.abs(played.rows.X @ planes.T).min(axis=1))
    return order[~np.isin(order, known)]


def easy_draw(played: Played) -> None:
    """Another row of the same class, far away, instead of one drawn, and answered as the model says."""
    sides, arrays = sides_of(played), played.arrays
    place = next(
        k for k, row in enumerate(arrays["draws_ids"].tolist()) if (sides[free_rows(played)] == sides[row]).any()
    )
    row = next(row for row in free_rows(played).tolist() if sides[row] == sides[arrays["draws_ids"][place]])
    arrays["draws_ids"][place] = row


def swapped(played: Played) -> None:
    """The first two draws of the log have changed places."""
    for name in ("draws_ids", f"draws_{codes_name(played)}"):
        played.arrays[name][[0, 1]] = played.arrays[name][[1, 0]]


def one_less(played: Played) -> None:
    """The last draw is left out, the bounds stay."""
    row = int(played.arrays["draws_ids"][-1])
    shown, side = played.record["evidence"], sides_of(played)[row]
    wrong = int(side != places(played, "draws")[-1])
    for part in (shown, *([shown["strata"][side]] if "strata" in shown else [])):
        part["draws"] -= 1
        part["wrong"] -= wrong
    played.record["answers"] -= 1
    for name in ("draws_ids", f"draws_{codes_name(played)}"):
        played.arrays[name] = played.arrays[name][:-1]


def places(played: Played, name: str) -> np.ndarray:
    """The classes of rows by their places."""
    found = played.arrays[f"{name}_{codes_name(played)}"].astype(int)
    return found if "hypothesis" in played.arrays else (found + 1) // 2


def wrong_draws(played: Played) -> np.ndarray:
    """The places of draws that are wrong."""
    return np.flatnonzero(places(played, "draws") != sides_of(played)[played.arrays["draws_ids"]])


def turned_right(played: Played) -> None:
    """The answer about a wrong draw is what the model says, and all numbers fit that."""
    k = int(wrong_draws(played)[0])
    side = sides_of(played)[played.arrays["draws_ids"][k]]
    played.arrays[f"draws_{codes_name(played)}"][k] = coded(played, np.array([side]))[0]
    played.record["evidence"]["wrong"] -= 1
    played.record["evidence"]["error_least"] = 0


def turned_wrong(played: Played) -> None:
    """The answer about a draw is another than the model says, the numbers stay."""
    name = f"draws_{codes_name(played)}"
    values = played.arrays[name]
    values[0] = -values[0] if codes_name(played) == "signs" else (values[0] + 1) % 3


def called_unsure(played: Played) -> None:
    """A wrong draw is said to be a row that no annotator could label; the next one takes its place, all numbers fit."""
    k = int(wrong_draws(played)[0])
    arrays, shown, claims = played.arrays, played.record["evidence"], played.record["certificate"]
    row = int(arrays["draws_ids"][k])
    known = {*arrays["answered_ids"].tolist(), *arrays["unsure_ids"].tolist(), *arrays["draws_ids"].tolist()}
    order = drawing(claims["store_digest"], 0, shown["attempt"], played.record["rows"])
    sides = sides_of(played)
    for name in ("draws_ids", f"draws_{codes_name(played)}"):
        arrays[name] = np.delete(arrays[name], k)
    more = next(one for one in order if one not in known)
    arrays["draws_ids"] = np.append(arrays["draws_ids"], more)
    name = f"draws_{codes_name(played)}"
    arrays[name] = np.append(arrays[name], coded(played, sides[[more]]))
    arrays["unsure_ids"] = np.sort(np.append(arrays["unsure_ids"], row))
    played.record["unsure"] += 1
    shown["population"] -= 1
    shown["wrong"] -= 1
    shown["error_least"] = 0


def more_unsure(count: int) -> Change:
    """Rows that were not asked about are recorded as unsure; the population is given without them."""

    def change(played: Played) -> None:
        arrays, shown = played.arrays, played.record["evidence"]
        order = list(drawing(played.record["certificate"]["store_digest"], 0, shown["attempt"], played.record["rows"]))
        rows = [row for row in free_rows(played).tolist() if row in order[-60:]][:count]
        arrays["unsure_ids"] = np.sort(np.concatenate([arrays["unsure_ids"], rows]))
        played.record["unsure"] += count
        shown["population"] -= count
        sides = sides_of(played)
        for row in rows if "strata" in shown else []:
            shown["strata"][sides[row]]["population"] -= 1

    return change


def less_unsure(why: str) -> Change:
    """A row that no annotator could label, asked about for this reason, is left out of those."""

    def change(played: Played) -> None:
        row = next(line["row"] for line in played.lines if line["action"] == "unsure" and line["why"] == why)
        played.arrays["unsure_ids"] = played.arrays["unsure_ids"][played.arrays["unsure_ids"] != row]
        played.record["unsure"] -= 1

    return change


def no_strata(played: Played) -> None:
    """Draws by class are claimed to be draws of all rows."""
    del played.record["evidence"]["strata"]
    del played.record["parameters"]["by_class"]


def answer_gone(loss: bool) -> Change:
    """An answer that does not fit, or any, is left out of the model, but its row stays out of the population."""

    def change(played: Played) -> None:
        arrays = played.arrays
        off = places(played, "answered") != sides_of(played)[arrays["answered_ids"]]
        k = int(np.flatnonzero(off if loss else ~np.isin(arrays["answered_ids"], arrays["coreset_ids"]))[0])
        for name in ("answered_ids", f"answered_{codes_name(played)}"):
            arrays[name] = np.delete(arrays[name], k)
        played.record["answers"] -= 1

    return change


def supported(by: str) -> Change:
    """One more row of the coreset, without weight, from others than those answered."""

    def change(played: Played) -> None:
        arrays, row = played.arrays, int(played.arrays[f"{by}_ids"][0])
        arrays["coreset_ids"] = np.append(arrays["coreset_ids"], row)
        arrays["coreset_x"] = np.vstack([arrays["coreset_x"], played.rows.X[row]])
        arrays["duals"] = np.vstack([arrays["duals"], np.zeros(len(THREE))])
        arrays["coreset_classes"] = np.append(arrays["coreset_classes"], np.int32(0))
        played.record["certificate"]["coreset_rows"] += 1

    return change


def bare(played: Played) -> None:
    """The evidence is gone, with its draws."""
    played.record["answers"] -= played.record["evidence"]["draws"]
    played.record["evidence"] = None
    for name in ("draws_ids", f"draws_{codes_name(played)}"):
        played.arrays[name] = played.arrays[name][:0]


def scaled_plane(k: int, factor: float) -> Change:
    """A hyperplane of another length, or turned over."""
    return array("hypothesis", lambda h: np.vstack([h[:k], factor * h[k : k + 1], h[k + 1 :]]))


def several(*changes: Change) -> Change:
    """One change after the other."""

    def change(played: Played) -> None:
        for one in changes:
            one(played)

    return change


UP, DOWN = (lambda value: value * 1.01), (lambda value: value * 0.99)
OTHER = put(0, lambda code: (code + 1) % 3)

#: Forgeries of models by themselves: (of which campaign, what is changed, the claims that are found false, all).
MODELS: dict[str, tuple[str, Change, set[str]]] = {
    "another seed": ("three", record(seed=1), {"draws"}),
    "an upper bound too low": ("three", member(0, upper=DOWN), {"upper bound"}),
    "a lower bound too high": ("three", member(0, lower=UP), {"lower bound"}),
    "another class's upper bound": ("three", member(1, upper=DOWN), {"upper bound", "members"}),
    "another class's lower bound": ("three", member(1, lower=UP), {"lower bound", "members"}),
    "the best class shown": ("three", best_shown, {"members"}),
    "weights moved": ("three", levelled(1), {"upper bound"}),
    "weights too heavy": ("three", column(2, lambda a: 1.5 * a), {"dual weights"}),
    "a negative weight": ("three", array("duals", put((0, 0), -0.1)), {"dual weights"}),
    "a class turned over": ("three", scaled_plane(1, -1.0), {"lower bound", "evidence"}),
    "a class moved": ("three", array("hypothesis", put((2, -1), lambda b: b + 0.3)), {"lower bound"}),
    "a longer hyperplane": ("three", scaled_plane(0, 2.0), {"hypothesis"}),
    "two classes exchanged": ("three", array("hypothesis", lambda h: h[[1, 0, 2]]), {"lower bound", "evidence"}),
    "a coreset row of another class": ("three", array("coreset_classes", OTHER), {"coreset", "dual weights"}),
    "an answer of another class": ("three", array("answered_classes", OTHER), {"lower bound", "coreset"}),
    "a draw of another class": ("three", turned_wrong, {"evidence"}),
    "an easy draw": ("three", easy_draw, {"draws"}),
    "a smaller bound": ("three", evidence(error_bound=lambda n: n - 1), {"evidence"}),
    "a smaller population": ("three", evidence(population=lambda n: n - 1), {"evidence"}),
    "no evidence": ("three", bare, {"evidence"}),
    "a smaller share": ("three", record(error=0.01), {"evidence"}),
    "a smaller epsilon": ("three", record(epsilon=0.001), {"status", "members", "evidence"}),
    "a stratum's bound": ("by class", stratum(0, error_bound=-1), {"evidence"}),
    "a stratum's population": ("by class", stratum(0, 1, population=-1), {"evidence"}),
    "a stratum's draws": ("by class", stratum(0, 1, draws=-1), {"evidence"}),
    "a stratum's draws, and a bound that leaves room": (
        "by class", several(record(status="stopped"), stratum(0, 1, draws=-1), stratum(0, error_bound=30)),
        {"evidence"},
    ),
    "an easy draw of its class": ("by class", easy_draw, {"draws"}),
    "draws by class in another order": ("by class", swapped, {"draws"}),
    "a draw by class less": ("by class", one_less, {"evidence"}),
    "draws by class as draws of all": ("by class", no_strata, {"draws"}),
    "by class a smaller share": ("by class", record(error=0.05), {"evidence"}),
    "an unsure draw left out": ("by class", less_unsure("draw"), {"draws", "evidence"}),
    "an unsure row left out": ("by class", less_unsure("query"), {"draws", "evidence"}),
    "an unsure row of the coreset": ("by class", supported("unsure"), {"coreset"}),
    "a draw of the coreset": ("by class", supported("draws"), {"coreset"}),
    "a value too low": ("soft", bound(upper=lambda v: v * 0.999), {"value", "status"}),
    "a dual bound too high": ("soft", bound(lower=lambda v: v * 1.0001), {"dual bound", "status"}),
    "weights too light": ("soft", array("alpha", lambda a: 0.9 * a), {"dual bound"}),
    "a weight above C": ("soft", array("alpha", put(0, lambda a: a + 1.0)), {"dual weights"}),
    "a weight below zero": ("soft", array("alpha", put(0, -1.0)), {"dual weights", "dual bound"}),
    "weights out of balance": ("soft", array("alpha", put(-1, lambda a: 0.5 * a)), {"dual weights", "dual bound"}),
    "a wrong draw less": ("soft", evidence(wrong=lambda n: n - 1), {"evidence"}),
    "a wrong draw more": ("soft", evidence(wrong=lambda n: n + 1), {"evidence"}),
    "with a loss, a smaller bound": ("soft", evidence(error_bound=lambda n: n - 1), {"evidence"}),
    "more that are wrong for certain": ("soft", evidence(error_least=lambda n: n + 1), {"evidence"}),
    "fewer draws than were to be": ("soft", one_less, {"evidence"}),
    "fewer draws, that claim nothing": (
        "soft", several(record(status="stopped"), one_less, evidence(error_bound=lambda n: n + 50, error_least=0)),
        {"evidence"},
    ),
    "another C": ("soft", record(C=0.9), {"dual weights", "dual bound"}),
    "a larger C": ("soft", record(C=1.1), {"value"}),
    "another loss": ("soft", record(loss="squared_hinge"), {"value", "dual bound"}),
    "a hypothesis too long": ("soft", array("w", lambda w: 1.05 * w), {"value"}),
    "an intercept that there is not": ("soft", record(intercept=False), {"hypothesis"}),
    "with a loss, a smaller share": ("soft", record(error=0.02), {"evidence"}),
    "with a loss, an answer turned": ("soft", array("answered_signs", lambda s: -s), {"value", "coreset"}),
    "no separation of a soft margin": ("soft", record(status="not_separable"), {"status", "evidence"}),
    "another radius": ("soft", record(radius=1.0), {"radius"}),
    "a gap that proves nothing": (
        "soft", several(record(status="stopped"), bound(lower=lambda v: 0.5 * v)), {"evidence"},
    ),
    "with a loss, no evidence": ("squared", bare, {"evidence"}),
    "a stratum's least": ("squared", stratum(1, error_least=1), {"evidence"}),
    "a stratum's most": ("squared", stratum(1, error_bound=-1), {"evidence"}),
    "wrong draws of another stratum": ("squared", stratum(1, 0, wrong=1), {"evidence"}),
    "an easy draw of a stratum": ("squared", easy_draw, {"draws"}),
    "squared, a dual bound too high": ("squared", bound(lower=lambda v: v * 1.0001), {"dual bound", "status"}),
    "squared, weights too heavy": ("squared", array("alpha", lambda a: 1.1 * a), {"dual bound"}),
    "squared, called hinge": ("squared", record(loss="hinge"), {"value", "dual weights", "dual bound"}),
    "the second attempt as the first": ("again", evidence(attempt=1), {"draws"}),
    "a third attempt": ("again", evidence(attempt=3), {"draws", "evidence"}),
    "a class's value too low": ("soft three", member(1, upper=lambda v: v * 0.999), {"value", "members"}),
    "a class's dual bound too high": ("soft three", member(1, lower=lambda v: v * 1.001), {"dual bound", "members"}),
    "a class's weights too heavy": ("soft three", column(0, lambda a: 2 * a), {"dual weights", "dual bound"}),
    "a class with another's hyperplane": (
        "soft three", array("hypothesis", lambda h: h[[0, 0, 2]]), {"value", "evidence"},
    ),
    "another of three drawn": ("soft three", turned_wrong, {"evidence"}),
}  # fmt: skip


@pytest.mark.specimens(33)
@pytest.mark.parametrize("name", list(MODELS))
def test_forged_models_are_refuted(specimens: dict[str, Played], tmp_path: Path, name: str) -> None:
    """Each forgery is found by the claims that are false of it, and by no others."""
    which, change, names = MODELS[name]
    forged = specimens[which].copy()
    change(forged)
    assert set(failures(forged.write_model(tmp_path / "m"), forged.rows.path)) == names


def test_rows_that_two_classes_claim_are_no_evidence(tmp_path: Path) -> None:
    """Rows far from all hyperplanes that lie on the positive side of two: the margins hold, evidence does not."""
    near, truth = corners(tmp_path)
    X = np.vstack([near.X, [[-90.0, 0.0], [-95.0, 1.0]]])
    rows = write_store(tmp_path / "far.zarr", X, [None] * len(X))
    maker = Careless(rows, np.append(truth, [1, 2]), THREE, error=0.2)
    found = maker.play()
    assert found.record["status"] == "certified"
    [false] = examine(found.write_model(tmp_path / "m"), rows.path).failures
    assert false.name == "evidence"
    assert "2 rows without an answer are claimed by no class, or by more than one" in false.text
    assert list(lies(rows, found.record, found.arrays)) == ["rows that no class claims, or two"]
    bare(found)
    found.record["status"] = "stopped"
    assert failures(found.write_model(tmp_path / "n"), rows.path) == []


def rare(folder: Path, **options: Any) -> Played:
    """A campaign by class of which one stratum is drawn whole, and some of its draws come after all others."""
    rows, truth = corners(folder, 200, 5, shares=(0.48, 0.47, 0.05), **options)
    found = Maker(rows, truth, THREE, by_class=True, loss="hinge", C=10.0, trial=25, error=0.3).play(first=30)
    part = found.record["evidence"]["strata"][2]
    assert part["draws"] == part["population"] > 2
    sides = sides_of(found)[found.arrays["draws_ids"]]
    assert (sides[-2:] == 2).all()
    return found


def test_rows_of_no_weight_are_no_draws_of_a_stratum_that_is_drawn_whole(tmp_path: Path) -> None:
    """Where the order says nothing a row of weight 0 in the place of one that counts is refused all the same; what
    order these draws have is nobody's concern.
    """
    weights = np.random.default_rng(0).choice([0.0, 1.0], 200, p=[0.3, 0.7])
    found = rare(tmp_path, weights=weights)
    assert failures(found.write(tmp_path / "c"), found.rows.path) == []
    sides, arrays = sides_of(found), found.arrays
    light = next(row for row in np.flatnonzero(weights == 0) if sides[row] == 2 and row not in arrays["answered_ids"])
    forged = found.copy()
    forged.arrays["draws_ids"][-1] = light
    assert failures(forged.write_model(tmp_path / "m"), found.rows.path) == ["draws"]
    other = found.copy()
    for name in ("draws_ids", "draws_classes"):
        other.arrays[name][[-1, -2]] = other.arrays[name][[-2, -1]]
    assert failures(other.write_model(tmp_path / "n"), found.rows.path) == []


def test_only_so_much_of_the_order_is_gone_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strata that are drawn whole may have draws beyond that; others may not, and nobody goes further."""
    found = rare(tmp_path)
    sides, ids = sides_of(found)[found.arrays["draws_ids"]], found.arrays["draws_ids"].tolist()
    order = [row for row in drawing(found.rows.digest, 0, 1, 200) if row not in found.arrays["answered_ids"]]
    last = order.index(ids[int(np.flatnonzero(sides != 2)[-1])]) + 1
    assert order.index(ids[-1]) > last
    monkeypatch.setattr(verified_draws, "draw_order", _one_by_one)
    for walked, names in ((last, []), (last - 1, ["draws"])):
        monkeypatch.setattr(verified_draws, "WALKED", walked)
        assert failures(found.write_model(tmp_path / "m"), found.rows.path) == names


def _one_by_one(
    claim: ActiveClaim, rows: Any, attempt: int, known: set[int], spend: Callable[[int], object]
) -> Iterator[int]:
    """As the verifier's own, of rows without weights, pending what is spent for each row."""
    for row in drawing(claim.store_digest, claim.seed, attempt, rows.rows):
        if row not in known:
            spend(1)
            yield row


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("seed", range(5))
def test_any_weights_prove_a_bound_that_holds(tmp_path: Path, seed: int, loss: str) -> None:
    """Weights out of balance, out of their box, of any size: what they prove is never above the best value there is,
    and those of a solver prove nearly that.
    """
    rng = np.random.default_rng(seed)
    rows, truth = mixed(tmp_path, 40, 2, seed)
    maker = Maker(rows, truth, TWO, loss=loss, C=1.0, trial=10)
    maker.queried(range(40))
    played = maker.play(first=0, attempts=0)
    place = played.write_model(tmp_path / "m")
    claim = active_claim(read_folder(place, read_model_files))
    [plane] = claim.planes
    best = played.record["certificate"]["upper"]
    assert best * (1 - 1e-6) < dual_bound(claim, plane) <= best
    for k in range(200):
        size = len(plane.alpha)
        a = plane.alpha * (1 + rng.standard_normal(size) * 10.0 ** rng.uniform(-9, 1)) if k % 2 else rng.random(size)
        if k % 3 == 0:
            a = a * (plane.y > 0)  # all on one side
        assert dual_bound(claim, replace(plane, alpha=a)) <= best, k
    few = np.where(np.arange(40) < 10, 1, -1)  # w = 0, b = -1 has the loss 2, or 4, of these
    short = replace(plane, x=rows.X * 1e-4, y=few, alpha=np.ones(40), ids=np.arange(40))
    assert dual_bound(claim, short) <= (20 if loss == "hinge" else 40)


def test_sides_are_decided_exactly() -> None:
    """Where plain float64 is wrong about a side, or about the largest of values, sums that are rounded once are not."""
    rng = np.random.default_rng(3)
    X = rng.integers(-3, 4, size=(400, 3)).astype(float)
    X[:, 2] = X[:, 0]
    planes = [np.array([1e16, 1.0, -1e16]), np.array([3e16, -1.0, -3e16]), np.array([1e16, 0.0, -1e16])]
    lengths = np.linalg.norm(X, axis=1)
    for several, loss in ((False, ""), (True, ""), (True, "hinge")):
        some = [SimpleNamespace(w=w, b=0.25 * k, features=3) for k, w in enumerate(planes[: 3 if several else 1])]
        claim: Any = SimpleNamespace(planes=some, several=several, loss=loss, by_largest=bool(loss))
        found = sides_found(claim, X, lengths)
        for x, side in zip(X.tolist(), found.tolist(), strict=True):
            values = [decision(plane.w.tolist(), plane.b, x) for plane in some]
            above = [k for k, value in enumerate(values) if value > 0]
            one = above[0] if len(above) == 1 else -1
            assert side == (int(values[0] >= 0) if not several else values.index(max(values)) if loss else one)


class Careless(Maker):
    """Asks about the first rows, and about no row that two classes claim."""

    def near(self, planes: list[Any]) -> list[int]:
        """Rows within a slab only."""
        values = np.column_stack([np.abs(self.rows.X @ plane.w + plane.b) / plane.upper for plane in planes])
        free = [row for row in np.argsort(values.min(axis=1)).tolist() if self.counted[row] and row not in self.known]
        return [row for row in free[:1] if values[row].min() < 1 - 0.9 * self.epsilon]

    def ask(self, row: int, why: str, attempt: int | None = None) -> int | None:
        """Nothing of the rows far away."""
        return super().ask(row, why, attempt) if row < len(self.truth) - 2 else 0


#: What no record, or no arrays, can say: (of which campaign, what is changed, words of the message).
STRANGE: dict[str, tuple[str, Change, str]] = {
    "a wrong draw without a loss": ("three", evidence(wrong=1), "no wrong draw without a loss"),
    "some wrong for certain": ("three", evidence(error_least=1), "no wrong draw without a loss"),
    "strata that do not add up": ("by class", evidence(error_bound=lambda n: n + 1), "add up"),
    "no strata": ("by class", lambda p: p.record["evidence"].pop("strata"), "strata with by_class"),
    "strata of nothing asked": ("by class", lambda p: p.record["parameters"].pop("by_class"), "strata with by_class"),
    "strata in another order": ("by class", lambda p: p.record["evidence"]["strata"].reverse(), "in their order"),
    "a loss without trial": ("soft", lambda p: p.record["parameters"].pop("trial"), "loss, C and trial"),
    "bounds in another order": ("soft", evidence(error_least=lambda n: 10**6), "bounds in order"),
    "more wrong than drawn": ("soft", evidence(wrong=61), "more rows than there are"),
    "a margin with a loss": ("soft", lambda p: p.record["certificate"].update(kind="margin"), "duality_gap"),
    "members in another order": ("three", lambda p: p.record["members"].reverse(), "bounds of each class"),
    "a member less": ("three", lambda p: p.record["members"].pop(), "bounds of each class"),
    "a class beyond all": ("three", array("draws_classes", put(0, 3)), "places of classes"),
    "a class before all": ("three", array("answered_classes", put(0, -1)), "places of classes"),
    "no number": ("three", array("duals", put((0, 0), np.nan)), "finite"),
    "unsure and answered": ("soft", lambda p: p.arrays["unsure_ids"].__setitem__(0, p.arrays["draws_ids"][0]), "rows"),
    "unsure out of order": ("soft", array("unsure_ids", lambda v: v[::-1].copy()), "rows in order"),
    "unsure rows that are not counted": ("soft", lambda p: p.record.pop("unsure"), "unsure_ids"),
    "unsure rows beyond the store": ("soft", array("unsure_ids", put(-1, 320)), "different rows below"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(STRANGE))
def test_strange_files_are_refused(specimens: dict[str, Played], tmp_path: Path, name: str) -> None:
    """What no model can have is refused as it is read, and the message says what."""
    which, change, words = STRANGE[name]
    forged = specimens[which].copy()
    change(forged)
    with pytest.raises(DataError, match=words):
        examine(forged.write_model(tmp_path / "m"), forged.rows.path)


def first_draw(played: Played) -> int:
    """The place of the first line of the attempt that is evidence."""
    wanted = played.record["evidence"]["attempt"]
    return next(k for k, line in enumerate(played.lines) if line["attempt"] == wanted)


def asked_meanwhile(played: Played) -> None:
    """A row that was known before is told to have come while the attempt was on."""
    played.lines.insert(first_draw(played) + 4, played.lines.pop(0))


def unsure_meanwhile(played: Played) -> None:
    """A draw is answered, after it was said that nobody could."""
    k = first_draw(played) + 3
    played.lines.insert(k, {**played.lines[k], "action": "unsure", "label": None})


def unsure_of_answered(played: Played) -> None:
    """That no annotator can label it is said of a draw that is answered: the answer holds."""
    k = first_draw(played)
    k = next(place for place in range(k, len(played.lines)) if played.lines[place]["action"] == "label")
    played.lines.insert(k + 1, {**played.lines[k], "action": "unsure", "label": None})


def unsure_line(change: str) -> Change:
    """A line that says that no annotator can label a row is gone, or one of another row."""

    def changed(played: Played) -> None:
        k = next(k for k, line in enumerate(played.lines) if line["action"] == "unsure")
        if change == "gone":
            played.lines.pop(k)
        elif change == "skip":
            played.lines[k]["action"] = "skip"
        else:
            row = next(row for row in free_rows(played).tolist())
            played.lines.append({**played.lines[k], "row": row, "why": "query", "attempt": None})

    return changed


def put_aside(**words: Any) -> Change:
    """When all draws are answered, rows that were not drawn are said to be such that no annotator could label, and no
    longer counted. Chosen among those that the model has right, they would make any claim true of what is left.
    """

    def changed(played: Played) -> None:
        rows, shown = free_rows(played)[-20:], played.record["evidence"]
        for row in rows.tolist():
            played.lines.append({**LINE, "row": row, "label": None, "action": "unsure", **words})
        old = played.arrays.get("unsure_ids", np.zeros(0, np.int64))
        played.arrays["unsure_ids"] = np.sort(np.append(old, rows))
        played.record["unsure"] = len(played.arrays["unsure_ids"])
        sides = sides_of(played)
        parts = list(shown.get("strata", ()))
        for part in [shown, *parts]:
            code = played.record["classes"].index(part["label"]) if "label" in part else None
            gone = len(rows) if code is None else int((sides[rows] == code).sum())
            part["population"] -= gone
            part["error_least"] = max(0, part["error_least"] - gone)
            part["error_bound"] = min(part["error_bound"], part["population"])
        for name in ("error_least", "error_bound") if parts else ():
            shown[name] = sum(part[name] for part in parts)

    return changed


def dropped(played: Played) -> None:
    """A wrong draw is called a query, and the next one that is right is drawn for it, all numbers and the log fit."""
    k, shown = int(wrong_draws(played)[0]), played.record["evidence"]
    arrays, row = played.arrays, int(played.arrays["draws_ids"][k])
    known = {line["row"] for line in played.lines}
    order = drawing(played.record["certificate"]["store_digest"], 0, shown["attempt"], played.record["rows"])
    sides, name = sides_of(played), codes_name(played)
    more = next(one for one in order if one not in known)
    code = arrays[f"draws_{name}"][[k]]
    place = int(np.searchsorted(arrays["answered_ids"], row))
    arrays["answered_ids"] = np.insert(arrays["answered_ids"], place, row)
    arrays[f"answered_{name}"] = np.insert(arrays[f"answered_{name}"], place, code)
    arrays["draws_ids"] = np.append(np.delete(arrays["draws_ids"], k), more)
    arrays[f"draws_{name}"] = np.append(np.delete(arrays[f"draws_{name}"], k), coded(played, sides[[more]]))
    line = next(line for line in played.lines if line["row"] == row)
    line.update(why="query", attempt=None)
    played.lines.append({**line, "row": more, "label": TWO[sides[more]], "why": "draw", "attempt": shown["attempt"]})
    shown["population"] -= 1
    shown["wrong"] -= 1
    shown["error_least"] = 0
    played.record["answers"] += 1


def fewer_fit(played: Played) -> None:
    """The last draw is left out everywhere, and a trial is what there is then."""
    one_less(played)
    shown = played.record["evidence"]
    played.record["parameters"]["trial"] = shown["draws"]
    played.lines.pop()
    spent = (1 - Maker.confidence) / 2 / 2
    numbers = shown["population"], shown["draws"], shown["wrong"]
    shown.update(error_bound=most_wrong(*numbers, spent) + 1, error_least=max(0, least_wrong(*numbers, spent) - 1))


def later(played: Played, rows: list[int], *, wrong: bool, action: str = "label") -> None:
    """Rows are answered after the model, as it says or otherwise."""
    played.model_line = len(played.lines)
    sides, classes = sides_of(played), played.record["classes"]
    for row in rows:
        label = classes[(int(sides[row]) + wrong) % len(classes)] if action == "label" else None
        played.lines.append({"row": row, "label": label, "action": action, "why": "query", "attempt": None, **LINE})


def later_wrong(count: int) -> Change:
    """So many rows are answered after the model, otherwise than it says."""
    return lambda played: later(played, free_rows(played)[:count].tolist(), wrong=True)


def drawn_though_unsure(played: Played) -> None:
    """A row that no annotator could label before attempt 1 began is answered as a draw of it."""
    row = next(line["row"] for line in played.lines if line["action"] == "unsure" and line["why"] == "example")
    k = next(k for k, line in enumerate(played.lines) if line["attempt"] == 1)
    played.lines.insert(k + 5, {**played.lines[k], "row": row, "action": "label", "label": TWO[0]})
    played.arrays["unsure_ids"] = played.arrays["unsure_ids"][played.arrays["unsure_ids"] != row]
    played.record["unsure"] -= 1


#: Forgeries of a campaign, the chain being made anew: (of which campaign, what is changed, what is found false).
CAMPAIGNS: dict[str, tuple[str, Change, set[str]]] = {
    "another trial": ("soft", about(trial=61), {"campaign"}),
    "another C of the campaign": ("soft", about(C=2.0), {"campaign"}),
    "another loss of the campaign": ("soft", about(loss="squared_hinge"), {"campaign"}),
    "by class, of the campaign only": ("soft", about(by_class=True), {"campaign"}),
    "by class, of the model only": ("by class", lambda p: p.about.pop("by_class"), {"campaign"}),
    "another order of classes": ("three", about(classes=["a", "c", "b"]), {"campaign"}),
    "one class more": ("three", about(classes=["a", "b", "c", "d"]), {"campaign"}),
    "draws left out, and a trial that fits": ("soft", fewer_fit, {"campaign", "draws set aside"}),
    "a wrong draw turned": ("soft", turned_right, {"answers"}),
    "a wrong draw called unsure": ("soft", called_unsure, {"answers", "attempt", "unsure rows"}),
    "a wrong draw that is dropped": ("soft", dropped, {"attempt", "value"}),
    "with a loss, an answer gone": ("soft", answer_gone(True), {"answers", "coreset", "evidence"}),
    "without a loss, an answer gone": ("three", answer_gone(False), {"answers", "evidence"}),
    "rows called unsure": ("soft", more_unsure(20), {"unsure rows"}),
    "rows called unsure, by class": ("by class", more_unsure(3), {"evidence", "unsure rows"}),
    "an unsure row gone from the log": ("soft", unsure_line("gone"), {"unsure rows"}),
    "an unsure row that was skipped": ("by class", unsure_line("skip"), {"unsure rows"}),
    "an unsure row more in the log": ("soft", unsure_line("more"), {"unsure rows", "attempt"}),
    "rows set aside after the draws": ("soft", put_aside(why="query", attempt=None), {"attempt"}),
    "rows set aside after the draws, by class": (
        "by class", put_aside(why="query", attempt=None), {"attempt", "evidence"},
    ),
    "rows set aside as draws": ("soft", put_aside(why="draw", attempt=1), {"draws set aside"}),
    "rows set aside as draws, by class": (
        "by class", put_aside(why="draw", attempt=1), {"draws set aside", "evidence"},
    ),
    "with a loss, an answer that came meanwhile": ("soft", asked_meanwhile, {"attempt"}),
    "by class, an answer that came meanwhile": ("by class", asked_meanwhile, {"attempt"}),
    "a draw answered that nobody could": ("soft", unsure_meanwhile, {"attempt"}),
    "the first attempt again": ("again", evidence(attempt=1), {"draws", "attempt"}),
    "a draw of attempt 1 that no annotator could label": (
        "anew", drawn_though_unsure, {"earlier draws", "answers", "evidence"},
    ),
    "too many wrong answers later": ("soft", later_wrong(70), {"late answers"}),
    "a wrong answer later, without a loss": ("three", later_wrong(1), {"late answers"}),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CAMPAIGNS))
def test_forged_campaigns_are_refuted(specimens: dict[str, Played], tmp_path: Path, name: str) -> None:
    """Each forgery of a log whose chain is whole is found by the claims that are false of it."""
    which, change, names = CAMPAIGNS[name]
    forged = specimens[which].copy()
    change(forged)
    assert set(failures(forged.write(tmp_path / "c"), forged.rows.path)) == names


def test_what_changes_nothing_is_accepted(specimens: dict[str, Played], tmp_path: Path) -> None:
    """Skipped draws, "unsure" said of a row that is answered, rows labelled later that nobody could, answers that
    contradict a model with a loss as it says that some may: all claims hold.
    """
    for name in ("soft", "by class"):
        for k, change in enumerate([
            unsure_of_answered,
            lambda p: p.lines.insert(first_draw(p) + 2, {**p.lines[-1], "action": "skip", "label": None}),
            lambda p: later(p, p.arrays["unsure_ids"][:2].tolist(), wrong=True),
            lambda p: later(p, free_rows(p)[:3].tolist(), wrong=False),
            lambda p: later(p, free_rows(p)[:1].tolist(), wrong=True, action="unsure"),
        ]):  # fmt: skip
            one = specimens[name].copy()
            change(one)
            assert failures(one.write(tmp_path / f"{name}{k}"), one.rows.path) == [], (name, k)
    one = specimens["soft"].copy()
    later_wrong(3)(one)
    found = examine(one.write(tmp_path / "late"), one.rows.path)
    assert found.ok
    [text] = [check.text for check in found.checks if check.name == "late answers"]
    evidence = one.record["evidence"]
    assert f"with its draws {3 + evidence['wrong']}, and it claims at most {evidence['error_bound']}" in text


def test_contradicting_answers_of_several_classes_are_proven(tmp_path: Path) -> None:
    """Equal rows answered differently: no hyperplane has one of the two classes apart; another says it does not."""
    near, truth = corners(tmp_path, 60)
    X = np.vstack([near.X, near.X[:1]])
    rows, other = write_store(tmp_path / "twice.zarr", X, [None] * 61), (int(truth[0]) + 1) % 3
    maker = Maker(rows, np.append(truth, other), THREE)
    maker.queried(range(1, 60))
    found = maker.play(attempts=0)
    found.lines.append({"row": 0, "label": THREE[truth[0]], "action": "label", "why": "query", "attempt": None, **LINE})
    found.lines.append({**found.lines[-1], "row": 60, "label": THREE[other]})
    pairs = sorted([*maker.known.items(), (0, int(truth[0])), (60, other)])
    duals = np.zeros((2, 3))
    duals[:, [truth[0], other]] = 1.0
    found.arrays.update(
        coreset_ids=np.array([0, 60]), coreset_x=X[[0, 60]].astype(near.dtype).astype(float), duals=duals,
        coreset_classes=np.array([truth[0], other], np.int32),
        answered_ids=np.array([row for row, _ in pairs]), answered_classes=np.array([k for _, k in pairs], np.int32),
    )  # fmt: skip
    found.record.update(status="not_separable", answers=len(pairs))
    third = 3 - int(truth[0]) - other
    members = [{"label": name, "lower": None, "upper": None if k == third else 0.0} for k, name in enumerate(THREE)]
    found.record["members"] = members
    found.record["certificate"].update(kind="not_separable", coreset_rows=2, lower=None, upper=0.0, ratio=None)
    assert failures(found.write(tmp_path / "c"), rows.path) == []
    assert list(lies(rows, found.record, found.arrays)) == []
    for change, names in (
        (lambda p: p.arrays["duals"].__setitem__((1, other), 0.5), {"dual weights"}),
        (lambda p: p.arrays["coreset_classes"].__setitem__(1, third), {"coreset", "dual weights", "overlap"}),
        (lambda p: p.record["certificate"].update(upper=1.0), {"members", "overlap"}),
        (lambda p: p.record["members"][other].update(lower=0.1), {"lower bound"}),
    ):
        forged = found.copy()
        change(forged)
        assert names & set(failures(forged.write(tmp_path / "f"), rows.path)), names
