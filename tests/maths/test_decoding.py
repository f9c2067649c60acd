"""Labellings of sequences and max-marginals, against all labellings one by one."""

from __future__ import annotations

import itertools

import numpy as np

from coremargin.maths.structures.decoding import decode_sequences


def test_labellings_and_marginals_are_those_of_enumeration() -> None:
    """Whole scores, many of them equal: the first labelling in order wins, and every max-marginal is exact."""
    rng = np.random.default_rng(0)
    for classes in (2, 3):
        offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 6, 30))])
        scores = rng.integers(-3, 4, (offsets[-1], classes)).astype(float)
        transitions = rng.integers(-2, 3, (classes, classes)).astype(float)
        labels, marginals = decode_sequences(scores, transitions, offsets)
        for first, stop in itertools.pairwise(offsets.tolist()):
            rows = scores[first:stop]
            values = {
                path: sum(rows[t, k] for t, k in enumerate(path))
                + sum(transitions[pair] for pair in itertools.pairwise(path))
                for path in itertools.product(range(classes), repeat=stop - first)
            }
            top = max(values.values())
            assert tuple(labels[first:stop]) == min(path for path, value in values.items() if value == top)
            for t, k in itertools.product(range(stop - first), range(classes)):
                assert marginals[first + t, k] == max(value for path, value in values.items() if path[t] == k)


def test_sequences_do_not_depend_on_each_other() -> None:
    """Each sequence alone gives the same bits as all together; no labelling has a marginal above the best."""
    rng = np.random.default_rng(1)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 20, 20))])
    scores, transitions = rng.normal(size=(offsets[-1], 4)), rng.normal(size=(4, 4))
    labels, marginals = decode_sequences(scores, transitions, offsets)
    for first, stop in itertools.pairwise(offsets.tolist()):
        alone = decode_sequences(scores[first:stop], transitions, np.array([0, stop - first]))
        np.testing.assert_array_equal(alone[0], labels[first:stop])
        np.testing.assert_array_equal(alone[1], marginals[first:stop])
        own = marginals[np.arange(first, stop), labels[first:stop]]
        assert (own == own[0]).all()
        assert (marginals[first:stop] <= own[0]).all()


def test_no_rows() -> None:
    """Nothing is decided about no rows."""
    labels, marginals = decode_sequences(np.zeros((0, 3)), np.zeros((3, 3)), np.zeros(1, np.int64))
    assert labels.shape == (0,)
    assert marginals.shape == (0, 3)
