"""Forgeries of models with outliers: numbers, planes and proofs, by somebody who has read how they are checked."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.models.model import Model
from coremargin.problems.outliers.outlier_table import outlier_table
from coremargin.verify import outliers
from coremargin.verify.examine import examine
from forge_assert import answer, forged, loads, refused
from model_kit import altered, store_of

if TYPE_CHECKING:
    from forge_plans import Draft
    from forge_specimens import Specimens

PROOF = ("rows", "rows_ends", "weights", "weights_ends", "paths", "paths_ends", "proofs", "proofs_ends", "leaves")


def about(draft: Draft, name: str) -> np.ndarray:
    """One of the arrays about outliers."""
    return draft.arrays[f"outliers_{name}"]


def put(draft: Draft, **arrays: Any) -> None:
    """Others in their place."""
    draft.arrays.update({f"outliers_{name}": np.asarray(values) for name, values in arrays.items()})


def unproven(draft: Draft) -> None:
    """Without its proof, and with bounds far below what can be reached."""
    for name in [name for name in draft.arrays if "proof" in name]:
        del draft.arrays[name]
    draft.bound(0.05, 0.05)


@pytest.mark.parametrize("name", ["outliers", "outliers-one"])
def test_a_bound_without_its_proof_is_not_certified(specimens: Specimens, tmp_path: Path, name: str) -> None:
    """Where 0.64 can be reached, 0.05 is not "certified" because nothing says otherwise."""
    refused(forged(specimens[name], tmp_path, unproven), specimens[name].store)


def test_a_true_bound_without_its_proof_is_not_certified_either(specimens: Specimens, tmp_path: Path) -> None:
    """What cannot be checked is not confirmed, although it is true."""

    def change(draft: Draft) -> None:
        for name in [name for name in draft.arrays if "proof" in name]:
            del draft.arrays[name]

    refused(forged(specimens["outliers-one"], tmp_path, change), specimens["outliers-one"].store)


@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize(("lower", "upper"), [(-np.inf, np.inf), (-1.0, np.inf), (1e-3, None), (-1e-3, None)])
def test_certified_is_said_of_every_number_of_outliers(
    specimens: Specimens, tmp_path: Path, k: int, lower: float, upper: float | None
) -> None:
    """Bounds that are true and far apart, or none at all, for fewer outliers than the most."""

    def change(draft: Draft) -> None:
        about(draft, "lower")[k] = min(lower, about(draft, "lower")[k])
        about(draft, "upper")[k] = about(draft, "upper")[3] if upper is None else upper

    words = refused(forged(specimens["outliers"], tmp_path, change), specimens["outliers"].store)
    assert f"with {k} outliers do not say" in words


def test_a_long_row_makes_no_margin_zero(tmp_path: Path) -> None:
    """A bound of 0.6 with no rows left out is not zero because a row without label is 1e14 long."""
    rng = np.random.default_rng(1)
    X, labels = rng.normal(size=(21, 2)), [*(["a", "b"] * 10), None]
    X[:20, 0] = np.where(np.arange(20) % 2, 1, -1) * (0.5 + rng.random(20))
    X[20] = [1e14, 0.0]
    store = store_of(tmp_path / "s.zarr", X, labels, 32)
    coremargin.train(store, out=tmp_path / "m", outliers="0..1")
    assert examine(tmp_path / "m", store).status == "certified"
    nothing = np.array([-np.inf, Model.load(tmp_path / "m").certificate.lower])
    place = altered(tmp_path / "m", tmp_path / "bad", outliers_lower=nothing)
    assert [check.name for check in examine(place, store).failures] == ["upper bound with 0 outliers"]


@pytest.mark.parametrize("name", PROOF)
def test_a_part_of_a_proof_is_none(specimens: Specimens, tmp_path: Path, name: str) -> None:
    """Each array of the proof is needed."""
    specimen = specimens["outliers"]
    refused(forged(specimen, tmp_path, lambda draft: draft.arrays.pop(f"outliers_proof_{name}")), specimen.store)


def last_proof_only(draft: Draft) -> None:
    """Keep the proof of the largest number of outliers, whose bound all others claim."""
    leaves = about(draft, "proof_leaves")
    first = int(leaves[:-1].sum())
    for name in ("paths", "proofs"):
        ends = about(draft, f"proof_{name}_ends")
        cut = int(ends[first - 1]) if first else 0
        put(draft, **{f"proof_{name}": about(draft, f"proof_{name}")[cut:], f"proof_{name}_ends": ends[first:] - cut})
    put(
        draft,
        proof_leaves=[0] * (len(leaves) - 1) + [int(leaves[-1])],
        upper=np.repeat(about(draft, "upper")[-1:], len(leaves)),
    )


@pytest.mark.parametrize("kind", ["u8", "u1", "i8", "f8"])
@pytest.mark.parametrize("ks", [[4, 5, 9, 3], [0, 1, 9, 3], [3, 3, 3, 3], [0, 2, 1, 3]])
def test_numbers_of_outliers_ascend(specimens: Specimens, tmp_path: Path, ks: list[int], kind: str) -> None:
    """A proof for 3 rows proves nothing about 9, in whatever order and kind of number they are given."""

    def change(draft: Draft) -> None:
        last_proof_only(draft)
        put(draft, k=np.array(ks, kind))
        draft.asked["outliers"] = ks

    refused(forged(specimens["outliers"], tmp_path, change), specimens["outliers"].store)


@pytest.mark.parametrize("shift", [0.9, 0.5, 1, 5, 10**9, -1])
@pytest.mark.parametrize("name", ["outliers", "outliers-one", "outliers-none"])
def test_the_numbers_are_those_that_were_asked_for(
    specimens: Specimens, tmp_path: Path, name: str, shift: float
) -> None:
    """Bounds for some number of outliers are not bounds for another, or for 6.9 of them."""
    refused(
        forged(specimens[name], tmp_path, lambda draft: put(draft, k=about(draft, "k") + shift)), specimens[name].store
    )


@pytest.mark.parametrize(
    "asked", [77, "0..99", [0, 1], None, "3..0", 2.5, True, {}, "a..b", -1, 10**400, "0.." + "9" * 400]
)
@pytest.mark.parametrize("name", ["outliers", "outliers-one"])
def test_what_was_asked_for_is_what_was_searched(specimens: Specimens, tmp_path: Path, name: str, asked: Any) -> None:
    """The parameter says the numbers that the arrays are about."""
    refused(forged(specimens[name], tmp_path, lambda draft: draft.asked.update(outliers=asked)), specimens[name].store)


@pytest.mark.parametrize(
    "w", [[1.7e308, 0.0], [0.0, 1.7e308], [1.7e308, 1.7e308], [1e301, 0.0], [1e-320, 0.0], [0.0, 0.0]]
)
@pytest.mark.parametrize("b", [0.0, 1e308, -1e308, 1.7e308])
def test_margins_that_are_no_numbers_are_not_above_a_claim(
    specimens: Specimens, tmp_path: Path, w: list[float], b: float
) -> None:
    """A hyperplane for fewer outliers whose products overflow has not the margin 1000."""

    def change(draft: Draft) -> None:
        about(draft, "w")[0], about(draft, "b")[0], about(draft, "lower")[0] = w, b, 1000.0

    refused(forged(specimens["outliers"], tmp_path, change), specimens["outliers"].store)


@pytest.mark.parametrize("value", [-1e-300, -1e-3, 0.0, 1e-9])
def test_lower_bounds_below_zero_are_claims(specimens: Specimens, tmp_path: Path, value: float) -> None:
    """The best margin of all rows is -1.7: it is not -0.001 because nobody cares about margins below 0."""
    specimen = specimens["outliers"]
    assert specimen.arrays()["outliers_lower"][0] < -0.1

    def change(draft: Draft) -> None:
        about(draft, "lower")[0] = value

    refused(forged(specimen, tmp_path, change), specimen.store)


def test_a_stopped_search_claims_no_margin_that_it_has_not(specimens: Specimens, tmp_path: Path) -> None:
    """Another hyperplane, of which most rows are on the wrong side, has not the margin -1e-9."""
    specimen = specimens["outliers"]
    X, labels = specimen.rows.X, specimen.rows.labels

    def change(draft: Draft) -> None:
        w, ids = np.array([0.0, 1.0]), about(draft, "ids")
        side = np.array([1 if label == draft.record["classes"][1] else -1 for label in labels])
        about(draft, "w")[-1], about(draft, "b")[-1] = w, 0.0
        draft.arrays.update(w=w, b=np.zeros(1))
        put(draft, margins=side[ids] * (X[ids] @ w))
        draft.record["status"] = "stopped"
        draft.bound(-1e-9, draft.claims["upper"])

    refused(forged(specimen, tmp_path, change), specimen.store)


def test_a_lower_bound_is_not_above_the_upper_one(specimens: Specimens, tmp_path: Path) -> None:
    """For no number of outliers."""
    specimen = specimens["outliers"]
    for i in range(4):

        def change(draft: Draft, i: int = i) -> None:
            about(draft, "upper")[i] = about(draft, "lower")[i] - 0.1

        refused(forged(specimen, tmp_path / str(i), change), specimen.store)


def test_no_number_of_outliers_is_called_hopeless_by_a_claimed_radius(specimens: Specimens, tmp_path: Path) -> None:
    """With a radius of 1e14 the margin 0.64 is still one, for verify as for the command that lists outliers."""
    specimen = specimens["outliers"]

    def change(draft: Draft) -> None:
        draft.claims["radius"] = 1e14
        about(draft, "lower")[2] = -1.0

    model = forged(specimen, tmp_path, change)
    steps = outlier_table(loads(model)).steps if answer(model, specimen.store) == "accepted" else ()
    assert [step.k for step in steps if step.impossible and step.k >= 2] == []


@pytest.mark.parametrize("k", [20, 25, 10**9])
def test_more_rows_than_there_are_are_not_left_out(specimens: Specimens, tmp_path: Path, k: int) -> None:
    """Once all rows are left out any margin is as good as any other: that is no answer to a question."""
    specimen = specimens["outliers-one"]
    X, labels = specimen.rows.X, specimen.rows.labels

    def change(draft: Draft) -> None:
        side = np.array([1 if label == draft.record["classes"][1] else -1 for label in labels])
        margins = side * (X @ draft.arrays["w"] + draft.arrays["b"][0])
        draft.asked["outliers"] = k
        for name in [name for name in draft.arrays if "proof" in name]:
            del draft.arrays[name]
        put(draft, k=[k], ids=np.arange(len(X)), signs=side.astype(np.int8), margins=margins, gains=0 * margins)
        draft.record["status"] = "stopped"
        draft.bound(1000.0, None)
        draft.claims["ratio"] = None

    refused(forged(specimen, tmp_path, change), specimen.store)


def kept(name: str, change: Callable[[np.ndarray], Any]) -> Callable[[Draft], None]:
    """One array of the proof is another."""
    return lambda draft: put(draft, **{f"proof_{name}": change(about(draft, f"proof_{name}"))})


#: Proofs that prove less than they say, or that no reader can make sense of.
BROKEN: dict[str, Callable[[Draft], None]] = {
    "one leaf for all": lambda d: put(d, proof_leaves=[int(about(d, "proof_leaves").sum()), 0, 0, 0]),
    "leaves of another number": lambda d: put(d, proof_leaves=np.roll(about(d, "proof_leaves"), 1)),
    "leaves below 0": lambda d: put(d, proof_leaves=about(d, "proof_leaves") * -1),
    "leaves beyond the end": lambda d: put(d, proof_leaves=about(d, "proof_leaves") + 2**40),
    "leaves that overflow": lambda d: put(d, proof_leaves=np.full(4, 2**62)),
    "leaves and a half": lambda d: put(d, proof_leaves=about(d, "proof_leaves") + 0.5),
    "no paths": kept("paths", lambda v: v[:0]),
    "paths of halves": kept("paths", lambda v: v - 0.5),
    "paths without sign": kept("paths", lambda v: v.astype("u8")),
    "paths of bytes": kept("paths", lambda v: v.astype("i1") + np.int8(100)),
    "paths of truth": kept("paths", lambda v: v.astype(bool)),
    "paths of text": kept("paths", lambda v: v.astype("U4")),
    "paths of void": kept("paths", lambda v: np.zeros(v.shape, "V4")),
    "paths turned": kept("paths", lambda v: ~v),
    "proofs of halves": kept("proofs", lambda v: v.astype(float)),
    "proofs all the same": kept("proofs", lambda v: v * 0),
    "proofs below 0": kept("proofs", lambda v: v - 1),
    "proofs of text": kept("proofs", lambda v: v.astype("U4")),
    "rows of halves": kept("rows", lambda v: v + 0.5),
    "rows of text": kept("rows", lambda v: v.astype("U4")),
    "rows of truth": kept("rows", lambda v: v.astype(bool)),
    "rows below 0": kept("rows", lambda v: v - v.max() - 1),
    "weights complex": kept("weights", lambda v: v + 0j),
    "weights of text": kept("weights", lambda v: v.astype("U9")),
    "weights below 0": kept("weights", lambda v: -v),
    "weights NaN": kept("weights", lambda v: v * np.nan),
    "weights of nothing": kept("weights", lambda v: v * 0),
    "ends of halves": kept("rows_ends", lambda v: v + 0.5),
    "ends that fall": kept("rows_ends", lambda v: v[::-1]),
    "ends of dates": kept("rows_ends", lambda v: v.astype("m8[s]")),
    "ends of bytes": kept("weights_ends", lambda v: v.astype("S3")),
    "ends without sign that fall": kept("proofs_ends", lambda v: v[::-1].astype("u8")),
    "no axis": kept("proofs", lambda v: np.array(0)),
    "two axes": kept("paths", lambda v: v[None]),
    "planes complex": lambda d: put(d, w=about(d, "w") + 1j),
    "planes of dates": lambda d: put(d, w=about(d, "w").astype("i8").astype("m8[s]")),
    "offsets complex": lambda d: put(d, b=about(d, "b") + 1j),
    "bounds complex": lambda d: put(d, lower=about(d, "lower") + 1j),
    "numbers complex": lambda d: put(d, k=about(d, "k") + 1j),
    "ids and a half": lambda d: put(d, ids=about(d, "ids") + 0.5),
    "ids twice": lambda d: put(d, ids=np.repeat(about(d, "ids")[:1], len(about(d, "ids")))),
    "ids of others": lambda d: put(d, ids=about(d, "ids") + 1),
    "signs turned": lambda d: put(d, signs=-about(d, "signs")),
    "margins of others": lambda d: put(d, margins=about(d, "margins") - 1.0),
    "a row more": lambda d: put(
        d, **{n: np.append(about(d, n), about(d, n)[-1:] + 1) for n in ("ids", "signs", "margins", "gains")}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(BROKEN))
def test_broken_proofs_are_refused(specimens: Specimens, tmp_path: Path, name: str) -> None:
    """A proof that does not prove, and arrays that are no proof, are refused and not run into."""
    refused(forged(specimens["outliers"], tmp_path, BROKEN[name]), specimens["outliers"].store)


@pytest.mark.parametrize("name", ["outliers", "outliers-one"])
def test_a_certificate_named_often_proves_no_more(specimens: Specimens, tmp_path: Path, name: str) -> None:
    """Thousands of times the same one is no proof that takes thousands of times as long to refuse."""

    def change(draft: Draft) -> None:
        proofs, ends = about(draft, "proof_proofs"), about(draft, "proof_proofs_ends").copy()
        ends[-1] += 5000
        put(draft, proof_proofs=np.append(proofs, np.repeat(proofs[-1:], 5000)), proof_proofs_ends=ends)

    words = refused(forged(specimens[name], tmp_path, change), specimens[name].store)
    assert re.search(r"5,\d+ certificates at a leaf, where the \d rows that may still be removed can meet", words)


def test_leaves_name_no_more_rows_than_fit_their_proof(specimens: Specimens, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at is known before, and grows with the file: here the limit comes to the proof."""
    specimen = specimens["outliers"]
    monkeypatch.setattr(outliers, "_LITTLE", 0)
    assert examine(specimen.model, specimen.store).ok
    monkeypatch.setattr(outliers, "_REPEATED", 0)
    words = " ".join(check.text for check in examine(specimen.model, specimen.store).failures)
    assert "rows in all, far too many for a proof of" in words


def test_a_proof_for_fewer_rows_is_none_for_more(specimens: Specimens, tmp_path: Path) -> None:
    """The leaves for 2 outliers, given as those for 3, do not bound what 3 allow."""
    specimen = specimens["outliers"]

    def change(draft: Draft) -> None:
        leaves = about(draft, "proof_leaves").copy()
        starts = np.concatenate([[0], np.cumsum(leaves)])
        for name in ("paths", "proofs"):
            ends = np.concatenate([[0], about(draft, f"proof_{name}_ends")])
            parts = [about(draft, f"proof_{name}")[a:b] for a, b in itertools.pairwise(ends)]
            parts = [*parts[: starts[3]], *parts[starts[2] : starts[3]]]
            joined = np.concatenate([np.zeros(0, np.int64), *parts])
            put(draft, **{f"proof_{name}": joined, f"proof_{name}_ends": np.cumsum([len(part) for part in parts])})
        put(draft, proof_leaves=[*leaves[:3], leaves[2]])
        value = float(about(draft, "upper")[2])
        draft.bound(value, value)

    refused(forged(specimen, tmp_path, change), specimen.store)
