"""The claims of a model whose labels were asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from coremargin.verify import margins
from coremargin.verify.active.claim import ActiveClaim, active_claim
from coremargin.verify.active.scan import ActiveScan
from coremargin.verify.checks import Check, certified, same_epsilon, same_ratio
from coremargin.verify.hard.dual import dual
from coremargin.verify.kind import RUN, Kind

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Rows

_HONEST = (
    "that the answers are true, and how the model does on rows that are not in the store",
    "that the hypothesis was there before its draws were answered",
)
_ALONE = "the log of answers, and how often draws were tried before: give the campaign's folder for that"
_ONCE = (
    "that nobody began many campaigns, or wrote this one anew, and shows the best",
    "that no line after the model's was cut off from the log: keep the hash of its last line elsewhere",
)
_GROUND = "that nobody tried seeds, or ingested the store anew, until the draws were good"


class ActiveKind(Kind[ActiveClaim]):
    """The margin of the rows answered, the distance of all others, and how many of them can be labelled wrongly."""

    frozen: ClassVar[bool] = True  # rows that were appended are a campaign's own when its log says so
    nothing: ClassVar[str] = "no hyperplane separates the rows as they were answered"

    def claim(self, files: ModelFiles) -> ActiveClaim:
        """A hyperplane, the answers, and the draws."""
        return active_claim(files)

    def not_checked(self, claim: ActiveClaim) -> tuple[str, ...]:
        """The log is checked where there is one."""
        return (*_HONEST, *((_ALONE,) if claim.history is None else _ONCE), _GROUND, *RUN)

    def same_classes(self, claim: ActiveClaim, rows: Rows) -> Check:
        """The store's labels play no part."""
        said = "the model says; nothing was compared" if claim.history is None else "they were answered"
        text = f"{claim.negative!r} (negative) and {claim.positive!r} (positive), as {said}"
        return Check("classes", ok=True, text=text)

    def consistency(self, claim: ActiveClaim) -> list[Check]:
        """Length of the hyperplane, epsilon, ratio, status."""
        return [*margins.unit_length(claim), *same_epsilon(claim), *same_ratio(claim), margins.status(claim)]

    def bound(self, claim: ActiveClaim) -> tuple[float | None, list[Check]]:
        """From the dual weights."""
        return dual(claim)

    def scan(self, claim: ActiveClaim, rows: Rows) -> ActiveScan:
        """The margin, or the distance, of each row."""
        return ActiveScan(claim, rows)

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the margin, and of what the draws say."""
        best = f"if no row is labelled wrongly, {margins.proven(epsilon)}"
        return f"{best}; how many can be is what the evidence says"

    def unproven(self, epsilon: float, lower: float | None, upper: float | None) -> str:
        """Where the bounds prove epsilon it is the draws that do not do."""
        if certified(lower, upper, epsilon):
            return f"if no row is labelled wrongly, {margins.proven(epsilon)}, but it is not shown how many are"
        return super().unproven(epsilon, lower, upper)


KIND = ActiveKind()
