"""The ball in a kernel's feature space as a kind of problem: its job, from a job to a problem, what is reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from coremargin.formats.function import CALLABLE
from coremargin.problems.ball.kind import RadiusClaims
from coremargin.problems.common import messages
from coremargin.problems.kernel.spec import GAMMA, OWN, KernelOptions
from coremargin.problems.one_class.kind import Nu, OneClass, OneClassKind, Only, shape_parameters
from coremargin.problems.one_class.messages import Bounds, describe_soft_run
from coremargin.problems.soft_ball.kind import MeanSquareClaims

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.models.kernel_ball import KernelBallModel
    from coremargin.problems.kernel_ball.kernel_ball import KernelBall, KernelBallState
    from coremargin.problems.kind import Outcome


class KernelBallJob(KernelOptions, frozen=True, kw_only=True):
    """The smallest ball in a kernel's feature space, or with nu the ball outside of which that share of the rows may
    lie.

    epsilon: the share of its radius by which the ball may be larger than the smallest one; with nu the share of its
    value by which the least value may be smaller. All rows outside are part of the model.
    """

    HYPERPLANES: ClassVar[bool] = False

    one_class: OneClass
    only: Only = None
    nu: Nu | None = None
    gamma: Annotated[Literal["scale"] | float, GAMMA] = "scale"

    def __post_init__(self) -> None:
        """Refuse functions. Raises ValueError."""
        super().__post_init__()
        if self.kernel_name == CALLABLE:
            raise ValueError(f"kernel: a ball has linear, poly or rbf; found {self.kernel!r}")

    def parameters(self) -> dict[str, Any]:
        """Adds the shape, the class, the kernel and nu."""
        nu = {} if self.nu is None else {"nu": self.nu}
        return super().parameters() | shape_parameters(self) | nu | self.kernel_parameters(self.gamma)


class KernelBallKind(OneClassKind[KernelBallJob, "KernelBall", "KernelBallModel"]):
    """A ball, proven by the distances of all rows and by the dual weights of those that carry it."""

    name = "kernel_ball"
    job = KernelBallJob
    title = "the ball of a kernel"
    selected_by = 'give one_class "ball" and kernel'
    thing = "ball"
    scan_purpose = "two and more of all rows, each with a product with all rows that carry the ball"
    rereads = "most data need two or three scans after the read"

    def matches(self, options: Mapping[str, Any]) -> bool:
        """By the shape and the kernel."""
        return options.get("one_class") == "ball" and "kernel" in options

    def problem(self, job: KernelBallJob, source: Source) -> KernelBall:
        """The problem on these rows."""
        from coremargin.problems.kernel.kernel_margin import kernel_of
        from coremargin.problems.kernel_ball.kernel_ball import KernelBall

        kernel = kernel_of(job, job.gamma, source)
        return KernelBall(source, kernel, job.epsilon, job.nu, job.only, job.memory_bytes, job.sample)

    def scans_after(self, job: KernelBallJob) -> int:
        """Two: one sends missing rows, one proves."""
        return 2

    def memory_purpose(self, problem: KernelBall) -> str:
        """The kernel matrix of the working set."""
        outside = f", {problem.outside:,} of which lie outside" if problem.outside else ""
        return f"for the kernel matrix of up to {problem.capacity.rows:,} rows{outside}"

    def model(self, job: KernelBallJob, problem: KernelBall, state: KernelBallState) -> KernelBallModel:
        """The model of a state."""
        import numpy as np

        from coremargin.models.kernel_ball import KernelBallModel
        from coremargin.problems.common.model import record_of, transform_arrays
        from coremargin.problems.kernel_ball.kernel_ball import claimed_bounds

        source, ball = problem.source, problem.best(state)
        lower, upper = claimed_bounds(ball, hard=job.nu is None)
        known = np.isfinite(upper)
        found = Bounds(
            status="certified" if state.status == "certified" else "stopped",
            reason="",
            lower=lower if known and len(state.working_set) else None,
            upper=upper,
            kind="radius" if job.nu is None else "duality_gap",
        )
        used = np.flatnonzero(ball.weights)
        carriers = state.working_set.take(used)
        about: dict[str, Any] = {} if problem.only is None else {"only": problem.enclosed.label}
        numbers = {name: getattr(problem.kernel, name) for name in OWN[problem.kernel.name]}
        about["kernel"] = {"name": problem.kernel.name, **numbers}
        record = record_of(source, None, found, self.name, job.parameters(), len(used), **about)
        arrays = {"alpha": ball.weights[used], "coreset_ids": carriers.ids}
        if job.nu is not None:
            arrays["square"] = np.array([ball.square])
        return KernelBallModel(record, {**arrays, **transform_arrays(source)}, carriers.rows)

    def claims(self, model: KernelBallModel) -> messages.Claims:
        """A radius, or with nu a value."""
        return RadiusClaims() if model.nu is None else MeanSquareClaims()

    def facts(self, problem: KernelBall, state: KernelBallState) -> dict[str, Any]:
        """Why the run ended, the working set, and the histogram of distances of the last scan."""
        from coremargin.problems.kernel_ball.kernel_ball import REASONS

        working_set = {"capacity": problem.capacity.rows, "dropped": state.dropped}
        return {**describe_soft_run(problem.enclosed, state, in_stages=False, **REASONS), "working_set": working_set}

    def wanted(self, problem: KernelBall, state: KernelBallState) -> MemoryNeed | None:
        """The memory of the expected working set, if it does not fit."""
        return problem.wanted(state)

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """The kernel matrix."""
        model, rows = cast("KernelBallModel", outcome.model), outcome.run["working_set_rows"]
        carriers = model.certificate.coreset_rows
        return "working set", f"the kernel matrix of {rows:,} rows; {carriers:,} of them carry the ball"

    def describe(self, path: str | Path, model: KernelBallModel, made: Sequence[tuple[str, str]]) -> list[str]:
        """The kernel, and the radius or the value."""
        claimed = [pair for pair in self.claims(model).describe(model, self.rows_meant(model)) if pair[0] != "coreset"]
        carry = ("coreset", f"{model.certificate.coreset_rows:,} rows carry the ball and its proof")
        return messages.describe_model(path, model, made, [("kernel", model.kernel_text), *claimed, carry])

    def report(self, folder: Path, name: str) -> str:
        """The HTML page of a model."""
        from coremargin.problems.kernel_ball import report

        return report.page_of(folder, name)


KIND = KernelBallKind()
