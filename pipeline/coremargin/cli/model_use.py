"""Commands that hold a model against a store: verify, predict, evaluate."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import (
    MODEL,
    PATH,
    cluster_option,
    cost_option,
    gamma_option,
    json_option,
    kernel_option,
    progress,
    quiet_option,
)
from coremargin.cli.metrics import metrics_text
from coremargin.cli.printing import print_json, print_lines, screen_width
from coremargin.cli.tables import ingest_shown, split
from coremargin.engine.resources import THREAD_BYTES, memory_limit, need_memory
from coremargin.interruption import terminable
from coremargin.report.numbers import plain_bounds

if TYPE_CHECKING:
    from coremargin.cli.common import Advance
    from coremargin.verify.outcome import Outcome, Verification

SECTION = "Models"

_model = click.argument("model", type=MODEL)
_store = click.argument("store", type=PATH)
_rows = click.argument("store", metavar="STORE|FILE", type=PATH)
_drop = click.option("--drop", metavar="COLUMNS", help="Columns of the file that the model does not use.")


@click.command(no_args_is_help=True)
@_model
@_store
@click.option("--epsilon", type=float, metavar="E", help="Require that the bounds prove this epsilon.")
@click.option("--threads", type=click.IntRange(1), metavar="NUMBER", help="Chunks read at a time.  [default: cores]")
@kernel_option
@json_option
@quiet_option
def verify(
    model: Path, store: Path, *, epsilon: float | None, threads: int | None, kernel: Any, as_json: bool, quiet: bool
) -> None:
    """Check the certificate of MODEL against every row of STORE.

    One scan, with code that shares nothing with the trainer: coreset rows are fetched from the store, the upper
    bound is computed again from them, and every row must have the claimed margin. For a soft margin, the primal and
    dual values are summed again over every row. All members of a multi-model job are checked in one scan, and the
    class counts are repeated. For a campaign or its model, the draws are repeated and their evidence is computed
    again; if MODEL is the campaign's folder, its log of answers is checked too.

    The exit code is 0 only if every claim holds, 4 if one is false or --epsilon asks for more than is proven, and 3
    if the model or the store is damaged.

    \b
    Examples:
      coremargin verify rows.model rows.zarr
      coremargin verify rows.model rows.zarr --epsilon 1e-3 && publish rows.model
    """
    from coremargin.errors import UsageError
    from coremargin.verify.examine import examine, refutation

    if epsilon is not None and not 0 < epsilon < 1:
        raise UsageError(f"--epsilon: expected a number between 0 and 1, both excluded; got {epsilon}")
    with terminable(), progress(quiet=quiet) as advance:
        shown = _rows_shown(advance, "verifying", store)
        result = examine(model, store, kernel=kernel, threads=_fitting(threads), on_progress=shown)
    if as_json:
        print_json(result.to_dict())
    else:
        print_lines(*_checklist(result))
    if not result.ok:
        raise refutation(result)
    if epsilon is not None:
        for one in result.singles:
            _demand(one, epsilon)


def _fitting(threads: int | None) -> int | None:
    """Threads that have the memory they need where it is limited; None leaves the choice to the verifier."""
    if threads is None:
        return None if memory_limit() is None else 1  # its first product was made, so it has what BLAS needs
    need_memory(threads * THREAD_BYTES, f"--threads {threads}")
    return threads


def _checklist(result: Outcome) -> list[str]:
    width = max(len(check.name) for check in result.listed)
    return [
        f"{result.model}, {result.store}:",
        "",
        *(f"  {'ok   ' if c.ok else 'FALSE'}  {c.name.ljust(width)}  {c.text}" for c in result.listed),
        *(f"  {text}" for text in result.tally),
        "",
        "not checked:",
        *(f"  {text}" for text in result.unchecked),
        "",
        result.verdict(lambda upper: plain_bounds(None, upper)[1]),
    ]


def _demand(result: Verification, epsilon: float) -> None:
    """Raise NotCertified unless the verified bounds prove ``epsilon``."""
    from coremargin.errors import NotCertified
    from coremargin.verify.checks import certified

    lower, upper = result.claimed_lower, result.claimed_upper  # both hold
    if not certified(lower, upper, epsilon):
        proven = f"epsilon {plain_bounds(None, 1 - lower / upper)[1]}" if lower and upper and lower > 0 else "nothing"
        raise NotCertified(
            f"{result.model}: the claims hold, but prove {proven}, not epsilon {epsilon}; "
            f"train with --epsilon {epsilon}"
        )


@click.command(no_args_is_help=True)
@_model
@_rows
@click.argument("out", type=PATH)
@cost_option
@gamma_option
@kernel_option
@cluster_option
@_drop
@click.option("--overwrite", is_flag=True, help="Replace existing predictions.")
@json_option
@quiet_option
def predict(  # noqa: PLR0913 - one for each option
    model: Path,
    store: Path,
    out: Path,
    *,
    C: float | None,
    gamma: str | float | None,
    kernel: Any,
    cluster: str | None,
    drop: str | None,
    overwrite: bool,
    **shown: bool,
) -> None:
    """Predict the label and decision value of every row of STORE, and write them to OUT.

    STORE may also be a file, or a quoted pattern, that `coremargin ingest` accepts: columns are matched by name and
    encoded as for the model.

    The suffix of OUT gives the format. .parquet, .csv and .jsonl: a table with columns row, label, code and
    decision. .zarr or no suffix: a Zarr group with arrays code and decision, and an attribute "classes" that
    decodes the codes. Without --cluster all cores of this machine are used; the output is the same to the bit
    wherever it runs. --overwrite replaces predictions and nothing else.

    \b
    Examples:
      coremargin predict rows.model new.zarr labels.parquet
      coremargin predict rows.model new.zarr labels.csv
      coremargin predict rows.model new.zarr labels.zarr
    """
    from coremargin.models.predict import predict as run

    with terminable(), progress(quiet=shown["quiet"]) as advance:
        done, read = _rows_shown(advance, "predicting", store), ingest_shown(advance)
        left_out = split(drop) or ()
        result = run(
            model,
            store,
            out,
            C=C,
            gamma=gamma,
            kernel=kernel,
            cluster=cluster,
            overwrite=overwrite,
            drop=left_out,
            on_progress=done,
            on_ingest=read,
        )
    if shown["as_json"]:
        print_json(result.to_dict())
    else:
        counts = ", ".join(f"{rows:,} of {label!r}" for label, rows in result.counts.items())
        print_lines(f"{result.path}: {result.rows:,} rows: {counts}")


@click.command(no_args_is_help=True)
@_model
@_rows
@cost_option
@gamma_option
@kernel_option
@cluster_option
@_drop
@click.option("--weights", metavar="WHERE", help="Sample weights of a file's rows, as in `coremargin ingest`.")
@json_option
@quiet_option
def evaluate(model: Path, store: Path, *, drop: str | None, as_json: bool, quiet: bool, **how: Any) -> None:
    """Compare the predictions of MODEL for STORE with its labels.

    STORE may also be a file, or a quoted pattern, that `coremargin ingest` accepts: columns are matched by name and
    encoded as for the model.

    Accuracy, precision, recall and F1 of each class, confusion matrix and area under the ROC curve, in one pass and
    bounded memory. If the matrix is wider than the terminal, the most frequent mistakes are shown instead; --json
    has all of it. Rows without a label are counted and skipped. With weights, from the store or from --weights,
    weighted metrics are shown too.

    \b
    Examples:
      coremargin evaluate rows.model test.zarr
      coremargin evaluate adult.model adult-test.csv --weights fnlwgt
    """
    from coremargin.models.evaluate import evaluate as run

    with terminable(), progress(quiet=quiet) as advance:
        done, read = _rows_shown(advance, "evaluating", store), ingest_shown(advance)
        left_out = split(drop) or ()
        result = run(model, store, drop=left_out, on_progress=done, on_ingest=read, **how)
    if as_json:
        print_json(result.to_dict())
    else:
        print_lines(*metrics_text(result, screen_width()))


def _rows_shown(advance: Advance | None, what: str, store: Path) -> Callable[[int, int], None] | None:
    if advance is None:
        return None
    size = 0
    with suppress(OSError):  # whether it is a store, and can be read, others say
        size = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())

    def shown(done: int, rows: int) -> None:
        advance(what, size * done // rows, size, f"{done:,} rows")

    return shown


COMMANDS = (verify, predict, evaluate)
