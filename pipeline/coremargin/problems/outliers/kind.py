"""Margins with outliers as a kind of problem: the job's options and their checks, job to problem, results in words."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from msgspec import Meta

from coremargin.formats.choices import LOSS_TAKEN
from coremargin.formats.run_record import OutlierRun
from coremargin.problems.common.one_model import TwoClassKind
from coremargin.problems.job import TrainJob
from coremargin.problems.kind import describe_paths, describe_resume, describe_verify, suggest_loss
from coremargin.problems.outliers.messages import (
    describe_enumeration,
    describe_inseparable,
    describe_outlook,
    describe_outlook_briefly,
    describe_overlap,
    describe_theorem,
    describe_work_bounds,
)
from coremargin.report.numbers import plain_bounds, plain_share

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.outliers.published import Published
    from coremargin.models.model import Model
    from coremargin.problems.common.result import Result
    from coremargin.problems.kind import Outcome
    from coremargin.problems.outliers.outlier_margin import OutlierMargin

Search = Literal["exact", "heuristic", "published", "published-simple"]
#: Har-Peled, Roth, Zimak 2006, Figure 4 (a) and (b), with their names in the paper.
PUBLISHED: Mapping[str, Published] = {"published": "outlier-svm", "published-simple": "simple-outlier-svm"}
#: With more outliers than this, the exact search runs only on request.
MOST_EXACT = 1000


def parse_outliers(text: str) -> str | int | list[int]:
    """Parse a whole number, or several separated by commas; return any other text unchanged."""
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() for word in words):
        return text
    return int(text) if len(words) == 1 else [int(word) for word in words]


class OutlierJob(TrainJob, frozen=True, kw_only=True):
    """The largest margin once k rows are excluded as outliers.

    outliers: how many: a number, a share such as "1%" of the rows with a label and a positive weight (rounded down), or
    several values, such as "0..10" or [0, 1, 2, 5], for the margin as a function of k; the model is that of the
    largest. outlier_search: "exact" proves that no other k rows do better; "heuristic" gives a good answer and an upper
    bound, however far apart; None means "exact" up to 1,000 outliers. "published" and "published-simple" run Figure 4
    of Har-Peled, Roth, Zimak 2006, (a) and (b), on a few dozen rows: all subsets of a coreset's size, with the sharper
    constants of ``maths.outliers.published``; they need epsilon > 0. With epsilon = 0 the others go as far as float64
    can tell (1e-8).
    """

    EXACT: ClassVar[bool] = True

    outliers: Annotated[
        int | str | tuple[int, ...],
        Meta(
            description="Rows to exclude as outliers: 10, 1% of the labelled, 0..10, or 0,1,2,5.",
            extra={"metavar": "K", "text": parse_outliers},
        ),
    ]
    outlier_search: Annotated[
        Search | None, Meta(description="With proof; quick, with a bound; or Har-Peled et al. 2006, Figure 4.")
    ] = None

    def __post_init__(self) -> None:
        """Check the options. Raises ValueError."""
        from coremargin.formats.outliers import outlier_counts

        outlier_counts(self.outliers)
        super().__post_init__()
        if self.outlier_search in PUBLISHED and not self.epsilon > 0:
            raise ValueError(
                f"epsilon: expected a number above 0 for outlier_search {self.outlier_search!r}, whose subsets would "
                f"have no largest size, found {self.epsilon}; with outlier_search 'exact' it may be 0"
            )

    def counts(self, rows: Callable[[], int]) -> tuple[int, ...]:
        """Values of k, increasing; a share is taken of ``rows()``, the number of rows with a label and a weight."""
        from coremargin.formats.outliers import outlier_counts

        return outlier_counts(self.outliers, rows)

    def parameters(self) -> dict[str, Any]:
        """The parameters that the model's record keeps."""
        outliers = list(self.outliers) if isinstance(self.outliers, tuple) else self.outliers
        return super().parameters() | {"outliers": outliers, "outlier_search": self.outlier_search}


class OutlierKind(TwoClassKind[OutlierJob, "OutlierMargin"]):
    """The largest hard margin once k rows are excluded."""

    name = "outliers"
    job = OutlierJob
    title = "a margin with outliers"
    selected_by = "give outliers"
    run = OutlierRun

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Whether a job with these options has outliers, and neither a kernel nor several classes."""
        return "outliers" in options and "kernel" not in options and "classes" not in options

    def problem(self, job: OutlierJob, source: Source) -> OutlierMargin:
        """The problem that a job poses on these rows."""
        from coremargin.data.view import scan_bytes
        from coremargin.problems.common.classes import count_weighted_rows
        from coremargin.problems.outliers.outlier_margin import OutlierMargin

        ks = job.counts(lambda: int(count_weighted_rows(source).sum()))
        published = PUBLISHED.get(job.outlier_search or "")
        # A published algorithm needs all rows in the driver: the first stage is the whole read.
        sample = {} if published is None else {"sample_bytes": scan_bytes(source)}
        return OutlierMargin(
            source,
            ks,
            job.epsilon,
            intercept=job.intercept,
            exact=job.outlier_search == "exact" or (job.outlier_search is None and ks[-1] <= MOST_EXACT),
            published=published,
            memory_bytes=job.memory_bytes,
            sample_share=job.sample,
            **sample,
        )

    def verdict(self, outcome: Outcome, job: OutlierJob) -> list[str]:
        """The margin without the outliers, and the most that excluding other rows could give."""
        from coremargin.problems.outliers.outlier_table import outlier_table

        model = cast("Model", outcome.model)
        found = outlier_table(model)
        step, count = found.steps[-1], f"{len(found.rows):,} of {model.rows:,} rows"
        lower, upper = plain_bounds(step.lower, step.upper)
        progress = describe_enumeration(outcome.run.get("published", []))
        if model.status == "certified":
            share = plain_share(model.certificate.ratio)
            return [
                f"certified: without {count} the margin is {lower};",
                f"excluding any other {step.k:,} gives at most {upper}: at least {share} of the best possible.",
                *([f"{progress}."] if progress else []),
            ]
        if model.status == "not_separable":
            return [
                f"not separable: {describe_inseparable(step.k, found.least)}.",
                f"The proof, contradictions among {model.certificate.coreset_rows:,} rows, is in the model.",
                *([f"{progress}."] if progress else []),
            ]
        proven = f"{lower} without {count}" if lower else "none"
        possible = f"at most {upper}" if upper else "not known"
        if outcome.run.get("word") == "published":
            return [
                f"published: {progress.replace('the published algorithm', 'the algorithm')};",
                f"{describe_theorem(step.k, bool(lower), job.epsilon)};",
                f"margin proven {proven}, best possible by proof {possible}, epsilon asked for {job.epsilon}.",
            ]
        return [
            f"{'heuristic' if outcome.run.get('word') == 'heuristic' else 'stopped'}: {outcome.run['reason']};",
            *([f"{progress};"] if progress else []),
            f"margin proven {proven}, best possible {possible}, epsilon asked for {job.epsilon}.",
            *(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in describe_outlook(outcome.run)),
        ]

    def facts(self, problem: OutlierMargin, state: Any) -> dict[str, Any]:
        """The contents of ``run.json``: the enumerations of a published algorithm, the forecast of the search."""
        from coremargin.problems.outliers.enumeration import enumeration_record

        facts: dict[str, Any] = {"published": enumeration_record(state)} if state.enumerations else {}
        figures = problem.round_of(state).more
        facts |= {key: figures[key] for key in ("outliers", "wrong", "least", "gap_later") if key in figures}
        facts |= {} if (work := published_work(problem, problem.result(state))) is None else {"work": work}
        return super().facts(problem, state) | facts

    def describe_published(self, outcome: Outcome) -> list[tuple[str, str]]:
        """Lemma 5.2's bound next to the nodes of the exact search."""
        from coremargin.problems.outliers.outlier_table import outlier_table

        nodes = sum(step.nodes for step in outlier_table(outcome.model).steps)
        text = describe_work_bounds(outcome.run, nodes)
        return [("bound", text)] if text else []

    def describe_work(self, bounds: str, figures: Mapping[str, Any]) -> str:
        """The progress of the search, or of the published algorithm, in one line."""
        if figures.get("subsets", 0) < figures.get("subsets_at_most", 0):
            margin = figures["subsets_margin"]
            best = "no margin" if margin is None or margin <= 0 else f"best margin {margin:.6g}"
            return (
                f"published algorithm, {figures['subsets_k']:,} outliers: {figures['subsets']:,} of at most "
                f"{figures['subsets_at_most']:,} subsets tried, now of {figures['subset_rows']:,} rows; {best} so far; "
                f"Ctrl-C stops with what is proven"
            )
        nodes = f"{figures['nodes']:,} nodes"
        parts = [f"search: {bounds}", nodes, *describe_outlook_briefly(figures), "Ctrl-C stops here"]
        return "; ".join(parts)

    def next_steps(self, outcome: Outcome, job: OutlierJob) -> list[str]:
        """Commands to run next; the first lists the excluded rows."""
        rows = f"rows    coremargin outliers {shlex.quote(str(job.out))}"
        if outcome.model.status == "not_separable":
            return [*describe_paths(job), rows, suggest_loss(LOSS_TAKEN, instead_of="outliers"), describe_verify(job)]
        return [*describe_paths(job), rows, *describe_resume(outcome), describe_verify(job)]

    def notice(self, record: Mapping[str, Any]) -> str:
        """A warning when the classes overlap by more than k rows, or seem to."""
        return describe_overlap(record)

    def rows_meant(self, model: Model) -> str:
        """The rows that the margin is about."""
        from coremargin.problems.outliers.outlier_table import outlier_table

        found = outlier_table(model)
        return f"all rows but {len(found.rows):,} of {found.steps[-1].k:,} outliers (coremargin outliers lists them)"

    def report(self, folder: Path, name: str) -> str:
        """The page of a model's folder."""
        from coremargin.problems.outliers import report

        return report.page_of(folder, name)


def published_work(problem: OutlierMargin, found: Result) -> dict[str, float] | None:
    """Lemma 5.2's bound for the proven margin, and that of the search; None without a margin, or with epsilon 0."""
    from coremargin.maths import published_bounds as bounds
    from coremargin.problems.common.balls import enclosing_radius
    from coremargin.problems.common.classes import count_weighted_rows

    source, margin = problem.source, found.lower or 0.0
    if not (margin > 0 and problem.epsilon > 0):
        return None
    radius = enclosing_radius(source, origin=not problem.intercept)
    if not 0 < radius < math.inf:
        return None
    coreset = bounds.coreset_rows(radius, margin, problem.epsilon)
    return {
        "coreset": coreset,
        "log10_subsets": bounds.log10_subsets(int(count_weighted_rows(source).sum()), coreset),
        "log10_leaves": bounds.log10_leaves(source.features, problem.ks[-1]),
    }


KIND = OutlierKind()
