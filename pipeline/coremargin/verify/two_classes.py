"""Whether a store has the two classes of a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import Check, typed
from coremargin.verify.view import view_text

if TYPE_CHECKING:
    from coremargin.verify.claim import Claim
    from coremargin.verify.rows import Rows


def same_classes(claim: Claim, rows: Rows) -> Check:
    """Whether the store's labels are the model's two or, of one class against the rest, that class is among them."""
    labels, known = (claim.negative, claim.positive), {typed(label) for label in rows.classes}
    view = claim.view
    if view.label is None:
        ok = {typed(label) for label in labels} <= known  # of any others, no row may count: a scan counts them
    else:
        against = list(map(typed, labels)) == [typed(False), typed(True)]
        ok = against and typed(view.label) in known and len(known) > 1
    text = f"{claim.negative!r} (negative) and {claim.positive!r} (positive)"
    if view != WHOLE:
        text += f": {view_text(view)}"
    if not ok:
        text = f"model claims {text}, the store has {', '.join(map(repr, rows.classes)) or 'none'}"
    return Check("classes", ok, text)
