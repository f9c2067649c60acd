"""Messages about models with one certificate: of a margin, or of the value of an objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from coremargin.formats.run_record import in_parts
from coremargin.report.numbers import NO_BREAK, SCALINGS, percent_up, plain_bounds, plain_share, relative_gap
from coremargin.report.text import explain_coreset, facts, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from coremargin.maths.mapping import FeatureMap
    from coremargin.models.fleet import AnyModel
    from coremargin.models.single import SingleModel
    from coremargin.problems.kind import Outcome

Pairs = list[tuple[str, str]]


def claimed_bounds(model: SingleModel) -> dict[str, Any]:
    """The claims as flat keys, for ``--json``."""
    certificate = model.record["certificate"]
    return {key: certificate[key] for key in ("epsilon", "lower", "upper", "ratio", "coreset_rows")}


def list_rows(ids: NDArray[np.int64]) -> str:
    """The first eight of these row ids."""
    return ", ".join(str(row) for row in ids[:8].tolist()) + (", ..." if len(ids) > 8 else "")


def describe_maps(maps: Sequence[FeatureMap]) -> Pairs:
    """A line about the feature maps of a model or of several, none if rows are not mapped."""
    if not maps:
        return []
    each = f", of each of {len(maps):,} gammas" if len(maps) > 1 else ""
    return [("map", f"{maps[0].KIND}, to {maps[0].width:,} features{each}; what is claimed is about mapped rows")]


def describe_store(model: AnyModel) -> Pairs:
    """The identity of the rows that a model was trained on."""
    sha256 = model.store_sha256
    kind = "none, its rows have CRC-32C only" if sha256 is None else sha256["digest"]
    return [("store", model.store_digest), ("SHA-256", kind)]


def describe_model(path: str | Path, model: SingleModel, made: Sequence[tuple[str, str]], claims: Pairs) -> list[str]:
    """Lines about a model; claims: about its proof; made: when, and what it cost."""
    intercept = "" if model.parameters.get("intercept", True) else ", through the origin"
    scaling: Pairs = []
    if model.scaling is not None:
        scaling = [("scaling", f"{model.scaling}: {SCALINGS[model.scaling]}; what is claimed is about rows so scaled")]
    scaling += describe_maps(model.row_maps)
    pairs = [
        ("model", f"{path}, {model.problem}{intercept}"),
        ("status", model.status),
        *([("classes", describe_classes(model))] if model.classes else []),
        ("rows", f"{model.rows:,} of {model.features:,} features, {model.record['dtype']}"),
        *scaling,
        *claims,
        *describe_store(model),
        ("software", ", ".join(f"{name} {version}" for name, version in model.record["software"].items())),
    ]
    return facts([*pairs, *made])


def describe_classes(model: SingleModel) -> str:
    """The labels; of two classes with their signs."""
    signs = (" (negative)", " (positive)") if len(model.classes) == 2 else ("",) * len(model.classes)
    return listed([f"{label!r}{sign}" for label, sign in zip(model.classes, signs, strict=True)])


def describe_rows(model: SingleModel) -> str:
    """The rows that a certificate is about: all, or all outside of a fold."""
    view = model.record.get("view") or {}
    if view.get("fold") is not None:
        return f"the rows outside of fold {view['fold']} of {view['folds']}"
    return "all rows"


def describe_ratio(model: SingleModel) -> tuple[str, str]:
    """The proven share of the best possible, and the requested one."""
    share = model.certificate.ratio
    return "ratio", f"{'not known' if share is None else repr(share)}, epsilon {model.certificate.epsilon}"


def describe_coreset(model: SingleModel) -> tuple[str, str]:
    """The number of rows in the coreset, with an explanation."""
    claims = model.certificate
    return "coreset", f"{claims.coreset_rows:,} {explain_coreset(value=claims.is_value)}"


def describe_bound(word: str, value: float | None) -> str:
    """A bound after "at most" or "at least", with every digit, or that it is not known."""
    return "not known" if value is None else f"{word} {value!r}"


def format_exact(value: float | None) -> str:
    """A bound with every digit: a rounded one may claim too much."""
    return "nothing" if value is None else repr(value)


def describe_stop(outcome: Outcome, known: str, epsilon: float) -> list[str]:
    """The reason why a run ended without a proof, and the bounds that it has proven."""
    return [
        f"stopped before the proof was complete: {outcome.run['reason']};",
        f"{known}, epsilon asked for {epsilon}.",
    ]


def describe_working_set(outcome: Outcome, model: SingleModel) -> tuple[str, str]:
    """The rows in the driver's memory, if the proof rests on some of them."""
    carry = model.certificate.coreset_rows
    return (
        "rows",
        f"{outcome.run['working_set_rows']:,} rows in memory; the proof rests on the coreset, {carry:,} of them",
    )


class Claims(Protocol):
    """Messages about the claims of one certificate."""

    def verdict(self, outcome: Outcome, model: SingleModel, epsilon: float, thing: str) -> list[str]:
        """The proven claims; thing: a noun for the model, such as "hyperplane"."""

    def driver_memory(self, outcome: Outcome, model: SingleModel) -> tuple[str, str]:
        """The rows that the driver held in memory: a word, and a sentence."""

    def describe(self, model: SingleModel, rows: str) -> Pairs:
        """The claims with every digit; rows: the rows that they are about."""


class MarginClaims(Claims):
    """A margin, which is maximised."""

    def verdict(self, outcome: Outcome, model: SingleModel, epsilon: float, thing: str) -> list[str]:
        """The margin, and the upper bound; kinds override this to report that nothing separates the classes."""
        claims, rows = model.certificate, model.rows
        lower, upper = plain_bounds(claims.lower, claims.upper)
        if model.status == "certified":
            return [
                f"certified: the margin {lower} is proven on all {rows:,} rows;",
                f"no {thing} reaches more than {upper}: at least {plain_share(claims.ratio)} of the best possible.",
            ]
        possible = f"at most {upper}" if upper else "not known"
        known = f"margin proven so far {lower or 'none'}, best possible {possible}"
        return describe_stop(outcome, known, epsilon)

    def driver_memory(self, outcome: Outcome, model: SingleModel) -> tuple[str, str]:
        """The working set."""
        return describe_working_set(outcome, model)

    def describe(self, model: SingleModel, rows: str) -> Pairs:
        """The margin and its bound."""
        claims = model.certificate
        return [
            ("margin", f"{format_exact(claims.lower)} proven for {rows}"),
            ("best possible", describe_bound("at most", claims.upper)),
            describe_ratio(model),
            describe_coreset(model),
        ]


class TrimmedMarginClaims(MarginClaims):
    """A margin of all rows but some that are left out as outliers."""

    def verdict(self, outcome: Outcome, model: SingleModel, epsilon: float, thing: str) -> list[str]:
        """The margin, the rows that are left out, and the most that leaving out others could give."""
        claims = model.certificate
        lower, upper = plain_bounds(claims.lower, claims.upper)
        if model.status != "certified":
            return super().verdict(outcome, model, epsilon, thing)
        others, share = f"leaving out any other {model.parameters['outliers']}", plain_share(claims.ratio)
        return [
            f"certified: the margin {lower} is proven on {describe_left_out(model)};",
            f"{others} gives at most {upper}: at least {share} of the best possible.",
        ]


def describe_left_out(model: SingleModel) -> str:
    """All rows but those that are left out, by number."""
    ids = model.outlier_ids
    if ids is None or not len(ids):
        return f"all {model.rows:,} rows"
    return f"all {model.rows:,} rows but {len(ids):,} (rows {list_rows(ids)})"


class ValueClaims(Claims):
    """The value of an objective, which is minimised."""

    def verdict(self, outcome: Outcome, model: SingleModel, epsilon: float, thing: str) -> list[str]:
        """The value of a soft margin, and its lower bound."""
        claims = model.certificate
        lower, upper = plain_bounds(claims.lower, claims.upper)
        if model.status == "certified":
            gap = percent_up(relative_gap(claimed_bounds(model))).replace(NO_BREAK, " ")
            return [
                f"certified: the value {upper} of the objective, over all {model.rows:,} rows, is proven to be",
                f"within {gap} of the best possible: no {thing} has less than {lower}.",
            ]
        known = "no scan over all rows was finished"
        if claims.lower is not None and claims.upper is not None:
            known = f"value over all rows {upper}, best possible at least {lower}"
        return describe_stop(outcome, known, epsilon)

    def driver_memory(self, outcome: Outcome, model: SingleModel) -> tuple[str, str]:
        """The near-margin rows, or all rows."""
        working_set_rows, near = outcome.run["working_set_rows"], model.certificate.coreset_rows
        if working_set_rows == model.rows:
            text = f"all {model.rows:,} rows were in memory one by one"
        elif in_parts(outcome.rounds):
            text = f"{working_set_rows:,} rows at a time; others were sent a part at a time, as needed"
        else:
            text = f"{working_set_rows:,} rows near the margin were sent one by one, the others as sums"
        return "rows", text + (f"; the proof rests on the coreset, {near:,} rows near the margin" if near else "")

    def describe(self, model: SingleModel, rows: str) -> Pairs:
        """The loss, the value and its bound."""
        claims, parameters = model.certificate, model.parameters
        weight = parameters["class_weight"]
        shown = "" if weight is None else f", class weight {weight if weight == 'balanced' else tuple(weight)}"
        value = f"at most {format_exact(claims.upper)} over {rows}"
        if claims.upper is None:
            value = "not known: no scan of all rows was finished"
        return [
            ("loss", f"{parameters['loss']}, C {parameters['C']:g}{shown}"),
            ("value", value),
            ("best possible", describe_bound("at least", claims.lower)),
            describe_ratio(model),
            *([describe_coreset(model)] if claims.coreset_rows else []),  # the squared hinge keeps no rows
        ]


class RelativeValueClaims(ValueClaims):
    """The value of a hypothesis that keeps all rows within the bound of a relative margin."""

    def verdict(self, outcome: Outcome, model: SingleModel, epsilon: float, thing: str) -> list[str]:
        """Adds the bound to what is certified."""
        bound = f"{model.parameters['relative_margin']:g}"
        return super().verdict(outcome, model, epsilon, f"{thing} with decision values from -{bound} to {bound}")

    def describe(self, model: SingleModel, rows: str) -> Pairs:
        """Adds the bound."""
        loss, *others = super().describe(model, rows)
        return [loss, *describe_relative_margin(model.parameters, rows), *others]


def describe_relative_margin(parameters: Mapping[str, Any], rows: str) -> Pairs:
    """The bound of a relative margin, if there is one; rows: those whose decision values keep it."""
    bound = parameters.get("relative_margin")
    if bound is None:
        return []
    return [("relative margin", f"decision values of {rows} from -{bound:g} to {bound:g}")]


MARGIN, VALUE, RELATIVE_VALUE = MarginClaims(), ValueClaims(), RelativeValueClaims()
TRIMMED_MARGIN = TrimmedMarginClaims()


def describe_strategy(parameters: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    """The margin of a strategy's own hyperplane, its passes and updates, and the theorem's bound on these.

    parameters: of the model, among them the strategy where there is such a hyperplane.
    """
    found = run.get("own")
    if found is None:
        return []
    strategy = parameters["strategy"]
    own = "its own hyperplane is not proven to separate the classes"
    if found["lower"] is not None and found["lower"] > 0:
        own = f"the margin of its own hyperplane is at least {found['lower']:.6g}"
    if "passes" not in found:
        return [f"{strategy}: {own}."]
    most = found["updates_at_most"]
    theorem = "" if most is None else f", by its theorem at most {most:,.0f} for the margin that is proven"
    return [f"{strategy}: {found['updates']:,} updates in {found['passes']:,} passes{theorem};", f"{own}."]


def describe_kkt(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The rows by the Karush-Kuhn-Tucker conditions, where a run has counted those of one hyperplane or function."""
    kkt = run.get("kkt")
    if not isinstance(kkt, list) or len(kkt) != 1:
        return []
    other, on, violators = kkt[0]
    return [("KKT", f"{other:,} rows non-critical, {on:,} on the margin, {violators:,} violators")]
