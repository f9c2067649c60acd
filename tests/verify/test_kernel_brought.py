"""Machines whose kernel is a function, under attack: what is claimed of the kernel and the function is checked, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import own_kernels
import pytest
from scipy import sparse

import coremargin
from coremargin.errors import UsageError
from coremargin.maths.kernel.callables import CallableKernel
from coremargin.verify import kernel_functions
from coremargin.verify.examine import examine
from forge_specimens import Arrays, Record, Specimen, Specimens, edited, entry, files_of, refused

SPECIMENS: dict[str, tuple[str, dict[str, Any]]] = {
    "hinge": ("noisy", {"loss": "hinge", "C": 0.5}), "squared": ("noisy64", {"loss": "squared_hinge", "C": 0.7}),
    "hard": ("apart", {}), "classes": ("heap", {"loss": "hinge", "classes": "ovr"}),
    "sparse": ("heavy", {"loss": "hinge"}),
}  # fmt: skip
GRID = ("noisy64", {"loss": "hinge", "C": [0.5, 5.0], "folds": 2})


def _made(specimens: Specimens, name: str, asked: tuple[str, dict[str, Any]]) -> Specimen:
    """Trained when it is first asked for."""
    kind, options = asked
    rows, model = specimens.rows(kind), specimens.folder / f"function-{name}"
    if not model.exists():
        coremargin.train(rows.path, out=model, kernel=own_kernels.rbf, cluster="threads", **options)
    return Specimen(name, model, rows, files_of(model))


@pytest.mark.parametrize("name", SPECIMENS)
def test_what_training_claims_holds(specimens: Specimens, name: str) -> None:
    """Certified, and verified by a scan of its own, which says of what kernels."""
    specimen = _made(specimens, name, SPECIMENS[name])
    found = examine(specimen.model, specimen.store, kernel=own_kernels.rbf)
    assert found.ok
    assert found.status == "certified"
    assert "of every positive semi-definite kernel k from which" in found.verdict(str)


def test_so_does_what_is_claimed_of_a_fleet(specimens: Specimens) -> None:
    """Each member, and the tables; not without the function."""
    specimen = _made(specimens, "grid", GRID)
    found = examine(specimen.model, specimen.store, kernel=own_kernels.rbf)
    assert found.ok
    for one in (found, replace(found, status="stopped")):
        assert "of every positive semi-definite kernel k from which" in one.verdict(str)
    with pytest.raises(UsageError, match="is a function, 'own_kernels:rbf' where it was trained"):
        examine(specimen.model, specimen.store)
    assert not examine(specimen.model, specimen.store, kernel=own_kernels.other_rbf).ok


def _error(value: float) -> Callable[[Record], None]:
    def change(record: Record) -> None:
        record["kernel"]["error"] = record["parameters"]["kernel_error"] = value

    return change


CLAIMS: dict[str, Callable[[Record], None]] = {
    "better bound": entry("certificate.lower", lambda was: was * (1 + 1e-5)),
    "better value": entry("certificate.upper", lambda was: was * (1 - 1e-5)),
    "error below the floor": _error(1e-14), "error of nothing": _error(0.0), "negative error": _error(-1e-10),
    "a much larger error": _error(1e-3), "one error only": entry("kernel.error", 1e-9),
    "the other only": entry("parameters.kernel_error", 1e-9), "another kernel": entry("kernel", {"name": "linear"}),
    "no name": lambda record: record["kernel"].pop("function"),
    "a gamma": entry("kernel.gamma", 1.0),
}  # fmt: skip


@pytest.mark.parametrize("claim", CLAIMS)
def test_no_other_claim_is_taken(specimens: Specimens, tmp_path: Path, claim: str) -> None:
    """Of the record: a larger error is a stronger claim, whose bounds these are not."""
    assert refused(_made(specimens, "hinge", SPECIMENS["hinge"]), tmp_path / "m", CLAIMS[claim], kernel=own_kernels.rbf)


def test_a_name_is_information(specimens: Specimens, tmp_path: Path) -> None:
    """Another one than that of the function that is said changes nothing, and is told."""
    specimen = _made(specimens, "hinge", SPECIMENS["hinge"])
    edited(specimen, tmp_path / "m", entry("kernel.function", "os:system"))
    found = examine(tmp_path / "m", specimen.store, kernel=own_kernels.rbf)
    assert found.ok
    told = next(check.text for check in found.checks if check.name == "kernel")
    assert "own_kernels:rbf gives the values that the model stores" in told
    assert "the model names 'os:system', which was not run" in told


def test_another_function_is_refused_by_the_values_that_are_kept(specimens: Specimens, tmp_path: Path) -> None:
    """And so are other values of the same one."""
    specimen = _made(specimens, "hinge", SPECIMENS["hinge"])
    assert "kernel" in refused(specimen, tmp_path / "a", kernel=own_kernels.other_rbf)

    def moved(arrays: Arrays) -> None:
        arrays["kernel_values"][1, 2] += 1e-9

    def dropped(arrays: Arrays) -> None:
        del arrays["kernel_values"]

    assert refused(specimen, tmp_path / "b", None, moved, kernel=own_kernels.rbf) == {"kernel"}
    assert refused(specimen, tmp_path / "c", None, dropped, kernel=own_kernels.rbf) == {"DataError"}


def _doubled(arrays: Arrays) -> None:
    arrays["duals"] *= 2.0


def _moved(arrays: Arrays) -> None:
    arrays["offsets"] += 0.05


def _better_column(arrays: Arrays) -> None:
    arrays["lowers"] *= 1 + 1e-5


def _worse_column(arrays: Arrays) -> None:
    arrays["uppers"] *= 1 - 1e-5


@pytest.mark.parametrize("name", ["hinge", "squared", "hard", "classes"])
@pytest.mark.parametrize("change", [_doubled, _moved, _better_column, _worse_column], ids=lambda one: one.__name__)
def test_nor_are_other_numbers(
    specimens: Specimens, tmp_path: Path, name: str, change: Callable[[Arrays], None]
) -> None:
    """Of the arrays."""
    assert refused(_made(specimens, name, SPECIMENS[name]), tmp_path / "m", None, change, kernel=own_kernels.rbf)


def _near(off: Callable[[np.ndarray, np.ndarray], Any]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The function, but for what ``off`` says: it gives the values that the model keeps."""
    return lambda X, Z: np.asarray(own_kernels.rbf(X, Z) + off(X, Z))


def test_a_function_that_is_no_kernel_on_the_coreset_is_refused(
    specimens: Specimens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it keeps: not symmetric, not the same again, with an eigenvalue below 0."""
    specimen = _made(specimens, "hinge", SPECIMENS["hinge"])
    monkeypatch.setattr(kernel_functions, "_difference", lambda *_: None)
    faults = {
        "not symmetric": _near(lambda X, Z: 1e-8 * np.sign(X[:, :1] - Z[:, :1].T) - 1e-8),
        "in another order": _near(lambda X, Z: -1e-8 * (len(X) != len(Z))),
        "not positive semi-definite": lambda X, Z: np.where((X[:, None] == Z[None]).all(-1), 1.0, -0.5),
        r"expected a finite number": lambda X, Z: np.full((len(X), len(Z)), np.nan),
        "raised ZeroDivisionError": own_kernels.broken,
    }
    for message, function in faults.items():
        try:
            found = examine(specimen.model, specimen.store, kernel=function)
            told = " ".join(check.text for check in found.failures if check.name == "kernel")
        except UsageError as error:
            told = str(error)
        assert message in told


def test_a_row_of_the_store_that_shows_it_is_named(specimens: Specimens) -> None:
    """Where only a row that is not in the coreset does."""
    specimen = _made(specimens, "hinge", SPECIMENS["hinge"])
    inside = set(specimen.arrays()["coreset_ids"].tolist())
    row = next(k for k in range(len(specimen.rows.X)) if k not in inside and specimen.rows.weighed[k])
    x = specimen.rows.X[row]

    def off(X: np.ndarray, Z: np.ndarray) -> Any:
        return np.where((x == X).all(axis=1)[:, None] & ~(x == Z).all(axis=1)[None, :], 2.0, 0.0)

    found = examine(specimen.model, specimen.store, kernel=_near(off))
    told = {check.name: check.text for check in found.failures}
    assert f"row {row}: k(x, z) is" in told["kernel values"]
    assert "upper bound" in told


def test_so_is_one_far_behind_the_first_row_of_a_block() -> None:
    """By its place among all rows that are asked about, not by that in its part of them."""
    rows = np.random.default_rng(0).normal(size=(300, 2))
    wrong = _near(lambda X, Z: np.where((rows[290] == X).all(axis=1)[:, None] & (len(Z) == 5), 2.0, 0.0))
    function = kernel_functions.CallableKernel(1e-10, "f", wrong)
    with pytest.raises(kernel_functions.NotAKernel) as fault:
        kernel_functions.CallableExpansion(function, rows[:5], np.ones((5, 1))).values(rows)
    assert fault.value.row == 290


def test_a_function_that_fails_at_any_time_is_a_failed_check(specimens: Specimens) -> None:
    """Whichever question it does not answer, before the scan, in it or after it: nobody sees a traceback."""
    specimen, function = _made(specimens, "hinge", SPECIMENS["hinge"]), own_kernels.Failing()
    assert examine(specimen.model, specimen.store, kernel=function, threads=1).ok
    for answered in (0, function.asked // 2, function.asked - 1):
        function.asked, function.answered = 0, answered
        try:
            found = examine(specimen.model, specimen.store, kernel=function, threads=1)
            told = str([check.text for check in found.failures])
        except UsageError as error:
            told = str(error)
        assert "raised ZeroDivisionError: no such thing" in told


def test_few_wide_rows_are_dense_at_a_time() -> None:
    """Sparse rows of so many features that a block of some would take gigabytes are asked about one by one."""
    most = 0

    def linear(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        nonlocal most
        most = max(most, X.nbytes, Z.nbytes)
        return np.asarray(X @ Z.T)

    rows = sparse.csr_array(sparse.eye(3, 1 << 21))
    assert CallableKernel("callable", function=linear).points(rows).lengths == pytest.approx(1.0)
    assert kernel_functions.CallableKernel(1e-10, "f", linear).own(rows) == pytest.approx(1.0)
    assert most <= 32 << 20


def test_values_that_stray_within_the_error_are_taken(specimens: Specimens, tmp_path: Path) -> None:
    """By half of it: the same function on another machine. The claims hold there; none that is as tight does."""
    kind, options = SPECIMENS["hinge"]
    rows, model = specimens.rows(kind), tmp_path / "m"
    coremargin.train(rows.path, out=model, kernel=own_kernels.rbf, kernel_error=1e-6, cluster="threads", **options)

    def stray(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        return np.asarray(own_kernels.rbf(X, Z) * (1 - 4e-7 * np.abs(np.sin(1e6 * (X.sum(1)[:, None] + Z.sum(1))))))

    assert examine(model, rows.path, kernel=stray).ok
    assert not examine(_made(specimens, "hinge", SPECIMENS["hinge"]).model, rows.path, kernel=stray).ok


def test_the_verifier_has_a_floor_of_its_own(specimens: Specimens) -> None:
    """Should a record get by the strict reader, it says so itself."""
    specimen = _made(specimens, "hinge", SPECIMENS["hinge"])
    rows, kept = specimen.rows.X[:3], own_kernels.rbf(specimen.rows.X[:3], specimen.rows.X[:3])
    checks = {
        eta: kernel_functions.check_function(kernel_functions.CallableKernel(eta, "f", own_kernels.rbf), rows, kept)[
            0
        ].ok
        for eta in (1e-10, 1e-15)
    }
    assert checks == {1e-10: True, 1e-15: False}


def _attack(specimen: Specimen, folder: Path, seed: int, count: int) -> list[str]:
    """What was changed of so many models that were taken."""
    taken, rng = list[str](), np.random.default_rng(seed)
    for k in range(count):
        factor = float(rng.choice([1 + 1e-6, 1 - 1e-6, 1.01, 0.99, 2.0, 0.0, -1.0]))
        name = str(rng.choice(["duals", "offsets", "coreset_x", "lowers", "uppers", "kernel_values"]))
        picked = int(rng.integers(1 << 30))

        def change(arrays: Arrays, name: str = name, picked: int = picked, factor: float = factor) -> None:
            place = picked % arrays[name].size
            arrays[name].flat[place] *= factor
            if name == "kernel_values":  # which are looked at within some 1e-10 of 1
                arrays[name].flat[place] += 1e-6

        if not refused(specimen, folder / str(k), None, change, kernel=own_kernels.rbf):
            taken.append(f"{name} {factor}")
    return taken


def test_mutated_models_are_taken_only_where_they_claim_less(specimens: Specimens, tmp_path: Path) -> None:
    """A bound that says less; a weight that was 0, or changed by less than rounding: no kept value and no row."""
    taken = _attack(_made(specimens, "squared", SPECIMENS["squared"]), tmp_path, 0, 60)
    assert len(taken) < 30
    assert not [one for one in taken if one.startswith(("kernel_values", "coreset_x")) and not one.endswith(" 1.0")]


@pytest.mark.slow
@pytest.mark.parametrize("error", [1e-10, 1e-7, 1e-5])
@pytest.mark.parametrize("name", ["hinge", "squared", "hard"])
def test_claims_hold_for_whoever_is_off_as_far_the_other_way(
    specimens: Specimens, tmp_path: Path, name: str, error: float
) -> None:
    """Trained with values above the kernel's by all of the error, verified with others below it, and by signs."""
    kind, options = SPECIMENS[name]
    rows, off = specimens.rows(kind), 0.999 * error

    def signs(X: np.ndarray, Z: np.ndarray) -> Any:
        left, right = (np.sign(np.sin(1e4 * rows.sum(axis=1))) for rows in (X, Z))
        return left[:, None] * right[None, :]

    ways: list[Any] = [
        lambda X, Z: own_kernels.rbf(X, Z) * (1 + off), lambda X, Z: own_kernels.rbf(X, Z) * (1 - off),
        lambda X, Z: own_kernels.rbf(X, Z) * (1 + off * signs(X, Z)),
        lambda X, Z: own_kernels.rbf(X, Z) * (1 - off * signs(X, Z)),
    ]  # fmt: skip
    for trained, verified in ((0, 1), (1, 0), (2, 3), (3, 2), (0, 3)):
        model = tmp_path / f"{trained}-{verified}"
        how: dict[str, Any] = {"kernel_error": error, "epsilon": 1e-2, "cluster": "threads", **options}
        coremargin.train(rows.path, out=model, kernel=ways[trained], **how)
        assert examine(model, rows.path, kernel=ways[verified]).ok
