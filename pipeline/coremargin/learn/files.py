"""Training straight from files: they become a store beside the model, as ``ingest`` makes it.

A run may end before there is a model: rows of one class, a word that does not fit, Ctrl-C. The same command then takes
the store as it is, where it was made of the same files in the same words (made_of.py). Else it makes the store anew,
but only while nobody may need it: until a run has left a model, a file beside the store says that (store_paths.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coremargin.data.files import output_errors
from coremargin.data.ingest import ingest
from coremargin.data.locked import Locked
from coremargin.data.owned import STORE
from coremargin.data.store import Store
from coremargin.data.store_paths import store_beside, unfinished_mark
from coremargin.engine.checkpoint import identity_then
from coremargin.errors import UsageError
from coremargin.learn.provenance import MadeOf, differences, kept_in, made_of

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.data.ingest_pass import IngestReport
    from coremargin.learn.train import Begin


@dataclass(frozen=True)
class Beside:
    """The store beside a model. report: of making it, None where it was there; told: what to say about one that was."""

    report: IngestReport | None
    told: str = ""


def ingest_beside(source: Any, out: Path, begin: Begin, *, overwrite: bool, **options: Any) -> Beside:
    """Write the rows of files into the store beside a model, unless it is there and holds just these.

    options: those of ``ingest``. Raises UsageError where a store is there that was made otherwise, and may be needed;
    Busy while somebody trains on it; and as ``ingest`` does.
    """
    store, now = store_beside(out), made_of(source, options)
    with Locked(out, "this model"):
        then, told = _found(store), ""
        if then is not None and (begin == "resume" or not overwrite):
            other = differences(then, now)
            if not other and not now.state and begin != "resume":
                other = [f"it was made of a {now.source}, whose rows may have been others"]
            if not other:
                return Beside(None, f"{store}: was made of these rows before, and is taken as it is")
            _refuse_needed(store, out, begin, "; ".join(other))
            told = f"{store}: no model was made of it, so it is made anew: {'; '.join(other)}"
        mark = unfinished_mark(store)
        with output_errors(mark):
            mark.touch()
        return Beside(ingest(source, store, overwrite=then is not None, about=now.kept(), **options), told)


def _found(store: Path) -> MadeOf | None:
    """What a store was made of; None: nothing is there. Raises UsageError for what is no store of ours, as it was."""
    if not os.path.lexists(store):
        return None
    found = Store.open(store) if STORE.is_at(store) else None
    then = kept_in(found.about) if found is not None and found.commits == 1 else None
    if then is None:
        raise UsageError(
            f"{store}: exists already, and is not what `train` makes of files: train on it with `coremargin train "
            f"{store}`, move it away, or choose another place for the model"
        )
    return then


def _refuse_needed(store: Path, out: Path, begin: Begin, other: str) -> None:
    """Raise UsageError where a store that was made otherwise may be needed."""
    if begin == "resume" and (os.path.lexists(out) or identity_then(out)):
        raise UsageError(
            f"{store}: is not of what is given now: {other}; give what was given then, go on with the rows as they "
            f"were by `coremargin train {store} --out {out} --resume`, or begin anew with --restart --overwrite"
        )
    if not unfinished_mark(store).exists():
        raise UsageError(
            f"{store}: exists already, and is not of what is given now: {other}; say --overwrite to make it anew, or "
            "choose another place for the model"
        )
