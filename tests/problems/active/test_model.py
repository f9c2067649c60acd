"""What a model says of a state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from asking import Person, apart, source_of, states

from coremargin.problems.active.model import evidence_of, model_of
from coremargin.problems.active.problem import ActiveMargin


def test_draws_are_evidence_where_the_bounds_prove_epsilon(rng: np.random.Generator) -> None:
    """Where the last bits of the bounds are missing to epsilon, the answers to draws are answers like all others."""
    X, signs = apart(rng, 2000, 4, 0.2)
    problem = ActiveMargin(source_of(X), resident_rows=300)
    state = states(problem, Person(signs))[-1]
    assert evidence_of(problem, state, ["a", "b"]) is not None
    short = replace(state, lower=np.nextafter((1 - problem.epsilon) * state.upper, 0.0) * (1 - 2**-50))
    assert evidence_of(problem, short, ["a", "b"]) is None
    asked = {"epsilon": 0.1, "intercept": True, "method": "coreset", "error": 0.01, "confidence": 0.99, "seed": 0}
    record, arrays = (model := model_of(problem, short, ["a", "b"], asked, None)).record, model.arrays()
    assert (record["status"], record["evidence"]) == ("stopped", None)
    both = np.sort(np.concatenate([state.answered.ids, state.draws.ids]))
    assert np.array_equal(arrays["answered_ids"], both)
