"""``coremargin outliers``: list the rows that a model excludes, and their gain in margin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.kind import Command

if TYPE_CHECKING:
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.outliers.outlier_table import OutlierTable


class Outliers(Command["OutlierTable"]):
    """Two tables: the excluded rows, and the margin as a function of their number."""

    name = "outliers"
    help = """List the rows that MODEL excludes, and the margin against their number.

    A row's gain is at least how much smaller the margin of the others would be if the row had to stay. These rows cost
    most margin: check their labels first.

    \b
      coremargin train rows.zarr --out rows.model --outliers 0..10
      coremargin outliers rows.model
    """

    def answer(self, model: AnyModel) -> OutlierTable:
        """Rows, steps and contradictions."""
        from coremargin.problems.outliers.outlier_table import outlier_table

        return outlier_table(model)

    def describe(self, answer: OutlierTable) -> list[str]:
        """The tables as text."""
        from coremargin.problems.outliers.outlier_table import describe_outliers

        return describe_outliers(answer)


COMMANDS = (Outliers(),)
