"""The hard margin as a kind of problem: the job's options, job to problem, messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from coremargin.formats.choices import Centre, ErrorPick, Strategy
from coremargin.problems.common import messages
from coremargin.problems.common.one_model import TwoClassKind
from coremargin.problems.job import TrainJob

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.model import Model
    from coremargin.problems.hard.hard_margin import HardMargin
    from coremargin.problems.kind import Outcome


#: Thresholds of messages: the working set is full above FULL of its capacity; chunks were read again above AGAIN reads.
FULL, AGAIN = 0.8, 1.05
#: Share of the rows that is cached with a model: so many rows for each feature, but a share within these limits. A few
#: rows for each feature move the hyperplane from update to update, however many others there are, and an update that
#: moves it reads and writes the cached rows. Rows that come 1 % closer in each update: see jobs/bench/README.md.
ROWS_A_FEATURE, LEAST_SHARE, NEAR_SHARE = 800, 0.02, 0.04


class HardMarginJob(TrainJob, frozen=True, kw_only=True):
    """The largest margin between two classes.

    strategy: "fast", or a published algorithm by its name; all of them end with the same kind of certificate, and a
    model's ``run.json`` has the margin of the algorithm's own hyperplane too. centre, pick: of "cutting-planes", the
    query point, and of the rows that it misclassifies the one that becomes a plane.
    """

    strategy: Annotated[
        Strategy,
        Meta(
            description="Of a hard margin: a published algorithm, which ends with the same certificate; `coremargin "
            "compare --help` lists them.",
            extra={"metavar": "NAME"},
        ),
    ] = "fast"
    centre: Annotated[
        Centre | None,
        Meta(
            description="Of cutting planes: the query point.  [default: perceptron]",
            extra={"metavar": "perceptron|chebyshev|..."},
        ),
    ] = None
    pick: Annotated[
        ErrorPick | None,
        Meta(description="Of cutting planes: the error of the row that cuts.  [default: largest]"),
    ] = None

    def __post_init__(self) -> None:
        """Raises ValueError for options that belong to another strategy, or for values out of range."""
        for name in ("centre", "pick"):
            if getattr(self, name) is not None and self.strategy != "cutting-planes":
                raise ValueError(f"{name}: only strategy 'cutting-planes' has one, found strategy {self.strategy!r}")
        super().__post_init__()

    def parameters(self) -> dict[str, Any]:
        """The parameters that the model's record keeps."""
        given = {name: getattr(self, name) for name in ("centre", "pick") if getattr(self, name) is not None}
        return {**super().parameters(), "strategy": self.strategy, **given}


def hard_margin(job: TrainJob, source: Source, *, strategy: Strategy = "fast", sharing: int = 1) -> HardMargin:
    """The problem on these rows; ``sharing`` problems share one memory."""
    from coremargin.problems.hard.hard_margin import HardMargin

    return HardMargin(
        source,
        job.epsilon,
        intercept=job.intercept,
        strategy=strategy,
        working_set_bytes=job.memory_bytes // sharing,
        sample_share=job.sample,
    )


class HardMarginKind(TwoClassKind[HardMarginJob, "HardMargin"]):
    """All rows of each class on one side of the hyperplane, as far from it as possible."""

    name = "hard_margin"
    job = HardMarginJob
    title = "a hard margin"
    selected_by = "give neither loss nor outliers, classes or folds"
    losses = ("auto", "hinge", "squared_hinge")

    def matches(self, options: Mapping[str, Any]) -> bool:
        """True: this kind takes the jobs that no other kind matches."""
        return True

    def problem(self, job: HardMarginJob, source: Source) -> HardMargin:
        """The problem, with a cache for warm starts."""
        from coremargin.problems.common.warm_start import most_cached_rows
        from coremargin.problems.hard.hard_margin import CUT

        share = min(NEAR_SHARE, max(LEAST_SHARE, ROWS_A_FEATURE * source.features / source.rows))
        share = min(share, CUT * most_cached_rows(source, job.allowance) / source.rows)
        found = replace(hard_margin(job, source, strategy=job.strategy), near_share=share)
        return replace(found, centre=job.centre or "perceptron", pick=job.pick or "largest")

    def model(self, job: HardMarginJob, problem: HardMargin, state: Any) -> Model:
        """With the claim that its coreset alone has this hyperplane, where that holds."""
        from coremargin.problems.hard.generalization import compression_claim

        model, found = super().model(job, problem, state), problem.result(state)
        claim = compression_claim(problem.source, found, problem.epsilon, intercept=problem.intercept)
        return model if claim is None else replace(model, record={**model.record, "compression": claim})

    def facts(self, problem: HardMargin, state: Any) -> dict[str, Any]:
        """Adds the capacity of the working set, whether cached rows were lost, and bounds on the error."""
        from coremargin.problems.hard.generalization import generalization_of

        lost = {"near_rows_lost": True} if state.near_rows_lost else {}
        facts = super().facts(problem, state) | {"working_set_limit": problem.working_set_rows} | lost
        rule = problem.rule
        facts |= {"own": problem.describe_strategy(state)} if rule.iterates or rule.proposes else {}
        found = problem.result(state)
        bounds = generalization_of(problem.source, found, problem.epsilon, intercept=problem.intercept)
        if bounds is None:
            return facts
        on_margin = len(found.proof.support)
        return facts | {"generalization": bounds, "kkt": [[bounds["rows"] - on_margin, on_margin, 0]]}

    def describe_run(self, run: Mapping[str, Any]) -> list[tuple[str, str]]:
        """The rows by their dual weights, and bounds on the error on new rows."""
        from coremargin.problems.hard.generalization import describe, read_generalization

        found = read_generalization(run)
        return messages.describe_kkt(run) + ([] if found is None else describe(found))

    def describe_published(self, outcome: Outcome) -> list[tuple[str, str]]:
        """The bound on the error on new rows, and Lemma 3.1's on the coreset."""
        from coremargin.problems.hard.generalization import describe_briefly, read_generalization

        found = read_generalization(outcome.run)
        return [] if found is None else describe_briefly(found)

    def bounds_before(self, job: HardMarginJob, problem: HardMargin) -> dict[str, float] | None:
        """Lemma 3.1's, which depends on the margin."""
        from coremargin.problems.hard.generalization import coreset_bounds_before

        return coreset_bounds_before(problem.source, problem.epsilon, intercept=problem.intercept)

    def describe_before(self, found: Mapping[str, float]) -> list[tuple[str, str]]:
        """The same as a line."""
        from coremargin.problems.hard.generalization import describe_before

        return [describe_before(found)]

    def summary(self, model: Model, run: Mapping[str, Any]) -> dict[str, Any]:
        """Adds the bound on the error on new rows, and Lemma 3.1's on the coreset; None: not known."""
        from coremargin.problems.hard.generalization import read_generalization

        found = read_generalization(run)
        return super().summary(model, run) | {
            "error_bound": None if found is None else found.compression,
            "coreset_bound": None if found is None else found.coreset_bound,
            "coreset_sharp": None if found is None else found.coreset_sharp,
        }

    def describe_reading(self, job: HardMarginJob) -> str:
        """The strategy's reads of the store."""
        from coremargin.problems.hard.strategies.table import STRATEGIES

        return STRATEGIES[job.strategy].reading

    def verdict(self, outcome: Outcome, job: HardMarginJob) -> list[str]:
        """Adds the margin of a strategy's own hyperplane, its passes and updates, and the theorem's bound on these."""
        return [*super().verdict(outcome, job), *messages.describe_strategy(outcome.model.parameters, outcome.run)]

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """The working set; advice if it was full and chunks were read again."""
        word, text = super().driver_memory(outcome)
        run = outcome.run
        full = run["working_set_rows"] > FULL * run.get("working_set_limit", math.inf)
        if full and run.get("stages") and run["bytes_read"] > AGAIN * run["store_bytes"]:
            text += "; it was full: with more --memory less would be read again"
        return word, text

    def contradiction(self, model: Model) -> list[str]:
        """The hulls of the classes meet."""
        rows = f"{model.certificate.coreset_rows:,} rows meet (rows {messages.list_rows(model.coreset_ids)})"
        return [
            f"not separable: the hulls of {rows},",
            "so that to within float64 no hyperplane has all rows of one class on one side. The proof is in the model.",
        ]

    def met(self, rows: list[int]) -> str:
        """The hulls of the classes meet."""
        return f"no hyperplane separates the rows: the hulls of rows {rows} meet, to within float64"

    def report(self, folder: Path, name: str) -> str:
        """The HTML page of a model."""
        from coremargin.problems.hard import report

        return report.page_of(folder, name)


KIND = HardMarginKind()
