"""What kinds of two classes with one model share: how results become models, and how a run is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from coremargin.problems.common.one_model import OneModel

if TYPE_CHECKING:
    from coremargin.models.model import Model
    from coremargin.problems.common.result import OneProblem
    from coremargin.problems.job import TrainJob

J = TypeVar("J", bound="TrainJob")
P = TypeVar("P", bound="OneProblem[Any, Any]")


class TwoClasses(OneModel[J, P, "Model"]):
    """A kind whose model is a hyperplane between two classes."""

    def model(self, job: J, problem: P, state: Any) -> Model:
        """The hyperplane that a state stands for."""
        from coremargin.problems.common.model import model_of

        return model_of(problem.source, problem.codes, problem.result(state), self.name, job.parameters())

    def facts(self, problem: P, state: Any) -> dict[str, Any]:
        """Why the run ended, and where the rows lay in the last scan."""
        import numpy as np

        found = problem.result(state)
        return ({"word": found.word} if found.word else {}) | {
            "reason": found.reason,
            "histogram": {
                "edges": np.linspace(state.low, state.high, state.histogram.shape[1] + 1).tolist(),
                "positive": state.histogram[0].tolist(), "negative": state.histogram[1].tolist(),
                "hypothesis": "final" if found.final else "stages" if found.staged else "last scan",
            },
            "margins": {"rows_below_upper": problem.round_of(state).rows_below},
        }  # fmt: skip
