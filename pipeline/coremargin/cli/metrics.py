"""What ``coremargin evaluate`` tells people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from coremargin.report.text import count, facts, table

if TYPE_CHECKING:
    from coremargin.models.evaluate import Evaluation, Weighted

CONFUSIONS_SHOWN = 10


class _Cells(NamedTuple):
    """How what a matrix counts is written: in its cells, and in a sentence."""

    number: Callable[[Any], str]
    told: Callable[[Any], str]


_ROWS = _Cells("{:,}".format, lambda rows: count(rows, "row"))
_WEIGHTS = _Cells("{:,.6g}".format, "weight {:,.6g}".format)


def metrics_text(result: Evaluation, width: int) -> list[str]:
    """The metrics of all rows, and of their weights if there are any, in lines of so many characters."""
    apart = f", {result.unlabelled:,} more without label" if result.unlabelled else ""
    pairs = [("rows", f"{result.rows:,}{apart}"), *_common(result), ("lowest margin", f"{result.lowest_margin:.6g}")]
    labels = [repr(score.label) for score in result.classes]
    scores = [
        (label, f"{s.rows:,}", *(f"{value:.6f}" for value in (s.precision, s.recall, s.f1)))
        for label, s in zip(labels, result.classes, strict=True)
    ]
    head = ("label", "rows", "precision", "recall", "F1")
    lines = [*facts(pairs), "", *_by_class([head, *scores], result.confusion, labels, width, _ROWS)]
    if result.weighted is not None:
        matrix = result.weighted.confusion
        sums = [(label, f"{sum(row):,.6g}") for label, row in zip(labels, matrix, strict=True)]
        weighted = [("weights", f"{result.weighted.weight:,.6g} in all"), *_common(result.weighted)]
        shown = _by_class([("label", "weight"), *sums], matrix, labels, width, _WEIGHTS)
        lines += ["", "weighted:", "", *facts(weighted), "", *shown]
    return lines


def _by_class(
    rows: Sequence[Sequence[str]],
    matrix: Sequence[Sequence[float]],
    labels: list[str],
    width: int,
    cells: _Cells,
) -> list[str]:
    """A table of the classes with the confusion matrix; where that is too wide, without it, and mistakes below."""
    given = [[f"given {label}" for label in labels], *(map(cells.number, line) for line in matrix)]
    whole = table([(*row, *more) for row, more in zip(rows, given, strict=True)])
    if max(map(len, whole)) <= width:
        return whole
    return [*table(rows), "", *_mistakes(matrix, labels, cells)]


def _mistakes(matrix: Sequence[Sequence[float]], labels: list[str], cells: _Cells) -> list[str]:
    import numpy as np

    from coremargin.report.confusion import confusions

    kinds = sum(value > 0 for i, line in enumerate(matrix) for j, value in enumerate(line) if i != j)
    found = confusions(np.array(matrix), labels, CONFUSIONS_SHOWN)
    if not found:
        return ["no class was taken for another"]
    which = f"the {len(found)} largest of {kinds:,} confusions" if kinds > len(found) else "all confusions"
    head = f"{which}; --json has the whole matrix:"
    return [head, *(f"  given {one['given']} though {one['of']}: {cells.told(one['rows'])}" for one in found)]


def _common(result: Evaluation | Weighted) -> list[tuple[str, str]]:
    """Of rows as of weights."""
    pairs = [
        ("accuracy", f"{result.accuracy:.6f}"),
        ("balanced", f"{result.balanced_accuracy:.6f}"),
        ("F1", f"{result.f1:.6f} (mean of the classes)"),
    ]
    if len(result.confusion) > 2:
        return pairs
    within = f" (within {result.roc_auc_error:.1g})" if result.roc_auc_error else ""
    area = "none: the rows are of one class" if result.roc_auc is None else f"{result.roc_auc:.6f}{within}"
    return [*pairs, ("ROC AUC", area)]
