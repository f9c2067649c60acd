"""``coremargin outliers``: which rows a model leaves out, and what that buys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.kind import Command

if TYPE_CHECKING:
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.outliers.left_out import LeftOut


class Outliers(Command["LeftOut"]):
    """Two tables: the rows, and the margin against their number."""

    name = "outliers"
    help = """List the rows that MODEL leaves out, and the margin against their number.

    A row's gain is how much smaller the margin of the others would be at least if that row had to stay. The rows are
    those that spoil the margin most: look at their labels first.

    \b
      coremargin train rows.zarr --out rows.model --outliers 0..10
      coremargin outliers rows.model
    """

    def answer(self, model: AnyModel) -> LeftOut:
        """Rows, steps and contradictions."""
        from coremargin.problems.outliers.left_out import left_out

        return left_out(model)

    def describe(self, answer: LeftOut) -> list[str]:
        """The tables."""
        from coremargin.problems.outliers.messages import listed

        return listed(answer)


COMMANDS = (Outliers(),)
