"""The margin with outliers as a kind of problem."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from coremargin.formats.choices import LOSS_TAKEN
from coremargin.formats.run_record import OutlierRun
from coremargin.problems.common.one_model import TwoClassKind
from coremargin.problems.kind import describe_paths, describe_resume, describe_verify, suggest_loss
from coremargin.problems.outliers.messages import (
    expectations,
    expectations_in_brief,
    hopeless,
    overlap_told,
    theorem_told,
    tried_told,
)
from coremargin.problems.outliers.spec import OutlierJob
from coremargin.report.numbers import plain_bounds, plain_share

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.model import Model
    from coremargin.problems.kind import Outcome
    from coremargin.problems.outliers.problem import OutlierMargin


class OutlierKind(TwoClassKind[OutlierJob, "OutlierMargin"]):
    """The largest hard margin once k rows are left out."""

    name = "outliers"
    job = OutlierJob
    title = "a margin with outliers"
    selected_by = "give outliers"
    run = OutlierRun

    def matches(self, options: Mapping[str, Any]) -> bool:
        """A number of outliers."""
        return "outliers" in options

    def problem(self, job: OutlierJob, source: Source) -> OutlierMargin:
        """The problem on these rows."""
        from coremargin.problems.outliers.make import problem_of

        return problem_of(job, source)

    def verdict(self, outcome: Outcome, job: OutlierJob) -> list[str]:
        """The margin once rows are left out, and what no others allow."""
        from coremargin.problems.outliers.left_out import left_out

        model = cast("Model", outcome.model)
        found = left_out(model)
        step, count = found.steps[-1], f"{len(found.rows):,} of {model.rows:,} rows"
        lower, upper = plain_bounds(step.lower, step.upper)
        tried = tried_told(outcome.run.get("published", []))
        if model.status == "certified":
            share = plain_share(model.certificate.ratio)
            return [
                f"certified: without {count} the margin is {lower};",
                f"no {step.k:,} left out allow more than {upper}: at least {share} of the best possible.",
                *([f"{tried}."] if tried else []),
            ]
        if model.status == "not_separable":
            return [
                f"not separable: {hopeless(step.k, found.least)}.",
                f"The proof, contradictions among {model.certificate.coreset_rows:,} rows, is in the model.",
                *([f"{tried}."] if tried else []),
            ]
        proven = f"{lower} without {count}" if lower else "none"
        possible = f"at most {upper}" if upper else "not known"
        if outcome.run.get("word") == "published":
            bounds = f"margin proven {proven}, best possible by proof {possible}, epsilon asked for {job.epsilon}."
            ended = tried.replace("the published algorithm", "the algorithm")
            return [f"published: {ended};", f"{theorem_told(step.k, bool(lower), job.epsilon)};", bounds]
        return [
            f"{'heuristic' if outcome.run.get('word') == 'heuristic' else 'stopped'}: {outcome.run['reason']};",
            *([f"{tried};"] if tried else []),
            f"margin proven {proven}, best possible {possible}, epsilon asked for {job.epsilon}.",
            *(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in expectations(outcome.run)),
        ]

    def facts(self, problem: OutlierMargin, state: Any) -> dict[str, Any]:
        """And what the published algorithm came to for each k, where it was asked for."""
        from coremargin.problems.outliers.enumerate import record_of

        told: dict[str, Any] = {"published": record_of(state)} if state.enumerated else {}
        figures = problem.round_of(state).more
        told |= {key: figures[key] for key in ("outliers", "wrong", "least", "gap_later") if key in figures}
        return super().facts(problem, state) | told

    def describe_work(self, bounds: str, figures: Mapping[str, Any]) -> str:
        """How far the search is, or the published algorithm."""
        if figures.get("subsets", 0) < figures.get("subsets_at_most", 0):
            margin = figures["subsets_margin"]
            best = "no margin" if margin is None or margin <= 0 else f"best margin {margin:.6g}"
            return (
                f"published algorithm, {figures['subsets_k']:,} left out: {figures['subsets']:,} of at most "
                f"{figures['subsets_at_most']:,} subsets tried, now of {figures['subset_rows']:,} rows; {best} so far; "
                f"Ctrl-C ends it with what is proven"
            )
        nodes = f"{figures['nodes']:,} nodes"
        told = [f"search: {bounds}", nodes, *expectations_in_brief(figures), "Ctrl-C ends it with that"]
        return "; ".join(told)

    def next_steps(self, outcome: Outcome, job: OutlierJob) -> list[str]:
        """A look at the rows that were left out."""
        rows = f"rows    coremargin outliers {shlex.quote(str(job.out))}"
        if outcome.model.status == "not_separable":
            return [*describe_paths(job), rows, suggest_loss(LOSS_TAKEN, instead_of="outliers"), describe_verify(job)]
        return [*describe_paths(job), rows, *describe_resume(outcome), describe_verify(job)]

    def notice(self, record: Mapping[str, Any]) -> str:
        """That the classes overlap by more than the rows that may be left out, or look as if they did."""
        return overlap_told(record)

    def rows_meant(self, model: Model) -> str:
        """Those that are not left out."""
        from coremargin.problems.outliers.left_out import left_out

        found = left_out(model)
        return f"all rows but {len(found.rows):,} of {found.steps[-1].k:,} outliers (coremargin outliers lists them)"

    def report(self, folder: Path, name: str) -> str:
        """One page."""
        from coremargin.problems.outliers import report

        return report.page_of(folder, name)


KIND = OutlierKind()
