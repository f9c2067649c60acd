"""Chains against enumeration of all labellings; dual points and their values written out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array

from coremargin.maths.structures.chain import ChainAscent, Sequences, losses_at, psi_sum, values_of
from coremargin.maths.structures.labellings import Labellings


def some_sequences(seed: int, *, chained: bool = True, examples: int = 6, classes: int = 3) -> Sequences:
    """Short sequences of sparse rows, with random costs and factors."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, examples) if chained else np.ones(examples, np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    X = rng.normal(size=(offsets[-1], 3)) * (rng.random((offsets[-1], 3)) < 0.7)
    costs = rng.random((classes, classes)) * 2
    np.fill_diagonal(costs, 0.0)
    labels = rng.integers(0, classes, offsets[-1])
    c = rng.random(examples) + 0.5
    return Sequences(np.arange(examples) * 2, csr_array(X), labels, offsets, c, costs, 1.5, chained)


def features_of(examples: Sequences, i: int, labelling: tuple[int, ...]) -> np.ndarray:
    """Phi(x_i, y) (D,), written out."""
    classes, d = len(examples.costs), examples.rows.shape[1]
    X = examples.rows.toarray()[examples.offsets[i] : examples.offsets[i + 1]]
    table, into = np.zeros((d + 1, classes)), np.zeros((classes, classes))
    for t, label in enumerate(labelling):
        table[:, label] += np.append(X[t], examples.constant)
        if t:
            into[label, labelling[t - 1]] += 1
    return np.concatenate([table.ravel(), into.ravel()]) if examples.chained else table.ravel()


def every_labelling(examples: Sequences, i: int) -> list[tuple[tuple[int, ...], float, np.ndarray]]:
    """All labellings of an example, in order, with losses and psi."""
    true = tuple(int(label) for label in examples.labels[examples.offsets[i] : examples.offsets[i + 1]])
    own = features_of(examples, i, true)
    return [
        (y, float(examples.costs[true, y].sum()), own - features_of(examples, i, y))
        for y in product(range(len(examples.costs)), repeat=len(true))
    ]


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_losses_and_labels_are_those_of_enumeration(seed: int, chained: bool) -> None:
    """Within the errors that are stated; the labels of the maximum attain it."""
    examples = some_sequences(seed, chained=chained)
    w = np.random.default_rng(seed).normal(size=examples.size)
    found = losses_at(examples, w)
    for i in range(len(examples)):
        every = every_labelling(examples, i)
        values = [loss - w @ psi for _, loss, psi in every]
        assert abs(found.values[i] - max(values)) <= found.errors[i]
        labels = tuple(found.argmax[examples.offsets[i] : examples.offsets[i + 1]].tolist())
        assert labels == every[int(np.argmax(values))][0]


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_margins_are_those_of_the_best_other_labelling(seed: int, chained: bool) -> None:
    """Where the true labelling has the highest score, and where it has not."""
    examples = some_sequences(seed, chained=chained)
    w = np.random.default_rng(seed).normal(size=examples.size)
    for v in (w, psi_sum(examples, perceptron_duals(examples))[0]):
        found = losses_at(examples, v, hard=True)
        for i in range(len(examples)):
            true = tuple(examples.labels[examples.offsets[i] : examples.offsets[i + 1]].tolist())
            others = [(y, -(v @ psi)) for y, _, psi in every_labelling(examples, i) if y != true]
            highest = max(value for _, value in others)
            assert abs(found.values[i] - highest) <= found.errors[i]
            labels = tuple(found.argmax[examples.offsets[i] : examples.offsets[i + 1]].tolist())
            assert dict(others)[labels] == pytest.approx(highest, abs=1e-9)


def perceptron_duals(examples: Sequences) -> Labellings:
    """Labellings of a few rounds of ascent, for a w that gets many examples right."""
    ascent, w = ChainAscent(examples, Labellings.nothing(3), hard=True), np.zeros(examples.size)
    for _ in range(20):
        ascent.visit(np.arange(len(examples)), w, search=True)
    return ascent.duals()


def test_of_equal_labellings_the_first_is_taken() -> None:
    """With weights of zero and equal costs: in lexicographic order, among those of the largest loss."""
    examples = some_sequences(1)
    costs = 1.0 - np.eye(3)
    examples = Sequences(**{**vars(examples), "costs": costs})
    found = losses_at(examples, np.zeros(examples.size))
    assert found.argmax.tolist() == [0 if label else 1 for label in examples.labels]
    plain = losses_at(examples, np.zeros(examples.size), augmented=False)
    assert not plain.argmax.any()


@pytest.mark.parametrize("chained", [True, False])
def test_ascent_reaches_the_least_value_of_another_solver(chained: bool) -> None:
    """L-BFGS on the softened maximum, from below and above; D and P are written out over all labellings."""
    examples = some_sequences(3, chained=chained)
    ascent, w, rng = ChainAscent(examples, Labellings.nothing(3)), np.zeros(examples.size), np.random.default_rng(0)
    for _ in range(400):
        ascent.visit(rng.permutation(len(examples)), w, search=True)
    every = [every_labelling(examples, i) for i in range(len(examples))]

    def value(v: np.ndarray) -> float:
        worst = [max(loss - v @ psi for _, loss, psi in some) for some in every]
        return float(0.5 * v @ v + examples.c @ worst)

    duals = ascent.duals()
    total, loss = np.zeros(examples.size), 0.0
    for k in range(len(duals)):
        i = int(np.searchsorted(examples.ids, duals.example[k]))
        labels = tuple(duals.labels[duals.starts[k] : duals.ends[k]].tolist())
        _, cost, psi = next(one for one in every[i] if one[0] == labels)
        total, loss = total + duals.weight[k] * psi, loss + duals.weight[k] * cost
    np.testing.assert_allclose(total, w, atol=1e-12)
    sums, dual_loss, reach = psi_sum(examples, duals)
    np.testing.assert_allclose(sums, total, atol=1e-15 * reach * 16)
    assert abs(dual_loss - loss) < 1e-12
    sums_by_example = np.array([duals.weight[duals.example == i].sum() for i in examples.ids])
    assert (sums_by_example <= examples.c * (1 + 1e-14)).all()
    primal, dual = value(w), loss - 0.5 * float(total @ total)
    assert dual <= primal <= dual * (1 + 1e-4)

    def softened(v: np.ndarray) -> float:
        terms = [1e-3 * np.logaddexp.reduce([(loss - v @ psi) / 1e-3 for _, loss, psi in some]) for some in every]
        return float(0.5 * v @ v + examples.c @ terms)

    other = minimize(softened, np.zeros(examples.size), method="L-BFGS-B", options={"maxiter": 2000, "maxfun": 10**6})
    assert dual <= value(other.x) * (1 + 1e-12)
    assert primal <= value(other.x) * (1 + 1e-4)


def test_labellings_join_examples_that_have_many() -> None:
    """More labellings than there is room for at first; the weights still add up."""
    examples = some_sequences(5, examples=3, classes=5)
    ascent, w, rng = ChainAscent(examples, Labellings.nothing(5)), np.zeros(examples.size), np.random.default_rng(0)
    for _ in range(300):
        ascent.visit(rng.permutation(3), w, search=True, steps=1)
    np.testing.assert_allclose(ascent.weights.sum(axis=1), examples.c)
    again = ChainAscent(examples, ascent.duals())
    np.testing.assert_allclose(again.weights.sum(axis=1), examples.c)
    assert abs(again.dual_loss - ascent.dual_loss) < 1e-12


def test_what_an_example_has_is_at_most_its_loss() -> None:
    """The mean of loss - w.psi over its labellings is what they prove of H_i."""
    examples = some_sequences(8)
    ascent, w = ChainAscent(examples, Labellings.nothing(3)), np.zeros(examples.size)
    for _ in range(5):
        ascent.visit(np.arange(len(examples)), w, search=True)
    duals = ascent.duals()
    found = values_of(examples, duals, w)
    for i in range(len(examples)):
        every = {labels: loss - w @ psi for labels, loss, psi in every_labelling(examples, i)}
        mine = [k for k in range(len(duals)) if duals.example[k] == examples.ids[i]]
        labels = [tuple(duals.labels[duals.starts[k] : duals.ends[k]].tolist()) for k in mine]
        expected = sum(duals.weight[k] * every[y] for k, y in zip(mine, labels, strict=True)) / examples.c[i]
        assert abs(found[i] - expected) < 1e-12
    assert (found <= losses_at(examples, w).values + 1e-12).all()


def test_labellings_are_kept_by_example() -> None:
    """Parts, replacement and plain arrays."""
    examples = some_sequences(2)
    ascent, w = ChainAscent(examples, Labellings.nothing(3)), np.zeros(examples.size)
    ascent.visit(np.arange(len(examples)), w, search=True)
    duals = ascent.duals()
    few = duals.between(2, 7)
    assert set(few.example) == {2, 4, 6}
    assert few.to_arrays("d").keys() == {"d_example", "d_weight", "d_labels", "d_ends"}
    same = duals.replaced(np.array([2, 4, 6]), few)
    for name, values in Labellings.from_arrays("d", same.to_arrays("d")).to_arrays("d").items():
        np.testing.assert_array_equal(values, duals.to_arrays("d")[name])
    assert not len(duals.replaced(examples.ids, Labellings.nothing(3)))
