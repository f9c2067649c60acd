"""Structured output as a kind of problem: the job's options, job to problem, state to model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from msgspec import Meta

from coremargin.errors import UsageError
from coremargin.formats.function import CALLABLE
from coremargin.problems.common.messages import (
    MarginClaims,
    ValueClaims,
    claimed_bounds,
    describe_bound,
    describe_ratio,
    format_exact,
)
from coremargin.problems.common.one_model import OneModel
from coremargin.problems.job import TrainJob
from coremargin.problems.soft.spec import COST, check_costs, check_without_loss

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.fleet import AnyModel
    from coremargin.models.single import SingleModel
    from coremargin.models.structured import StructuredModel
    from coremargin.problems.common.messages import Claims, Pairs
    from coremargin.problems.kind import Outcome
    from coremargin.problems.structured.structured_problem import StructuredProblem, StructuredState


#: Passes over the store that most data need, where its rows do not fit in memory.
PASSES = 5
#: Options that say what a wrong label costs, and their words in records.
COSTS = {"costs": "table", "taxonomy": "taxonomy", "ordinal": "ordinal"}


class StructuredJob(TrainJob, frozen=True, kw_only=True):
    """Labels of rows that depend on each other, with a hard margin or the hinge loss.

    structure: "chain": an example is a group of rows, a sequence; labels that follow one another have scores.
    "outputs": each row is an example. The loss of a labelling is the sum of the costs of its labels: 1 for each wrong
    one, unless ``costs``, ``taxonomy`` or ``ordinal`` say otherwise. Weights of a constant feature are penalised: in a
    chain of 1, else of the length of the longest row, as of several classes at once.

    "module:Name" is a structure of your own, with the hinge loss: size(features), joint(X, y) -> (indices, values),
    argmax(w, X, y=None) and loss(y, other) (maths/structures/user.py). An example is a group of rows, or a row of a
    store without groups. The proof assumes that argmax finds the maximum, which is tried and may be refuted.
    """

    structure: Annotated[
        str,
        Meta(
            description="Sequences of rows (chain), single rows whose wrong labels have costs (outputs), the rows of "
            "each group in order (ranking), or your own structure.",
            extra={"metavar": "chain|outputs|ranking|MODULE:NAME"},
        ),
    ]
    loss: Literal["hinge"] | None = None
    C: float | None = None
    costs: Annotated[
        Path | None,
        Meta(description="CSV file: the cost of each label (columns) in the place of a true one (lines)."),
    ] = None
    taxonomy: Annotated[
        Path | None,
        Meta(description="CSV file with a node and the one above it in each line: costs are distances in the tree."),
    ] = None
    ordinal: Annotated[bool, Meta(description="Labels are numbers, and costs the differences between them.")] = False

    def __post_init__(self) -> None:
        """Check the options. Raises ValueError."""
        super().__post_init__()
        if not self.own and self.structure not in ("chain", "outputs"):
            raise ValueError(f"structure: expected chain, outputs or module:Name, found {self.structure!r}")
        if self.own and self.loss is None:
            raise ValueError("structure: one of your own needs a loss; give loss 'hinge'")
        check_costs([self.cost])
        if self.loss is None:
            check_without_loss(self.C, None)
        given = [name for name in COSTS if getattr(self, name)]
        if given and self.loss is None:
            raise ValueError(f"{given[0]}: a hard margin has no costs of wrong labels; give loss too")
        if given and self.own:
            raise ValueError(f"{given[0]}: a structure of your own has its loss; leave it out")
        if self.own and not self.intercept:
            raise ValueError("intercept: a structure of your own has its features; leave it out")
        if len(given) > 1:
            raise ValueError(f"{given[0]}: cannot be combined with {given[1]}: both say what a wrong label costs")
        if self.map is not None:
            raise ValueError(f"map: structured output has none, found {self.map!r}; leave it out")

    @property
    def own(self) -> bool:
        """Whether the structure is one of the user."""
        return ":" in self.structure

    @property
    def user(self) -> Any:
        """The structure of the user, imported; None for others. Raises UsageError."""
        from coremargin.models.function import imported_structure

        return imported_structure(self.structure, "structure") if self.own else None

    @property
    def said_again(self) -> tuple[str, ...]:
        """The option that names the structure: no record's is ever imported."""
        return ("--structure", self.structure) if self.own else ()

    @property
    def cost(self) -> float:
        """C, or its default."""
        return COST if self.C is None else self.C

    def parameters(self) -> dict[str, Any]:
        """The parameters that the model's record keeps."""
        costs = [word for name, word in COSTS.items() if getattr(self, name)]
        shared = super().parameters() | {"structure": CALLABLE if self.own else self.structure}
        shared |= {} if self.loss is None else {"loss": self.loss, "C": self.cost}
        return shared | ({"costs": costs[0]} if costs else {})

    def identity(self) -> dict[str, Any]:
        """Adds the content of files."""
        from coremargin.problems.structured.cost_files import read_bytes

        if self.own:
            from coremargin.models.function import source_digest

            text = source_digest(type(self.user))
            return super().identity() | {"structure_name": self.structure, "structure_text": text}
        file = self.costs or self.taxonomy
        content = {} if file is None else {"costs_sha256": hashlib.sha256(read_bytes(file)).hexdigest()}
        return super().identity() | content


@dataclass(frozen=True)
class StructuredResult:
    """Bounds as records have them."""

    status: str
    lower: float | None
    upper: float | None
    kind: str


class StructuredClaims(ValueClaims):
    """The value of the objective over all examples."""

    def driver_memory(self, outcome: Outcome, model: SingleModel) -> tuple[str, str]:
        """The rows in memory, and the labellings that carry the proof."""
        labellings = len(model.array("duals_row"))
        held = outcome.run["working_set_rows"]
        text = f"all {model.rows:,} rows were in memory" if held == model.rows else f"{held:,} rows at a time in memory"
        return "rows", f"{text}; the proof rests on {labellings:,} labellings"

    def describe(self, model: SingleModel, rows: str) -> Pairs:
        """The loss, the value and its bound."""
        claims, parameters = model.certificate, model.parameters
        costs = "of the structure" if parameters["structure"] == CALLABLE else parameters.get("costs", "0/1")
        value = f"at most {format_exact(claims.upper)} over {rows}"
        if claims.upper is None:
            value = "not known: no pass over all rows was finished"
        return [
            ("structure", model.record.get("function", parameters["structure"])),
            ("loss", f"{parameters['loss']}, C {parameters['C']:g}, costs {costs}"),
            ("value", value),
            ("best possible", describe_bound("at least", claims.lower)),
            describe_ratio(model),
            ("labellings", f"{len(model.array('duals_row')):,} with dual weights"),
        ]


class StructuredMarginClaims(MarginClaims):
    """The smallest margin of all examples."""

    def driver_memory(self, outcome: Outcome, model: SingleModel) -> tuple[str, str]:
        """The rows in memory, and the labellings that carry the proof."""
        return CLAIMS.driver_memory(outcome, model)

    def describe(self, model: SingleModel, rows: str) -> Pairs:
        """The margin and its bound."""
        margin, best, ratio, _ = super().describe(model, rows)
        structure = ("structure", model.parameters["structure"])
        return [structure, margin, best, ratio, ("labellings", f"{len(model.array('duals_row')):,} with dual weights")]


CLAIMS, MARGIN_CLAIMS = StructuredClaims(), StructuredMarginClaims()


class StructuredKind(OneModel[StructuredJob, "StructuredProblem", "StructuredModel"]):
    """A hypothesis about all labels of an example."""

    name = "structured"
    job = StructuredJob
    title = "structured output"
    thing = "hypothesis"
    selected_by = "give structure"

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Whether a job with these options names a structure."""
        return "structure" in options

    def problem(self, job: StructuredJob, source: Source) -> StructuredProblem:
        """The problem on these rows."""
        from coremargin.maths.structures.costs import zero_one
        from coremargin.problems.common.classes import class_codes
        from coremargin.problems.structured.cost_files import costs_of
        from coremargin.problems.structured.examples import checked_structure
        from coremargin.problems.structured.structured_problem import StructuredProblem

        classes = [source.classes[code] for code in class_codes(source)]
        user = job.user
        if user is not None:
            return StructuredProblem(
                source,
                job.epsilon,
                job.cost,
                zero_one(len(classes)),
                source.groups is not None,
                memory_bytes=job.memory_bytes,
                user=checked_structure(user, source.name, source.features, len(classes)),
            )
        return StructuredProblem(
            source,
            job.epsilon,
            None if job.loss is None else job.cost,
            costs_of(classes, job.costs, job.taxonomy, ordinal=job.ordinal),
            job.structure == "chain",
            intercept=job.intercept,
            memory_bytes=job.memory_bytes,
        )

    def retraining_options(self, options: Mapping[str, Any], kernel: str | None) -> dict[str, Any]:
        """The options of the earlier run. Raises UsageError for a structure of the user, which no record imports."""
        structure = str(options.get("structure"))
        if ":" in structure or structure == CALLABLE:
            raise UsageError(
                "structure: a model of your own structure cannot be retrained; train it again with `coremargin train` "
                "or, from Python, coremargin.train"
            )
        return super().retraining_options(options, kernel)

    def is_model_of(self, job: StructuredJob, model: AnyModel) -> bool:
        """Also with the same costs; never of a structure of the user, whose code may have changed."""
        from coremargin.problems.structured.cost_files import costs_of

        same = super().is_model_of(job, model)
        if not same:
            return False
        costs = costs_of(model.classes, job.costs, job.taxonomy, ordinal=job.ordinal)
        return bool((costs == cast("StructuredModel", model).costs).all())

    def verdict(self, outcome: Outcome, job: StructuredJob) -> list[str]:
        """Adds what a proof with a structure of the user assumes."""
        assumed = [
            "The structure is yours: it is assumed that its argmax finds the maximum up to the",
            "rounding of scores. The labellings that were tried do not refute it.",
        ]
        return [*super().verdict(outcome, job), *(assumed if job.own else [])]

    def reads_needed(self, job: StructuredJob, problem: StructuredProblem, *, in_memory: bool) -> int:
        """Once if all rows fit in memory; else a few passes."""
        return 1 if problem.holds_all_rows else PASSES

    def describe_reading(self, job: StructuredJob) -> str:
        """How often a job reads the store."""
        return "once if all rows fit in memory, else in passes until both bounds are close enough"

    def memory_purpose(self, problem: StructuredProblem) -> str:
        """Rows."""
        return "for rows, which are read once where half of it holds them"

    def model(self, job: StructuredJob, problem: StructuredProblem, state: StructuredState) -> StructuredModel:
        """The model of a state; of a structure of the user a ``UserStructureModel``."""
        import numpy as np

        from coremargin.maths.rows import nothing
        from coremargin.models.structured import StructuredModel
        from coremargin.problems.common.model import record_of, transform_arrays

        if problem.user is not None:
            return cast("StructuredModel", self._user_model(job, problem, state))
        source, classes = problem.source, len(problem.codes)
        w = state.w if state.best is None else state.best
        split = (source.features + 1) * classes
        status = "certified" if state.status == "certified" else "stopped"
        if problem.hard:
            length = float(np.linalg.norm(w))
            w = w / length if length > 0 else w
            known = np.isfinite([state.lower, state.upper])
            found = StructuredResult(
                status, state.lower if known[0] else None, state.upper if known[1] else None, "margin"
            )
        else:
            known = np.isfinite(state.upper)
            found = StructuredResult(
                status, max(0.0, state.lower) if known else None, state.upper if known else None, "duality_gap"
            )
        record = record_of(source, problem.codes, found, self.name, job.parameters(), 0, constant=problem.constant)
        numbers = {
            "hypothesis": np.ascontiguousarray(w[:split].reshape(-1, classes).T),
            "costs": problem.costs,
            "coreset_ids": np.zeros(0, np.int64),
            "duals_row": problem.first_rows(state.duals.example),
            **{name: values for name, values in state.duals.to_arrays("duals").items() if name != "duals_example"},
            **({"transitions": np.ascontiguousarray(w[split:].reshape(classes, classes).T)} if problem.chained else {}),
            **transform_arrays(source),
        }
        return StructuredModel(record, numbers, nothing(0, np.float64, sparse=False))

    def _user_model(self, job: StructuredJob, problem: StructuredProblem, state: StructuredState) -> Any:
        """The model of a state, for a structure of the user."""
        import numpy as np

        from coremargin.maths.rows import nothing
        from coremargin.models.user_structure import UserStructureModel
        from coremargin.problems.common.model import record_of, transform_arrays

        source, user, known = problem.source, problem.user, np.isfinite(state.upper)
        assert user is not None  # noqa: S101 - for the type checker
        status = "certified" if state.status == "certified" else "stopped"
        lower, upper = (max(0.0, state.lower), state.upper) if known else (None, None)
        found = StructuredResult(status, lower, upper, "duality_gap")
        about: dict[str, Any] = {"function": user.name, "grouped": problem.chained}
        record = record_of(source, problem.codes, found, "user_structure", job.parameters(), 0, **about)
        duals = {name: values for name, values in state.duals.to_arrays("duals").items() if name != "duals_example"}
        numbers = {
            "weights": state.w if state.best is None else state.best,
            "coreset_ids": np.zeros(0, np.int64),
            "duals_row": problem.first_rows(state.duals.example),
            **duals,
            **transform_arrays(source),
        }
        return UserStructureModel(record, numbers, nothing(0, np.float64, sparse=False), checked=user)

    def claims(self, model: StructuredModel) -> Claims:
        """A value or, without a loss, a margin."""
        return CLAIMS if model.certificate.is_value else MARGIN_CLAIMS

    def summary(self, model: StructuredModel, run: Mapping[str, Any]) -> dict[str, Any]:
        """Both bounds, and the number of labellings."""
        return claimed_bounds(model) | {"labellings": len(model.array("duals_row"))}

    def facts(self, problem: StructuredProblem, state: StructuredState) -> dict[str, Any]:
        """Why the run ended, and the confusion matrix of rows, if these are in memory."""
        confusion = problem.confusion(state)
        found = {} if confusion is None else {"confusion": confusion.tolist(), "confusion_of": "final"}
        return {"reason": problem.reason(state), "labellings": len(state.duals), **found}

    def report(self, folder: Path, name: str) -> str:
        """The page of a model's folder."""
        from coremargin.problems.structured import report

        return report.page_of(folder, name)


KIND = StructuredKind()
