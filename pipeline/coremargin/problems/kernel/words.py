"""What is told of models that were reduced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.report.numbers import plain_bounds

if TYPE_CHECKING:
    from coremargin.models.kernel import KernelModel


def reduced_told(model: KernelModel) -> str:
    """By how many rows it decides, and what that costs; nothing of a model that was not reduced."""
    said = model.record.get("reduced")
    if said is None:
        return ""
    changed = said["changed"]
    given = f"at most {changed:,} {'row is' if changed == 1 else 'rows are'}" if changed else "no row is"
    return (
        f"{said['rows']:,} of {model.certificate.coreset_rows:,} rows decide; on each of {model.rows:,} rows within "
        f"{plain_bounds(None, said['distance'])[1] or 0} of what all of these say, and {given} given another class"
    )
