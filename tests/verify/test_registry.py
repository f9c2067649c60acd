"""The verifier's kinds of claims: what one more of them takes, and what they may load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from click.testing import CliRunner

from coremargin.cli import main
from coremargin.data.folder import write_arrays
from coremargin.data.local_storage import LocalStorage
from coremargin.formats.kinds import KINDS, module
from coremargin.formats.model_record import ClassifierRecord
from coremargin.formats.registry import records
from coremargin.formats.store_record import read_store_record
from coremargin.models.base import BaseModel
from coremargin.problems.kind import Kind
from coremargin.verify import registry
from coremargin.verify.examine import examine
from coremargin.verify.kind import Kind as VerifierKind
from model_kit import certified_record, store_of

if TYPE_CHECKING:
    import pytest


def test_every_problem_is_known_wherever_it_is_asked_for() -> None:
    """A kind of problem has a class of models and what trains them, and where these have a record, a verifier.

    It has the name of its line; of several that name it, of the first.
    """
    problems = {problem for problem, _ in records()}
    assert problems == set(registry.KINDS)
    # a fleet is a folder of models; models of a job that may come to either margin are of the one that it came to
    assert problems == set(KINDS) - {"fleet", "kernel_fleet", "hard_or_soft"}
    for name, parts in KINDS.items():
        assert module(parts.kind).KIND.name == next(line for line in KINDS if KINDS[line].kind == parts.kind), name
        assert isinstance(module(parts.kind).KIND, Kind)
        assert issubclass(module(parts.model).MODEL_CLASS, BaseModel)


def test_records_have_the_names_that_the_registry_gives_them() -> None:
    """What a module exports is the record of the problem in its line."""
    for problem, record in records():
        assert record.__struct_config__.tag == problem


def test_the_verifier_loads_nothing_of_what_it_judges() -> None:
    """With all its kinds loaded, of coremargin only the errors, the formats and the verifier itself are there."""
    code = (
        "import sys, coremargin.verify.examine; from coremargin.verify.registry import KINDS, kind_named;"
        "[kind_named(name) for name in KINDS]; from coremargin.formats.registry import records; list(records());"
        "print(*{name.split('.')[1] for name in sys.modules if name.startswith('coremargin.')})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert {"errors", "formats", "verify"} <= set(done.stdout.split()) <= {"errors", "formats", "verify", "version"}


def test_kinds_with_classes_compare_them_with_the_stores() -> None:
    """What the verifier does by default is for models without classes."""
    with_classes = [problem for problem, record in records() if issubclass(record, ClassifierRecord)]
    assert len(with_classes) > 5
    for problem in with_classes:
        assert type(registry.kind_named(problem)).same_classes is not VerifierKind.same_classes


def model_of(folder: Path, store: Path, X: np.ndarray, ids: list[int]) -> Path:
    """A model that says that the smallest ball around numbers X (n, 1) is the one around these two."""
    record, ends = read_store_record(LocalStorage(store)), X[ids].astype(np.float64)
    half = float(abs(ends[1] - ends[0])[0] / 2)
    about = {"classes": None, "features": 1, "rows": len(X), "dtype": str(X.dtype)}
    claims = {"lower": half * (1 - 1e-14), "upper": half * (1 + 1e-14), "store_digest": record.commits[-1].digest}
    content = certified_record(about, **claims, coreset_rows=2, radius=float(np.abs(X).max()))
    del content["classes"]
    content["problem"], content["certificate"]["kind"] = "ball", "radius"
    content["parameters"] = {"epsilon": content["parameters"]["epsilon"], "one_class": "ball"}
    folder.mkdir()
    (folder / "model.json").write_text(json.dumps(content))
    arrays = {"centre": ends.mean(axis=0), "alpha": np.full(2, 0.5), "coreset_ids": np.array(ids), "coreset_x": ends}
    write_arrays(folder / "arrays.npz", arrays)
    return folder


def test_a_model_without_classes_that_nothing_here_trained_is_verified(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """A true claim of a ball holds, one about another row is refuted."""
    X = rng.standard_normal((40, 1)).astype(np.float32)
    store = store_of(tmp_path / "s.zarr", X, list("ab" * 20), 16)
    order = np.argsort(X[:, 0]).tolist()
    good = model_of(tmp_path / "good", store, X, [order[0], order[-1]])
    told = CliRunner().invoke(main, ["verify", str(good), str(store), "--quiet"])
    assert told.exit_code == 0, told.output
    assert "no ball that contains the rows has a radius below" in told.stdout
    bad = examine(model_of(tmp_path / "bad", store, X, [order[0], order[-2]]), store)
    assert [check.name for check in bad.failures] == ["upper bound"]


def test_a_kind_without_a_verifier_is_told_which_list_lacks_it(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A problem with an entry among the kinds, none in the verifier's list, is wrong data; the list is named."""
    monkeypatch.delitem(registry.KINDS, "ball")
    X = rng.standard_normal((40, 1)).astype(np.float32)
    store = store_of(tmp_path / "s.zarr", X, list("ab" * 20), 16)
    told = CliRunner().invoke(main, ["verify", str(model_of(tmp_path / "m", store, X, [0, 1])), str(store), "--quiet"])
    assert told.exit_code == 3
    assert "'ball'" in told.stderr
    assert "verify/registry.py" in told.stderr
