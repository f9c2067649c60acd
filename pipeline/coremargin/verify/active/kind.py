"""The claims of a model whose labels were asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from coremargin.verify import margins, values
from coremargin.verify.active.claim import ActiveClaim, active_claim
from coremargin.verify.active.scan import ActiveScan
from coremargin.verify.checks import Check, certified, in_order, same_epsilon, same_ratio, shown
from coremargin.verify.crammer_singer import consistency
from coremargin.verify.crammer_singer import dual as classes_dual
from coremargin.verify.hard_margin import dual
from coremargin.verify.kind import RUN, Kind
from coremargin.verify.sums import length

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.claim import Claim
    from coremargin.verify.crammer_singer import ClassesClaim
    from coremargin.verify.rows import Rows

_HONEST = "that the answers are true, and how the model does on rows that are not in the store"
_BEFORE = "that the hypothesis was there before its draws were answered: the log says with each which one it tries"
_KNOWN = "that answers to draws were not known before they were written: who knew them may have chosen the hypothesis"
_ALONE = "the log of answers, and how often draws were tried before: give the campaign's folder for that"
_ONCE = (
    "that this is not the best of many campaigns, or a rewritten one",
    "that no line after the model's was cut off from the log: keep the hash of its last line elsewhere",
)
_TRIAL = "that the number of draws was fixed before they were answered: the campaign's file says it"
_UNSURE = "that no annotator could label the rows that are set aside: the more there are, the less is claimed"
_EARLIER = "whether draws of earlier attempts were the first of their classes: no log says what class a row was given"
_SEEDS = "that seeds were not tried, nor the store ingested again, until the draws were good"


class ActiveKind(Kind[ActiveClaim]):
    """The margin of the rows answered, the distance of all others, and how many of them can be labelled wrongly."""

    frozen: ClassVar[bool] = True  # rows that were appended are a campaign's own when its log says so
    nothing: ClassVar[str] = "no hyperplane separates the rows as they were answered"

    def claim(self, files: ModelFiles) -> ActiveClaim:
        """A hyperplane, the answers, and the draws."""
        return active_claim(files)

    def not_checked(self, claim: ActiveClaim) -> tuple[str, ...]:
        """Lists the log as unchecked if the model has none."""
        alone = claim.history is None
        texts = [_HONEST, *((_BEFORE, _ALONE) if alone else (_KNOWN, *_ONCE))]
        texts += [_TRIAL] if alone and claim.loss else []
        texts += [_EARLIER] if claim.by_class and not alone else []
        texts += [f"that the hyperplane is near the centre that {claim.method!r} finds"] if claim.centre else []
        texts += [_UNSURE] if len(claim.unsure) else []
        return (*texts, _SEEDS, *RUN)

    def same_classes(self, claim: ActiveClaim, rows: Rows) -> Check:
        """Passes: labels of the store are not used."""
        reason = "the model says; nothing was compared" if claim.history is None else "they were answered"
        names = [repr(label) for label in claim.labels]
        pair = f"{names[0]} (negative) and {names[1]} (positive)"
        return Check("classes", ok=True, text=f"{', '.join(names) if claim.several else pair}, as {reason}")

    def consistency(self, claim: ActiveClaim) -> list[Check]:
        """Lengths of the hyperplanes, epsilon, ratio, status, and that the certificate is about the worst of them."""
        if claim.at_once is not None:
            return [*consistency(claim.at_once), *_intercepts(claim, claim.at_once)]
        found = [*same_epsilon(claim), *same_ratio(claim)]
        found.append(values.status(claim) if claim.loss else margins.status(claim))
        lengths = [(k, check) for k, plane in enumerate(claim.planes) for check in _hypothesis(claim, plane)]
        checks = [Check(one.name, one.ok, claim.prefix(k) + one.text) for k, one in lengths] + found
        return checks + (_members(claim) if claim.several else [])

    def bound(self, claim: ActiveClaim) -> tuple[float | None, list[Check]]:
        """The upper bound of a margin from the dual weights; those of a value are checked by the scan."""
        if claim.loss:
            return None, []
        if claim.at_once is not None:
            return classes_dual(claim.at_once)
        found = [dual(plane) for plane in claim.examined]
        checks = [
            Check(one.name, one.ok, claim.prefix(k) + one.text) for k, (_, some) in enumerate(found) for one in some
        ]
        return found[claim.worst][0], checks

    def scan(self, claim: ActiveClaim, rows: Rows) -> ActiveScan:
        """The margin, or the distance, of each row."""
        return ActiveScan(claim, rows)

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """What is proven: the margin or the value, and the evidence of the draws."""
        if soft:
            best = f"of the rows answered, {values.proven(epsilon)}"
            return f"{best}; how many of all rows can be labelled wrongly is what the evidence says"
        best = f"if no row is labelled wrongly, {margins.proven(epsilon)}"
        return f"{best}; how many can be is what the evidence says"

    def unproven(self, epsilon: float, lower: float | None, upper: float | None, *, soft: bool) -> str:
        """What is not proven: the margin or value, or else the evidence of the draws."""
        if not certified(lower, upper, epsilon):
            return super().unproven(epsilon, lower, upper, soft=soft)
        best = f"of the rows answered, {values.proven(epsilon)}"
        best = best if soft else f"if no row is labelled wrongly, {margins.proven(epsilon)}"
        return f"{best}; how many can be is what the evidence says, and not as few as was asked for"


def _intercepts(claim: ActiveClaim, joint: ClassesClaim) -> list[Check]:
    """A failed check for intercepts that are not the products of the constant, 0 without intercepts."""
    if all(plane.b == joint.constant * last for plane, last in zip(claim.planes, joint.v[:, -1], strict=True)):
        return []
    text = f"expected intercepts that are products of the rows' last entry, {joint.constant:g}, found others"
    return [Check("hypothesis", ok=False, text=text)]


def _hypothesis(claim: ActiveClaim, plane: Claim) -> list[Check]:
    """Check that normals are unit vectors if decision values are margins, and intercepts 0 if none are allowed."""
    if not claim.loss:
        return margins.unit_length(plane)
    text, ok = f"||w|| = {length(plane.w):.12g}, b = {plane.b:.6g}", claim.intercept or plane.b == 0
    return [Check("hypothesis", ok, text if ok else f"{text}: expected b = 0 (no intercept)")]


def _members(claim: ActiveClaim) -> list[Check]:
    """Check that the certificate is about the worst of the classes, and that the status holds for the others."""
    worst, problems = claim.planes[claim.worst], []
    if (claim.lower, claim.upper) != (worst.lower, worst.upper):
        bounds = f"lower {shown(worst.lower)}, upper {shown(worst.upper)}"
        found = f"lower {shown(claim.lower)}, upper {shown(claim.upper)}"
        problems.append(f"expected the bounds of class {claim.labels[claim.worst]!r}, {bounds}; certificate: {found}")
    for k, plane in enumerate(claim.planes):
        bounds = f"{claim.prefix(k)}lower {shown(plane.lower)}, upper {shown(plane.upper)}"
        if claim.status != "not_separable" and not in_order(plane):
            problems.append(f"{bounds}, which contradict each other")
        elif claim.status == "certified" and not certified(plane.lower, plane.upper, claim.proven_epsilon):
            problems.append(f"{bounds} do not prove epsilon {claim.proven_epsilon}")
    text = f"the certificate is about class {claim.labels[claim.worst]!r}, the worst of {len(claim.planes)}"
    return [Check("members", not problems, "; ".join(problems) or text)]


KIND = ActiveKind()
