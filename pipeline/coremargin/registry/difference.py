"""Compare two versions: certificates, rows and drift."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from coremargin.data.store import Store
from coremargin.errors import StoreError
from coremargin.models.registry import load
from coremargin.registry.drift import drift
from coremargin.report.numbers import MINUS
from coremargin.report.text import count, facts, table

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.formats.location import Location
    from coremargin.formats.versions import VersionRecord
    from coremargin.registry.drift import Drift
    from coremargin.registry.registry import Registry

_LISTED = 8  # features in a terminal


@dataclass(frozen=True)
class Difference:
    """drift: None if it cannot be computed, for the given reason."""

    old: VersionRecord
    new: VersionRecord
    drift: Drift | None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        names = ("number", "status", "ratio", "rows", "commit", "store_digest", "created")
        found = {side: {name: getattr(getattr(self, side), name) for name in names} for side in ("old", "new")}
        return {**found, "drift": None if self.drift is None else asdict(self.drift), "reason": self.reason}


def difference(
    registry: Registry, old: int, new: int, *, store: Path | Location | None = None, read: bool = True
) -> Difference:
    """store: its path, if it has moved; read: whether to read the new rows. Raises DataError: no such version."""
    before, after = registry.record(old), registry.record(new)
    try:
        rows = [Store.open(store or after.store, digest=record.store_digest) for record in (before, after)]
        models = [load(registry.folder(number)) for number in (old, new)]
        return Difference(before, after, drift(rows[0], rows[1], models[0], models[1], read=read))
    except StoreError as error:  # without the store or the commit, the records remain
        return Difference(before, after, None, str(error))


def describe_difference(found: Difference) -> list[str]:
    """Lines for a terminal."""
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
        return [*lines, "", f"drift is not known: {found.reason}"]
    return [*lines, "", *_describe_drift(found.drift)]


def _describe_drift(found: Drift) -> list[str]:
    lines = [f"{count(found.appended, 'row')} were added to {found.before:,}"]
    if found.within_margin is not None:
        lines.append(f"{found.within_margin:.2%} of them lie within the old margin")
    if found.features:
        shown = [("feature", "shift of the mean", "spread (new/old)")]
        shown += [(one.feature, f"{_signed(one.mean_shift)} deviations", f"{one.spread:.3g}") for one in found.features]
        lines += ["", *table(shown[: _LISTED + 1], indent="")]
    shares = [("class", "before", "new rows", "now")]
    shares += [
        (repr(one.label), f"{one.before:.2%}", "" if one.new is None else f"{one.new:.2%}", f"{one.now:.2%}")
        for one in found.classes
    ]
    if found.classes:
        lines += ["", *table(shares, indent="")]
    if found.hyperplane is not None:
        pairs = [(name, f"{then:+.4f} to {now:+.4f}") for name, then, now in found.hyperplane.weights[:_LISTED]]
        lines += [
            "",
            f"the hyperplane turned by {found.hyperplane.degrees:.3g} degrees; weights, normalised:",
            *facts(pairs),
        ]
    return lines


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", MINUS)


def _number(value: float | None, digits: int) -> str:
    return "not known" if value is None else f"{value:.{digits}f}"
