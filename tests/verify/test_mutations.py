"""Models and stores mutated at random: what is false is refused, and nothing crashes, hangs or takes all memory.

The quick tests try some hundreds of mutations, the slow ones 10,000 of each kind; they are the same in every run, and
a failing one says how to repeat it. forge_run.py says what must hold of each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forge_repeat
from coremargin.data.store import Store
from coremargin.verify import verify
from forge_judges import Bench
from forge_plans import Draft
from forge_run import Attack, Campaign, Work, accepted
from forge_specimens import ASKED, KINDS, STORES, Specimens
from forge_stores import StoreAttack

FEW, MANY = 30, 10_000
EVERY = [*KINDS, *STORES]


def survived(kind: str, specimens: Specimens, folder: Path, mutations: int) -> Campaign:
    """The attack on models, or on stores, of a kind, that found nothing false accepted and no crash."""
    attack: Campaign = (StoreAttack if kind in STORES else Attack)(kind, specimens, folder)
    wrong = attack.run(range(mutations))
    assert not wrong, "\n".join(wrong)
    assert sum(attack.counts.values()) == mutations
    return attack


@pytest.mark.specimens(4)
@pytest.mark.parametrize("kind", EVERY)
def test_a_few_mutations(specimens: Specimens, tmp_path: Path, kind: str) -> None:
    """Of some mutations of each kind none is accepted that is false, and none crashes."""
    survived(kind, specimens, tmp_path, FEW)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", EVERY)
def test_ten_thousand_mutations(specimens: Specimens, tmp_path: Path, kind: str) -> None:
    """Of 10,000 mutations of each kind none is accepted that is false, and none crashes; some are true, most not."""
    attack = survived(kind, specimens, tmp_path, MANY)
    assert attack.counts["accepted"] > MANY // 100
    assert attack.counts["refuted"] > MANY // 100
    assert MANY - attack.counts["accepted"] > MANY // 2


@pytest.mark.specimens(20)
@pytest.mark.parametrize("name", list(ASKED))
def test_honest_models_are_confirmed(specimens: Specimens, tmp_path: Path, name: str) -> None:
    """What was trained is verified, and the judge finds nothing false in it either."""
    specimen = specimens[name]
    assert verify(specimen.model, specimen.store, threads=1).ok
    work = Work(specimen, tmp_path)
    assert Bench(specimen).lies(work) == []
    assert accepted(work, Bench(specimen), None) == ""


def _bounds(lower: float, upper: float) -> Callable[[Draft], Any]:
    def change(draft: Draft) -> None:
        values = [draft.claims[key] for key in ("lower", "upper")]
        draft.bound(*(None if v is None else v * f for v, f in zip(values, (lower, upper), strict=True)))

    return change


def _set(**values: Any) -> Callable[[Draft], Any]:
    """Changes of the record: of parameters, certificate, or at the top."""

    def change(draft: Draft) -> None:
        for key, value in values.items():
            place = next(
                part for part in (draft.asked, draft.claims, draft.record) if key in part or part is draft.record
            )
            place[key] = value

    return change


def _array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Draft], Any]:
    return lambda draft: draft.arrays.update({name: change(draft.arrays[name])})


def _hopeless(draft: Draft) -> None:
    draft.record["status"] = draft.claims["kind"] = "not_separable"
    draft.claims.update(lower=None, ratio=None)


#: Forgeries that are false beyond doubt: (specimen, what is changed, a word of what the judge says).
FALSE: list[tuple[str, Callable[[Draft], Any], str]] = [
    ("hard", _bounds(1.001, 1.001), "lower"),
    ("hard", _bounds(0.9, 0.9), "upper"),
    ("hard-origin", _bounds(0.999, 0.999), "can be reached"),
    ("hard", _hopeless, "not separable"),
    ("hard", _set(rows=41), "rows"),
    ("hard", _set(rows=40.0), "rows"),
    ("hard", _set(coreset_rows=7), "coreset_rows"),
    ("hard", _set(classes=["yes", "no"]), "lower"),
    ("hard", _set(dtype="float64"), "dtype"),
    ("hard", _set(store_digest="sha256:12"), "digest"),
    ("hard", _set(radius=0.1), "radius"),
    ("hard", _set(ratio=0.5), "ratio"),
    ("hard", _set(epsilon=0.5), "epsilon"),
    ("hard", _set(intercept=False), "|w|"),
    ("hard", _array("w", lambda w: -w), "lower"),
    ("hard", _array("b", lambda b: b + 0.1), "lower"),
    ("hard", _array("alpha", lambda a: a[::-1].copy()), "weights"),
    ("hard", _array("coreset_ids", lambda v: v[::-1].copy()), "of rows"),
    ("hard", _array("coreset_x", lambda x: x * 1.5), "coreset's rows"),
    ("hard-stopped", _bounds(2.1, 1.0), "lower"),
    ("hinge", _bounds(1.001, 1.0), "lower"),
    ("hinge", _bounds(1.0, 0.999), "upper"),
    ("hinge", _set(C=5.0), "upper"),
    ("hinge", _set(class_weight=None), "can be reached"),
    ("hinge-origin", _set(loss="squared_hinge"), "upper"),
    ("squared", _set(class_weight=None), "can be reached"),
    ("squared", _array("b", lambda b: b + 1), "upper"),
    ("squared-origin", _array("w", lambda w: 2 * w), "upper"),
    ("logistic", _bounds(1.002, 1.0), "lower"),
    ("logistic", _bounds(1.0, 0.999), "upper"),
    ("logistic", _set(C=5.0), "upper"),
    ("logistic", _set(class_weight=None), "can be reached"),
    ("logistic", _array("w", lambda w: -w), "upper"),
    ("logistic", _array("b", lambda b: b + 1), "upper"),
    ("logistic-origin", _array("factor", lambda f: f * 1.01), "factor"),
    ("logistic-sparse", _bounds(1.00001, 1.0), "lower"),
    ("relative", _bounds(1.002, 1.0), "lower"),
    ("relative", _bounds(1.0, 0.999), "upper"),
    ("relative", _set(relative_margin=1.4), "relative margin"),
    ("relative", _set(relative_margin=3.0), "can be reached"),
    ("relative", _set(C=5.0), "upper"),
    ("relative", _array("w", lambda w: 1.1 * w), "relative margin"),
    ("relative-origin", _array("w", lambda w: -w), "upper"),
    ("relative-sparse", _bounds(1.00001, 1.0), "lower"),
    ("tried", _array("tried_alpha", lambda a: a[::-1].copy()), "tried: "),
    ("tried", _array("tried_alpha", lambda a: a * 0.9), "tried: weights"),
    ("tried", _array("tried_ids", lambda v: v[::-1].copy()), "tried: "),
    ("tried", _array("tried_ids", lambda v: v + 1000), "tried: rows"),
    ("tried", _array("tried_y", lambda y: -y), "tried: signs"),
    ("tried-origin", _array("tried_alpha", lambda a: a[::-1].copy()), "tried: "),
    ("standard", _array("factor", lambda f: f * 1.01), "factor"),
    ("minmax", _array("shift", lambda s: s + 0.1), "shift"),
    ("maxabs", _set(scaling="standard"), "shift"),
    ("rownorm", lambda draft: draft.asked.pop("scaling"), "can be reached"),
    ("metric", _array("scaling_axes", lambda a: a * 1.01), "scaling: radius"),
    ("metric", _array("scaling_centre", lambda c: c + 0.01), "scaling: upper"),
    ("metric", _array("scaling_bounds", lambda b: b * [1.01, 1.0]), "scaling: certified"),
    ("metric", _array("scaling_bounds", lambda b: b * [1.0, 0.99]), "scaling: upper"),
    ("metric-hinge", _array("scaling_alpha", lambda a: a[::-1].copy()), "scaling: lower"),
    ("metric-hinge", _array("scaling_coreset_ids", lambda v: v[::-1].copy()), "scaling: the coreset"),
    ("sparse-hard", _bounds(1.01, 1.01), "lower"),
    ("sparse-standard", _array("factor", lambda f: f * 12), "factor"),
    ("sparse-classes", _bounds(1.01, 1.01), "lower"),
    ("outliers", _bounds(0.1, 0.1), "can be reached"),
    ("outliers", _array("outliers_lower", lambda v: v + 1), "lower"),
    ("outliers", _array("outliers_upper", lambda v: v * 0.9), "can be reached"),
    ("outliers", _array("outliers_k", lambda k: k + 1), "asked for"),
    ("outliers", _array("outliers_margins", lambda m: m - 1), "left out"),
    ("outliers", _array("outliers_ids", lambda ids: ids[::-1].copy()), "left out"),
    ("outliers", _hopeless, "not separable"),
    ("outliers-one", _set(outliers=4), "asked for"),
    ("outliers-none", _set(outliers=3), "asked for"),
    ("classes", _bounds(1.01, 1.01), "lower"),
    ("classes", _bounds(0.9, 0.9), "can be reached"),
    ("classes", _hopeless, "not separable"),
    ("classes", _set(constant=1e-300), "constant"),
    ("classes", _set(intercept=False), "constant"),
    ("classes-origin", _set(intercept=True), "constant"),
    ("classes-outliers", _bounds(1.001, 1.001), "lower"),
    ("classes-outliers", _bounds(0.9, 0.9), "can be reached"),
    ("classes-outliers", _hopeless, "not separable"),
    ("classes-outliers", _set(outliers=1), "left out"),
    ("classes-outliers", _set(outliers=4), "can be reached"),
    ("classes-outliers", _array("outliers_ids", lambda ids: ids[:1]), "lower"),
    ("classes-outliers", _array("outliers_ids", lambda ids: ids[[0, 0]]), "left out"),
    ("classes-outliers", _array("outliers_ids", lambda ids: np.array([7, *ids[:1]])), "left out"),
    ("classes-outliers-none", _set(outliers=3), "can be reached"),
    ("classes-outliers-origin", _array("coreset_x", lambda x: x * 1.5), "coreset's rows"),
    ("classes-hinge", _set(C=3.0), "upper"),
    ("classes-hinge", _bounds(1.01, 1.0), "lower"),
    ("classes-hinge", _array("coreset_classes", lambda c: c[::-1].copy()), "classes"),
]


@pytest.mark.specimens(41)
@pytest.mark.parametrize(("name", "change", "word"), FALSE)
def test_the_judge_sees_what_is_false(
    specimens: Specimens, tmp_path: Path, name: str, change: Callable[[Draft], Any], word: str
) -> None:
    """A judge who finds nothing false in anything would make these tests worthless."""
    draft = Draft(specimens[name])
    change(draft)
    work = Work(specimens[name], tmp_path)
    with work.changed(draft.files()):
        assert any(word in text for text in Bench(specimens[name]).lies(work))


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (_set(version=True), "version"),
        (_set(rows="40"), "rows"),
        (_set(radiuss=1.0), "radiuss"),
        (lambda draft: draft.asked.update(more=1), "parameters.more"),
        (lambda draft: draft.record.update(software=5), "software"),
        (lambda draft: draft.arrays.update(more=np.zeros(3)), "more"),
        (lambda draft: draft.arrays.pop("alpha"), "alpha"),
        (_array("coreset_ids", lambda ids: ids + 0.9), "coreset_ids"),
        (_array("w", lambda w: w + 1j), "w"),
        (_array("alpha", lambda a: a[None]), "alpha"),
    ],
)
def test_what_no_rule_allows_is_wrong_whatever_the_judge_says(
    specimens: Specimens, tmp_path: Path, change: Callable[[Draft], Any], place: str
) -> None:
    """Acceptance of a change that is on no list counts as a failure."""
    draft = Draft(specimens["hard"])
    change(draft)
    work = Work(specimens["hard"], tmp_path)
    with work.changed(draft.files()):
        assert place in accepted(work, Bench(specimens["hard"]), None)


@pytest.mark.slow
def test_the_same_mutations_in_every_run(specimens: Specimens, tmp_path: Path) -> None:
    """A mutation is a function of its kind and number: that is what makes a failure one that can be repeated."""
    one, other = (Attack("outliers", specimens, tmp_path / name) for name in ("one", "other"))
    drawn = [one.mutation(number)[1:] for number in range(40)]
    assert drawn == [other.mutation(number)[1:] for number in range(40)]
    assert len({told for told, _ in drawn}) > 35


@pytest.mark.parametrize("kind", ["hard", "store"])
def test_a_mutation_is_repeated_by_hand(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """The command says what the mutation is, what became of it, and where it lies."""
    forge_repeat.repeat(kind, 3)
    told = capsys.readouterr().out
    assert "Outcome(" in told
    model = next(line for line in told.splitlines() if line.startswith("model ")).removeprefix("model ")
    assert (Path(model) / "arrays.npz").is_file()


def test_honest_specimens_are_what_they_are_called(specimens: Specimens) -> None:
    """Every status, loss, scaling and kind of store is among the specimens: none can drop out unseen."""
    records = [specimens[name].record for name in ASKED]
    assert {record["status"] for record in records} == {"certified", "not_separable", "stopped"}
    assert {record["problem"] for record in records} == {
        "hard_margin", "soft_margin", "logistic", "relative_margin", "outliers", "crammer_singer", "ball", "soft_ball",
        "kernel_ball", "ellipsoid", "soft_ellipsoid",
    }  # fmt: skip
    assert {record["parameters"].get("scaling") for record in records} == {
        None, "standard", "minmax", "maxabs", "rownorm", "ellipsoid",
    }  # fmt: skip
    rows = [specimens[name].rows for name in ASKED]
    assert {(one.sparse, one.weights is not None) for one in rows} == {
        (False, False), (False, True), (True, False), (True, True),
    }  # fmt: skip
    assert {one.dtype for one in rows} == {"float32", "float64"}
    assert {name for kinds in (KINDS, STORES) for names in kinds.values() for name in names} == set(ASKED)
    attacked = {name: {Store.open(specimens[one].store).compression for one in STORES[name]} for name in STORES}
    assert attacked == {
        "store": {"none", "zstd"},
        "store-narrow": {"none", "zstd"},
        "store-sparse": {"none", "lz4"},
        "store-with-changes": {"none"},
    }
