"""Commands about models: verify, predict, evaluate, show."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import count, facts, json_option, progress, quiet_option, table
from coremargin.cli.outliers import which_rows
from coremargin.spec import format_seconds, format_size

if TYPE_CHECKING:
    from coremargin.cli.common import Advance
    from coremargin.learn.evaluate import Evaluation
    from coremargin.learn.model import Model
    from coremargin.learn.multiclass import MulticlassModel
    from coremargin.learn.verify_fleet import FleetVerification
    from coremargin.learn.verify_one import Verification

SECTION = "Models"

_model = click.argument("model", type=click.Path(path_type=Path))
_store = click.argument("store", type=click.Path(path_type=Path))
_cost = click.option("--C", "C", type=float, help="Of a fleet: the models of this C decide.  [default: the one chosen]")


@click.command(no_args_is_help=True)
@_model
@_store
@click.option("--epsilon", type=float, metavar="E", help="Demand also that the bounds prove this epsilon.")
@click.option("--threads", type=click.IntRange(1), metavar="NUMBER", help="Chunks read at a time. [default: cores]")
@json_option
@quiet_option
def verify(model: Path, store: Path, *, epsilon: float | None, threads: int | None, as_json: bool, quiet: bool) -> None:
    """Check the certificate of MODEL against every row of STORE.

    One scan, with code that shares nothing with the trainer: the coreset rows are fetched from the store, the upper
    bound is computed again from them, and every row must have the margin that is claimed. For a soft margin, the value
    of the hypothesis and of the dual point are summed up again over every row. Of a fleet all members are checked in
    one scan, and who is given which class is counted anew. Exit code 0 only if every claim holds, 4
    if one is false, 3 if the store is damaged.

    \b
    Examples:
      coremargin verify rows.model rows.zarr
      coremargin verify rows.model rows.zarr --epsilon 1e-3 && publish rows.model
    """
    from coremargin.learn.verify import examine, refutation
    from coremargin.learn.verify_fleet import FleetVerification

    with progress(quiet=quiet) as advance:
        result = examine(model, store, threads=threads, on_progress=_rows_shown(advance, "verifying", store))
    click.echo(json.dumps(result.to_dict()) if as_json else _checklist(result))
    if not result.ok:
        raise refutation(result)
    if epsilon is not None:
        for member in [member for _, member in result.members] if isinstance(result, FleetVerification) else [result]:
            _demand(member, epsilon)


def _checklist(result: Verification | FleetVerification) -> str:
    from coremargin.learn.verify_fleet import FleetVerification

    fleet, shown = isinstance(result, FleetVerification), list(result.checks)
    if isinstance(result, FleetVerification):  # the members' where they fail, else their number
        shown = [*result.tables, *(check for check in shown[len(result.tables) :] if not check.ok)]
    width = max(len(check.name) for check in shown)
    checks = [f"  {'ok   ' if c.ok else 'FALSE'}  {c.name.ljust(width)}  {c.text}" for c in shown]
    if isinstance(result, FleetVerification):
        good = sum(member.ok for _, member in result.members)
        checks.append(f"  all claims hold of {good:,} of {count(len(result.members), 'member')}")
    lines = [
        f"{result.model}, {result.store}:",
        "",
        *checks,
        "",
        "not checked:",
        *(f"  {text}" for text in result.unchecked),
        "",
    ]
    proven = f"the margin is at least (1 - {result.epsilon:g}) of the best possible"
    if result.soft:
        proven = f"no hypothesis has a value below (1 - {result.epsilon:g}) of this one's"
    if not isinstance(result, FleetVerification) and result.upper is None:  # a proof of outliers too large to keep
        proven = "what was checked holds; how much more is possible was not checked, so epsilon is not verified"
    verdict = {
        "certified": f"verified: {proven}{', for each member' if fleet else ''}",
        "not_separable": f"verified: no hyperplane separates the classes{' of some members' if fleet else ''}",
        "stopped": f"verified: the bounds hold; they do not prove epsilon {result.epsilon:g}",
    }
    failed = f"refuted: {len(result.failures)} of {len(result.checks)} checks failed"
    return "\n".join([*lines, verdict.get(result.status, "verified") if result.ok else failed])


def _demand(result: Verification, epsilon: float) -> None:
    """Raise NotCertified unless the verified bounds prove ``epsilon``."""
    from coremargin.errors import NotCertified

    lower, upper = result.claimed_lower or 0.0, None if result.upper is None else result.claimed_upper
    if result.status == "not_separable" or upper is None or lower <= 0 or lower < (1 - epsilon) * upper:
        proven = "nothing" if not upper or lower <= 0 else f"epsilon {1 - lower / upper:.6g}"
        raise NotCertified(
            f"{result.model}: the claims hold, but prove {proven}, not epsilon {epsilon:g}; "
            f"train with --epsilon {epsilon:g}"
        )


@click.command(no_args_is_help=True)
@_model
@_store
@click.argument("out", type=click.Path(path_type=Path))
@_cost
@click.option("--overwrite", is_flag=True, help="Replace predictions that are there.")
@json_option
@quiet_option
def predict(
    model: Path, store: Path, out: Path, *, C: float | None, overwrite: bool, as_json: bool, quiet: bool
) -> None:
    """Write the label and decision value that MODEL gives every row of STORE to OUT.

    OUT ending in .parquet is a Parquet file with the columns row, label, code and decision; anything else is a Zarr
    group with arrays code and decision, whose attribute "classes" decodes the codes.

    \b
    Examples:
      coremargin predict rows.model new.zarr labels.parquet
      coremargin predict rows.model new.zarr labels.zarr
    """
    from coremargin.learn.predict import predict as run

    with progress(quiet=quiet) as advance:
        shown = _rows_shown(advance, "predicting", store)
        result = run(model, store, out, C=C, overwrite=overwrite, on_progress=shown)
    if as_json:
        click.echo(json.dumps(result.to_dict()))
    else:
        counts = ", ".join(f"{rows:,} of {label!r}" for label, rows in result.counts.items())
        click.echo(f"{result.path}: {result.rows:,} rows: {counts}")


@click.command(no_args_is_help=True)
@_model
@_store
@_cost
@json_option
@quiet_option
def evaluate(model: Path, store: Path, *, C: float | None, as_json: bool, quiet: bool) -> None:
    """Compare what MODEL says about the rows of STORE with their labels.

    Accuracy, precision, recall and F1 of each class, the confusion matrix and the area under the ROC curve, in one
    pass and bounded memory. Rows without a label are counted and left out.

    \b
    Example:
      coremargin evaluate rows.model test.zarr
    """
    from coremargin.learn.evaluate import evaluate as run

    with progress(quiet=quiet) as advance:
        result = run(model, store, C=C, on_progress=_rows_shown(advance, "evaluating", store))
    click.echo(json.dumps(result.to_dict()) if as_json else _metrics(result))


def _metrics(result: Evaluation) -> str:
    area = [("ROC AUC", "none: the rows are of one class" if result.roc_auc is None else f"{result.roc_auc:.6f}")]
    if result.roc_auc_error:
        area = [("ROC AUC", f"{result.roc_auc:.6f} (within {result.roc_auc_error:.1g})")]
    if len(result.classes) > 2:
        area = []
    apart = f", {result.unlabelled:,} more without label" if result.unlabelled else ""
    pairs = [
        ("rows", f"{result.rows:,}{apart}"),
        ("accuracy", f"{result.accuracy:.6f}"),
        ("balanced", f"{result.balanced_accuracy:.6f}"),
        ("F1", f"{result.f1:.6f} (mean of the classes)"),
        *area,
        ("lowest margin", f"{result.lowest_margin:.6g}"),
    ]
    labels = [repr(score.label) for score in result.classes]
    scores = [
        (label, f"{s.rows:,}", *(f"{value:.6f}" for value in (s.precision, s.recall, s.f1)), *map("{:,}".format, given))
        for label, s, given in zip(labels, result.classes, result.confusion, strict=True)
    ]
    head = ("label", "rows", "precision", "recall", "F1", *(f"given {label}" for label in labels))
    return "\n".join([facts(pairs), "", table([head, *scores])])


@click.command(no_args_is_help=True)
@_model
@json_option
def show(model: Path, *, as_json: bool) -> None:
    """Show what a MODEL is, what it claims and how it was made.

    What it claims is not checked here: `coremargin verify` does that.

    \b
    Examples:
      coremargin show rows.model
      coremargin show rows.model --json | jq .certificate.ratio
    """
    from coremargin.cli.fleet_words import fleet_facts
    from coremargin.learn.fleet import FleetModel, read_model

    loaded, run = read_model(model), _run_of(model)
    if as_json:
        click.echo(json.dumps({**loaded.record, "run": run}))
    elif isinstance(loaded, FleetModel):
        click.echo(fleet_facts(model, loaded, _made(run)))
    else:
        click.echo(_described(model, loaded, run))


def _run_of(model: Path) -> dict[str, Any]:
    """How the run went; empty when the file is missing or broken, as nothing rests on it."""
    try:
        run = json.loads((model / "run.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return run if isinstance(run, dict) else {}


def _described(path: Path, model: Model | MulticlassModel, run: dict[str, Any]) -> str:
    sides = ("", "") if len(model.classes) > 2 else (" (negative)", " (positive)")
    names = ", ".join(f"{label!r}{sides[k % 2]}" for k, label in enumerate(model.classes))
    intercept = "" if model.parameters.get("intercept", True) else ", through the origin"
    pairs = [
        ("model", f"{path}, {model.problem}{intercept}"),
        ("status", model.status),
        ("classes", names),
        ("rows", f"{model.rows:,} of {model.features:,} features, {model.record['dtype']}"),
        *_scaling(model),
        *_claims(model),
        ("store", model.certificate.store_digest),
        ("software", ", ".join(f"{name} {version}" for name, version in model.record["software"].items())),
    ]
    return facts([*pairs, *_made(run)])


def _made(run: dict[str, Any]) -> list[tuple[str, str]]:
    """When, and what it cost, as far as that is known."""
    numbers = {key: value for key, value in run.items() if isinstance(value, int | float)}
    pairs = [("made", str(run["started"]))] if "started" in run else []
    if {"scans", "bytes_read", "seconds"} <= set(numbers):
        scans = count(int(numbers["scans"]), "scan")
        took = f"{scans}, {format_size(numbers['bytes_read'])} in {format_seconds(numbers['seconds'])}"
        pairs.append(("took", took))
    return pairs


def _scaling(model: Model | MulticlassModel) -> list[tuple[str, str]]:
    from coremargin.report.numbers import SCALINGS

    if model.scaling is None:
        return []
    return [("scaling", f"{model.scaling}: {SCALINGS[model.scaling]}; what is claimed is about rows so scaled")]


def _claims(model: Model | MulticlassModel) -> list[tuple[str, str]]:
    claims, asked = model.certificate, model.parameters
    ratio = ("ratio", f"{_bound(claims.ratio)}, epsilon {claims.epsilon:g}")
    if claims.kind == "duality_gap":
        weight = asked["class_weight"]
        shown = "" if weight is None else f", class weight {weight if weight == 'balanced' else tuple(weight)}"
        return [
            ("loss", f"{asked['loss']}, C {asked['C']:g}{shown}"),
            ("value", f"at most {_bound(claims.upper)} over all rows"),
            ("best possible", f"at least {_bound(claims.lower)}"),
            ratio,
        ]
    return [
        ("margin", f"{_bound(claims.lower)} proven for {which_rows(model)}"),
        ("best possible", f"at most {_bound(claims.upper)}"),
        ratio,
        ("coreset", f"{claims.coreset_rows:,} rows carry the proof"),
    ]


def _bound(value: float | None) -> str:
    return "nothing" if value is None else repr(value)  # every digit: a rounded bound may claim too much


def _rows_shown(advance: Advance | None, what: str, store: Path) -> Callable[[int, int], None] | None:
    if advance is None:
        return None
    from coremargin.data.store import Store

    opened = Store.open(store)
    row_bytes = opened.nbytes // opened.rows

    def shown(done: int, rows: int) -> None:
        advance(what, done * row_bytes, rows * row_bytes, f"{done:,} rows")

    return shown


COMMANDS = (verify, predict, evaluate, show)
