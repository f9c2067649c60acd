"""The record and the arrays of a hard margin."""

from __future__ import annotations

from coremargin.formats.model_arrays import Numbers, Schema
from coremargin.formats.model_record import WHOLE, Parameters, TwoClasses, View


class HardMargin(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="hard_margin"):
    """A hard margin; ``view`` is that of a member of a fleet."""

    parameters: Parameters
    view: View = WHOLE

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with a ledger, which a model made of batches has not."""
        ledger: Schema = {
            "ledger_floor": Numbers("f8", ("chunks", 2), finite=False), "ledger_which": Numbers("i8", ("chunks",)),
            "ledger_directions": Numbers("f8", ("directions", self.features)),
            "ledger_pool_ids": Numbers("i8", ("pool",)),
        }  # fmt: skip
        return super().schema(names) | (ledger if names & set(ledger) else {})


RECORD = HardMargin
