"""Training of structured output: certificates by enumeration, agreement with other code, the same bits everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structured_kit import exact_bounds, sequences, write_sequences

import coremargin
from coremargin.cli.plan import plan_job
from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.errors import BadRow, CoremarginError, UsageError
from coremargin.maths.structures.chain import psi_sum
from coremargin.maths.structures.costs import zero_one
from coremargin.problems.registry import new_job
from coremargin.problems.structured.structured_problem import StructuredProblem, StructuredState
from coremargin.verify import verify


def problem_of(source: Any, *, chained: bool = True, memory: int = 1 << 28, epsilon: float = 1e-3) -> StructuredProblem:
    """The problem on some rows, with C = 0.3."""
    return StructuredProblem(source, epsilon, 0.3, zero_one(3), chained, memory_bytes=memory)


def steps(
    problem: StructuredProblem, state: StructuredState, most: int = 400, *, finish: bool = True
) -> list[StructuredState]:
    """All states from one on, those between scans too; finish: fails after so many scans."""
    states = [state]
    for _ in range(most):
        states += problem.work(states[-1], lambda *_: None)
        if problem.done(states[-1]):
            return states
        probe, answer = problem.probe(states[-1]), problem.probe(states[-1]).empty()
        for block in plan_blocks(problem.source, 2000, skip=problem.skip(states[-1])):
            answer = answer.merge(probe.narrow(block)(problem.source, block))
        states.append(problem.update(states[-1], answer))
    assert not finish, (states[-1].lower, states[-1].upper)
    return states


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("structure", ["chain", "outputs"])
def test_certificates_are_those_of_enumeration(tmp_path: Path, structure: str, sparse: bool) -> None:
    """Both bounds, with weights and rows without labels; `verify` confirms them."""
    X, y, groups = sequences(1)
    labels: list[Any] = [["a", "b", "c"][k] for k in y]
    for row in np.flatnonzero(groups == 7):
        labels[row] = None
    weights = np.random.default_rng(0).choice([0.0, 0.5, 1.0, 3.0], 40)[groups]
    given = groups if structure == "chain" else None
    store = write_sequences(tmp_path / "s.zarr", X, labels, given, weights, sparse=sparse)
    model = coremargin.train(store, structure=structure, loss="hinge", C=0.3, out=tmp_path / "m", cluster="threads")
    found = verify(tmp_path / "m", store)
    assert found.ok, found
    assert model.status == "certified"
    each = groups if structure == "chain" else np.arange(len(y))
    value, dual = exact_bounds(model.record, model.numbers, X, labels, each, weights)
    claims = model.certificate
    assert claims.upper * (1 - 1e-9) <= value <= claims.upper
    assert claims.lower <= dual <= claims.lower * (1 + 1e-9)


@pytest.mark.parametrize("structure", ["chain", "outputs"])
def test_segments_prove_what_one_read_proves(tmp_path: Path, structure: str) -> None:
    """With little memory the store is read in passes; the bounds of both overlap, and `verify` confirms them."""
    X, y, groups = sequences(2, examples=80)
    store = write_sequences(tmp_path / "s.zarr", X, y, groups if structure == "chain" else None)
    options: dict[str, Any] = {"structure": structure, "loss": "hinge", "C": 0.3, "cluster": "threads"}
    whole = coremargin.train(store, out=tmp_path / "w", **options)
    parts = coremargin.train(store, out=tmp_path / "p", memory=6000, **options)
    assert (whole.status, parts.status) == ("certified", "certified")
    assert verify(tmp_path / "p", store).ok
    run = json.loads((tmp_path / "p" / "run.json").read_bytes())
    assert run["scans"] > 1
    assert whole.certificate.lower <= parts.certificate.upper
    assert parts.certificate.lower <= whole.certificate.upper


def test_outputs_with_equal_costs_are_several_classes_at_once() -> None:
    """The value of Crammer and Singer's margin, to 1e-9."""
    X, y, _ = sequences(3, examples=60)
    options: dict[str, Any] = {"loss": "hinge", "C": 0.05, "epsilon": 1e-9}
    ours = coremargin.train(X, y, structure="outputs", **options)
    theirs = coremargin.train(X, y, classes="crammer-singer", **options)
    assert (ours.status, theirs.status) == ("certified", "certified")
    assert ours.certificate.lower == pytest.approx(theirs.certificate.upper, rel=2e-9)
    assert ours.record["constant"] == theirs.record["constant"]


def separable(seed: int, examples: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sequences whose labels follow from their rows."""
    X, y, groups = sequences(seed, examples)
    return 0.3 * X + np.eye(4, dtype=np.float32)[y], y, groups


@pytest.mark.parametrize("memory", [None, 6000])
@pytest.mark.parametrize("structure", ["chain", "outputs"])
def test_hard_margins_are_those_of_enumeration(tmp_path: Path, structure: str, memory: int | None) -> None:
    """The least margin over all other labellings, and the bound of the labellings; in one read and in passes."""
    X, y, groups = separable(2)
    store = write_sequences(tmp_path / "s.zarr", X, y, groups if structure == "chain" else None)
    model = coremargin.train(store, structure=structure, out=tmp_path / "m", cluster="threads", memory=memory)
    assert model.status == "certified"
    found = verify(tmp_path / "m", store)
    assert found.ok, found
    each = groups if structure == "chain" else np.arange(len(y))
    margin, bound = exact_bounds(model.record, model.numbers, X, y.tolist(), each, np.ones(len(y)))
    claims = model.certificate
    assert claims.lower <= margin <= claims.lower * (1 + 1e-9)
    assert claims.upper * (1 - 1e-7) <= bound <= claims.upper  # the drift of many small steps counts


def test_a_hard_margin_of_outputs_is_that_of_several_classes_at_once() -> None:
    """Section 6 of Har-Peled, Roth and Zimak, by two algorithms."""
    X, y, _ = separable(3)
    ours, theirs = coremargin.train(X, y, structure="outputs"), coremargin.train(X, y, classes="crammer-singer")
    assert ours.certificate.lower <= theirs.certificate.upper
    assert theirs.certificate.lower <= ours.certificate.upper


def test_labels_that_overlap_end_with_a_small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows with other labels: no margin is possible, and the reason says what to choose."""
    monkeypatch.setattr("coremargin.problems.structured.structured_problem.MOST_LOOKS", 20)
    X, y, groups = separable(4, 10)
    twice = ArraySource(np.vstack([X, X]), np.append(y, (y + 1) % 3), groups=np.append(groups, groups + 10))
    problem = StructuredProblem(twice, 1e-3, None, zero_one(3), True)
    last = steps(problem, problem.start())[-1]
    assert last.lower <= 0 < last.upper < 0.1
    assert "choose a loss" in problem.reason(last)


def test_what_a_stopped_job_claims_is_what_its_labellings_prove(tmp_path: Path) -> None:
    """Of rows that are all zero, and of a hard margin that is never reached; the bound may have been better before."""
    X, y, groups = sequences(11, examples=30)
    for name, rows, most in (("zeros", 0 * X, 1.0), ("noise", X, 1.0)):
        store = write_sequences(tmp_path / f"{name}.zarr", rows, y, groups)
        options: dict[str, Any] = {"structure": "chain", "cluster": "threads", "time_limit": most}
        model = coremargin.train(store, out=tmp_path / name, **options)
        assert model.status == "stopped"
        assert verify(tmp_path / name, store).ok
    source = ArraySource(X, y, groups=groups, chunk_rows=16)
    for cost in (None, 3.0):  # in the middle of a pass, too
        problem = StructuredProblem(source, 1e-6, cost, zero_one(3), True, memory_bytes=6000)
        for state in steps(problem, problem.start(), 25, finish=False):
            w, loss, _ = psi_sum(problem.reader.read_all(source, list(range(source.chunks))), state.duals)
            total = float(state.duals.weight.sum())
            if cost is None:
                assert not total > 0 or state.upper >= float(np.linalg.norm(w)) / total
            else:
                assert state.lower <= max(0.0, loss - 0.5 * float(w @ w))


@pytest.mark.parametrize("memory", [1 << 28, 6000])
def test_every_state_resumes_with_the_same_bits(memory: int) -> None:
    """From plain arrays, in a process that has no examples in memory."""
    X, y, groups = sequences(4)
    source = ArraySource(X, y, groups=groups, chunk_rows=16)
    problem = problem_of(source, memory=memory)
    states = steps(problem, problem.start())
    assert states[-1].status == "certified"
    expected = states[-1].to_arrays()
    for state in states[:: max(1, len(states) // 8)]:
        other = problem_of(source, memory=memory)
        found = steps(other, other.restore(state.to_arrays()))[-1].to_arrays()
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_threads_and_processes_give_the_same_bits(tmp_path: Path) -> None:
    """Also with segments; and arrays in memory give those of a store."""
    X, y, groups = sequences(5)
    store = write_sequences(tmp_path / "s.zarr", X, y, groups)
    options: dict[str, Any] = {"structure": "chain", "loss": "hinge", "C": 0.3, "memory": 6000}
    for name in ("embedded", "threads"):
        coremargin.train(store, out=tmp_path / name, cluster=name, **options)
    for file in ("model.json", "arrays.npz"):
        assert (tmp_path / "embedded" / file).read_bytes() == (tmp_path / "threads" / file).read_bytes()


def test_plans_say_how_often_the_store_is_read(tmp_path: Path) -> None:
    """Once, or in passes."""
    X, y, groups = sequences(6, examples=20)
    write_sequences(tmp_path / "s.zarr", X, y, groups)
    for memory, reads in (("1 GiB", 1), ("6 kB", 5)):
        job = new_job(store=tmp_path / "s.zarr", out="m", structure="chain", loss="hinge", memory=memory)
        assert plan_job(job, "threads")["reads_expected"] == reads


def test_what_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    """Rows without groups, a group with labels in some rows only, options of other kinds."""
    X, y, groups = sequences(6)
    with pytest.raises(UsageError, match="expected rows in groups"):
        coremargin.train(X, y, structure="chain", loss="hinge")
    labels: list[Any] = [str(label) for label in y]
    row = int(np.flatnonzero(np.bincount(groups)[groups] > 2)[0]) + 1
    labels[row] = None
    store = write_sequences(tmp_path / "s.zarr", X, labels, groups)
    with pytest.raises(BadRow, match=f"row {row} .group '{groups[row]}'.: expected labels in all rows"):
        coremargin.train(store, structure="chain", loss="hinge", cluster="threads")
    for wrong in ({"map": "fourier", "components": 5}, {"folds": 3}, {"kernel": "rbf"}, {"loss": "squared_hinge"}):
        with pytest.raises(CoremarginError):
            coremargin.train(X, y, groups=groups, **{"structure": "chain", "loss": "hinge", **wrong})


def test_a_large_c_ends_with_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that do not end are counted, and the reason says what is left."""
    monkeypatch.setattr("coremargin.problems.structured.structured_problem.MOST_LOOKS", 3)
    X, y, groups = sequences(7)
    source = ArraySource(X, y, groups=groups, chunk_rows=16)
    problem = StructuredProblem(source, 1e-6, 1e6, zero_one(3), True)
    last = steps(problem, problem.start())[-1]
    assert last.status == "unfinished"
    assert "smaller C" in problem.reason(last)
