"""What a certificate claims, in words: a margin, or the value of an objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from coremargin.formats.run_record import in_parts
from coremargin.problems.common import messages
from coremargin.report.numbers import NO_BREAK, percent_up, plain_bounds, plain_share, relative_gap

if TYPE_CHECKING:
    from coremargin.models.single import Single
    from coremargin.problems.outcome import Outcome


class Claims(Protocol):
    """What is told of a model with one certificate."""

    def verdict(self, outcome: Outcome, model: Single, epsilon: float, thing: str) -> list[str]:
        """What a run has proven; thing: what the model is."""

    def driver_memory(self, outcome: Outcome, model: Single) -> tuple[str, str]:
        """What the driver held in memory, in a word and in a sentence."""

    def described(self, model: Single, rows: str) -> messages.Pairs:
        """What is claimed, exactly; rows: those that it is about."""


class MarginClaims(Claims):
    """A margin, which is to be large."""

    def verdict(self, outcome: Outcome, model: Single, epsilon: float, thing: str) -> list[str]:
        """The margin, and what no other hypothesis reaches; where there is none, kinds have words of their own."""
        claims, rows = model.certificate, model.rows
        lower, upper = plain_bounds(claims.lower, claims.upper)
        if model.status == "certified":
            return [
                f"certified: the margin {lower} is proven on all {rows:,} rows;",
                f"no {thing} reaches more than {upper}: at least {plain_share(claims.ratio)} of the best possible.",
            ]
        possible = f"at most {upper}" if upper else "not known"
        return [
            f"stopped before the proof was complete: {outcome.run['reason']};",
            f"margin proven so far {lower or 'none'}, best possible {possible}, epsilon asked for {epsilon}.",
        ]

    def driver_memory(self, outcome: Outcome, model: Single) -> tuple[str, str]:
        """Rows of a margin's pool."""
        carry = model.certificate.coreset_rows
        return "pool", f"{outcome.run['pool_rows']:,} rows in memory; the proof rests on the coreset, {carry:,} of them"

    def described(self, model: Single, rows: str) -> messages.Pairs:
        """What is claimed of a margin."""
        claims = model.certificate
        return [
            ("margin", f"{messages.exactly(claims.lower)} proven for {rows}"),
            ("best possible", messages.bound("at most", claims.upper)),
            messages.ratio(model),
            messages.coreset(model),
        ]


class ValueClaims(Claims):
    """The value of an objective, which is to be small."""

    def verdict(self, outcome: Outcome, model: Single, epsilon: float, thing: str) -> list[str]:
        """The value of a soft margin, and what none is below."""
        claims = model.certificate
        lower, upper = plain_bounds(claims.lower, claims.upper)
        if model.status == "certified":
            gap = percent_up(relative_gap(messages.bounds_of(model))).replace(NO_BREAK, " ")
            return [
                f"certified: the value {upper} of the objective, over all {model.rows:,} rows, is proven to be",
                f"within {gap} of the best possible: no {thing} has less than {lower}.",
            ]
        known = "no scan over all rows was finished"
        if claims.lower is not None and claims.upper is not None:
            known = f"value over all rows {upper}, best possible at least {lower}"
        return [
            f"stopped before the proof was complete: {outcome.run['reason']};",
            f"{known}, epsilon asked for {epsilon}.",
        ]

    def driver_memory(self, outcome: Outcome, model: Single) -> tuple[str, str]:
        """Rows that were in memory one by one for a soft margin."""
        pool_rows, near = outcome.run["pool_rows"], model.certificate.coreset_rows
        if pool_rows == model.rows:
            told = f"all {model.rows:,} rows were in memory one by one"
        elif in_parts(outcome.rounds):
            told = f"{pool_rows:,} rows at a time; others were sent a segment at a time, as needed"
        else:
            told = f"{pool_rows:,} rows near the margin were sent one by one, the others as sums"
        return "rows", told + (f"; the proof rests on the coreset, {near:,} rows near the margin" if near else "")

    def described(self, model: Single, rows: str) -> messages.Pairs:
        """What is claimed of a soft margin."""
        claims, parameters = model.certificate, model.parameters
        weight = parameters["class_weight"]
        shown = "" if weight is None else f", class weight {weight if weight == 'balanced' else tuple(weight)}"
        value = f"at most {messages.exactly(claims.upper)} over {rows}"
        if claims.upper is None:
            value = "not known: no scan of all rows was finished"
        return [
            ("loss", f"{parameters['loss']}, C {parameters['C']:g}{shown}"),
            ("value", value),
            ("best possible", messages.bound("at least", claims.lower)),
            messages.ratio(model),
            *([messages.coreset(model)] if claims.coreset_rows else []),  # the squared hinge keeps no rows
        ]


MARGIN, VALUE = MarginClaims(), ValueClaims()
