"""How two versions differ: what they prove, and how their rows drifted; for people and for machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from coremargin.data.store import Store
from coremargin.errors import StoreError
from coremargin.models.registry import load
from coremargin.registry.drift import Drift, drift
from coremargin.report.numbers import MINUS
from coremargin.report.text import count, facts, table

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.formats.versions import VersionRecord
    from coremargin.registry.registry import Registry

_FEATURES = 8  # that a terminal shows


@dataclass(frozen=True)
class Difference:
    """Two versions, and the drift between their rows; why: None is known of it."""

    old: VersionRecord
    new: VersionRecord
    drift: Drift | None
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = ("number", "status", "ratio", "rows", "commit", "digest", "made")
        found = {side: {name: getattr(getattr(self, side), name) for name in names} for side in ("old", "new")}
        return {**found, "drift": None if self.drift is None else asdict(self.drift), "why": self.why}


def difference(registry: Registry, old: int, new: int, *, store: Path | None = None, read: bool = True) -> Difference:
    """Version ``old`` against version ``new``; store: where the rows are now. Raises DataError: one is not there."""
    before, after = registry.record(old), registry.record(new)
    try:
        rows = [Store.open(store or after.store, digest=record.digest) for record in (before, after)]
        models = [load(registry.folder(number)) for number in (old, new)]
        return Difference(before, after, drift(rows[0], rows[1], models[0], models[1], read=read))
    except StoreError as error:  # its commit is gone, or the store is: what the versions say is left
        return Difference(before, after, None, str(error))


def told(found: Difference) -> list[str]:
    """For people, line by line."""
    old, new = found.old, found.new
    rows = [
        ("", f"version {old.number}", f"version {new.number}"),
        ("status", old.status, new.status),
        ("ratio", _number(old.ratio, 9), _number(new.ratio, 9)),
        ("rows", f"{old.rows:,}", f"{new.rows:,}"),
        ("commit", str(old.commit), str(new.commit)),
    ]
    lines = table(rows, indent="")
    if found.drift is None:
        return [*lines, "", f"drift is not known: {found.why}"]
    return [*lines, "", *_drift(found.drift)]


def _drift(found: Drift) -> list[str]:
    lines = [f"{count(found.appended, 'row')} came after {found.before:,}"]
    if found.within is not None:
        lines.append(f"{found.within:.2%} of them lie within the old margin")
    if found.features:
        shown = [("feature", "mean moved by", "spread times")]
        shown += [(one.feature, f"{_signed(one.moved)} deviations", f"{one.spread:.3g}") for one in found.features]
        lines += ["", *table(shown[: _FEATURES + 1], indent="")]
    shares = [("class", "before", "of the new", "now")]
    shares += [
        (repr(one.label), f"{one.before:.2%}", "" if one.new is None else f"{one.new:.2%}", f"{one.now:.2%}")
        for one in found.classes
    ]
    if found.classes:
        lines += ["", *table(shares, indent="")]
    if found.moved is not None:
        pairs = [(name, f"{then:+.4f} to {now:+.4f}") for name, then, now in found.moved.weights[:_FEATURES]]
        lines += [
            "",
            f"the hyperplane turned by {found.moved.degrees:.3g} degrees; weights, of length 1:",
            *facts(pairs),
        ]
    return lines


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", MINUS)


def _number(value: float | None, digits: int) -> str:
    return "not known" if value is None else f"{value:.{digits}f}"
