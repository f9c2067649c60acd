"""Several classes at once (Crammer, Singer) as a kind of problem: the job's options, job to problem, state to model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from coremargin.formats.choices import ClassesStrategy
from coremargin.problems.common.messages import MARGIN, TRIMMED_MARGIN, VALUE, describe_left_out
from coremargin.problems.common.one_model import OneModel
from coremargin.problems.job import TrainJob
from coremargin.problems.outliers.kind import parse_outliers
from coremargin.problems.outliers.messages import describe_search
from coremargin.problems.soft.spec import COST, check_costs, check_without_loss, loss_parameters

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.model import Model
    from coremargin.problems.common.messages import Claims
    from coremargin.problems.multiclass.classes_problem import ClassesState
    from coremargin.problems.multiclass.crammer_singer import CrammerSinger
    from coremargin.problems.multiclass.kesler import KeslerMargin

    Margin = KeslerMargin | CrammerSinger


class CrammerSingerJob(TrainJob, frozen=True, kw_only=True):
    """One model of all classes at once (Crammer, Singer), with a hard margin or the hinge loss.

    Intercepts are penalised like the weights of a constant feature as long as the longest row. class_weight "balanced"
    multiplies C by n / (classes n_class). With the hinge, a store of fewer than 50 rows per entry of the hypothesis is
    read into memory as far as it fits. outliers: of a hard margin, how many rows may be left out: a number, or a share
    of the rows with a label and a weight. A search proves that no other rows are better to leave out.
    """

    classes: Annotated[
        Literal["crammer-singer"],
        Meta(description="More than two classes: each against the rest, or all at once."),
    ]
    loss: Literal["hinge"] | None = None
    C: float | None = None
    class_weight: Literal["balanced"] | None = None
    strategy: Annotated[
        ClassesStrategy,
        Meta(
            description="Of a hard margin: a published algorithm, which ends with the same certificate; `coremargin "
            "compare --help` lists them.  [default: fast]",
            extra={"metavar": "NAME"},
        ),
    ] = "fast"
    outliers: Annotated[
        int | str | None,
        Meta(description="Rows to exclude as outliers: 10, or 1%.", extra={"metavar": "K", "text": parse_outliers}),
    ] = None

    def __post_init__(self) -> None:
        """Check the options. Raises ValueError."""
        super().__post_init__()
        check_costs([self.cost])
        if self.loss is not None and self.strategy != "fast":
            raise ValueError(
                f"strategy: {self.strategy!r} is for hard margins, found loss {self.loss!r}; leave it out, or take "
                "strategy 'fast'"
            )
        if self.loss is None:
            check_without_loss(self.C, self.class_weight)
        if self.outliers is not None:
            self._check_outliers()

    def _check_outliers(self) -> None:
        from coremargin.problems.outliers.removal import check_one_count

        check_one_count(self.outliers or 0)
        for name, default in (("loss", None), ("strategy", "fast")):
            if getattr(self, name) != default:
                raise ValueError(
                    f"outliers: they are for hard margins by strategy 'fast', found {name} {getattr(self, name)!r}; "
                    "leave out one of the two"
                )

    @property
    def cost(self) -> float:
        """C, or its default; unused without a loss."""
        return COST if self.C is None else self.C

    def parameters(self) -> dict[str, Any]:
        """The parameters that the model's record keeps."""
        outliers = {} if self.outliers is None else {"outliers": self.outliers}
        shared = super().parameters() | {"classes": self.classes, "strategy": self.strategy} | outliers
        return shared if self.loss is None else shared | loss_parameters(self.loss, self.cost, self.class_weight)


class CrammerSingerKind(OneModel[CrammerSingerJob, "Margin", "Model"]):
    """One hypothesis for all classes, hard or soft."""

    name = "crammer_singer"
    job = CrammerSingerJob
    title = "a margin of several classes at once"
    thing = "hypothesis"
    selected_by = 'give classes "crammer-singer"'
    losses = ("hinge",)

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Whether a job with these options names the method."""
        return options.get("classes") == "crammer-singer"

    def problem(self, job: CrammerSingerJob, source: Source) -> Margin:
        """The hard margin or, with a loss, the soft margin."""
        from coremargin.engine.plan import plan_blocks
        from coremargin.problems.multiclass.crammer_singer import CrammerSinger
        from coremargin.problems.multiclass.kesler import KeslerMargin
        from coremargin.problems.multiclass.outliers import with_outliers
        from coremargin.problems.outliers.removal import count_left_out

        if job.loss is None:
            found = KeslerMargin(
                source,
                job.epsilon,
                job.intercept,
                memory_bytes=job.memory_bytes,
                sample_share=job.sample,
                blocks=len(plan_blocks(source, job.block)),
                strategy=job.strategy,
            )
            left_out = 0 if job.outliers is None else count_left_out(source, job.outliers)
            return found if left_out == 0 else with_outliers(found, left_out)
        return CrammerSinger(
            source,
            job.epsilon,
            job.intercept,
            memory_bytes=job.memory_bytes,
            sample_share=job.sample,
            cost=job.cost,
            class_weight=job.class_weight,
        )

    def model(self, job: CrammerSingerJob, problem: Margin, state: ClassesState) -> Model:
        """The model of a state."""
        from coremargin.data.mapped import as_kept
        from coremargin.models.model import Model
        from coremargin.problems.common.model import record_of, transform_arrays

        source, result = problem.source, problem.result(state)
        rows = result.rows
        record = record_of(
            source, problem.codes, result, self.name, job.parameters(), len(rows), constant=result.constant
        )
        numbers = {
            "hypothesis": result.hypothesis,
            "duals": result.duals,
            "coreset_ids": rows.ids,
            "coreset_classes": rows.classes,
            **({"reference": result.reference} if result.kind == "duality_gap" else {}),
            **({} if job.outliers is None else {"outliers_ids": result.outliers}),
            **({} if result.proof is None else result.proof.to_arrays("proof")),
            **transform_arrays(source),
        }
        return Model(record, numbers, as_kept(source, rows.ids, rows.rows))

    def claims(self, model: Model) -> Claims:
        """Bounds on a margin, perhaps of all rows but some, or with a loss on a value."""
        if model.certificate.is_value:
            return VALUE
        return MARGIN if model.outlier_ids is None else TRIMMED_MARGIN

    def contradiction(self, model: Model) -> list[str]:
        """With outliers, the rows that prove it whatever rows are left out."""
        if model.outlier_ids is None:
            return super().contradiction(model)
        most, rows = model.parameters["outliers"], model.certificate.coreset_rows
        return [
            f"not separable: whatever rows are left out, up to {most}, others contradict each other, so that no",
            f"{self.thing} gives all their own class, to within float64. The proof ({rows:,} rows) is in the model.",
        ]

    def rows_meant(self, model: Model) -> str:
        """The rows that the margin is about."""
        return super().rows_meant(model) if model.outlier_ids is None else describe_left_out(model)

    def describe_work(self, bounds: str, figures: Mapping[str, Any]) -> str:
        """The progress of the search for outliers, in one line."""
        return describe_search(bounds, figures)

    def describe_reading(self, job: CrammerSingerJob) -> str:
        """The strategy's reads of the store."""
        from coremargin.problems.hard.strategies.table import STRATEGIES

        return STRATEGIES[job.strategy].reading if job.strategy != "fast" else super().describe_reading(job)

    def facts(self, problem: Margin, state: ClassesState) -> dict[str, Any]:
        """Why the run ended, and the confusion matrix of the last scan."""
        result = problem.result(state)
        return {
            "reason": result.reason,
            "confusion": result.confusion.tolist(),
            "confusion_of": "final" if result.final else "last scan",
            "margins": {"rows_below_upper": problem.round_of(state).rows_below},
        }

    def report(self, folder: Path, name: str) -> str:
        """The page of a model's folder."""
        from coremargin.problems.multiclass import report

        return report.page_of(folder, name)


KIND = CrammerSingerKind()
