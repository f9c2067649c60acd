"""Gates: what a candidate must be to become the champion, each with the figure that decided."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from coremargin.data.store import Store
from coremargin.errors import StoreError
from coremargin.formats.versions import CHAMPION, Gate
from coremargin.maths.paired import different_by_chance, moved_between, worse_by_chance
from coremargin.models.paired import compare
from coremargin.models.registry import load
from coremargin.registry.drift import drift
from coremargin.registry.gate_options import SCORES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coremargin.formats.versions import Line, VersionRecord
    from coremargin.models.paired import Paired
    from coremargin.registry.gate_options import Gates
    from coremargin.registry.registry import Registry


@dataclass(frozen=True)
class _Case:
    """A candidate, and the champion that it is held against, if there is one."""

    registry: Registry
    number: int
    record: VersionRecord
    champion: int | None
    store: Path

    @property
    def rival(self) -> VersionRecord | None:
        """What the champion is."""
        return None if self.champion is None or self.champion == self.number else self.registry.record(self.champion)

    def model(self, number: int) -> Any:
        """A version's model."""
        return load(self.registry.folder(number))


def evaluate(registry: Registry, number: int, gates: Gates, store: Path | None = None) -> Line:
    """Hold a version against its gates, all of them, and write down what they found: "passed" or "refused".

    store: where its rows are now; None: where they were.
    Raises StoreError (a store that is not there, or was written anew), DataError, Busy: nothing is written then.
    """
    champion = registry.standing().aliases.get(CHAMPION)
    record = registry.record(number)
    rows = Path(record.store) if store is None else store
    case = _Case(registry, number, record, None if champion is None else champion.version, rows)
    found = list(_found(case, gates))
    refused = [gate for gate in found if not gate.ok]
    why = "; ".join(gate.told for gate in refused)[:4000]
    with registry.writing() as writing:
        return writing.tell(
            "refused" if refused else "passed",
            number,
            why,
            was=case.champion,
            gates=to_builtins([_finite(gate) for gate in found]),
        )


def _finite(gate: Gate) -> dict[str, Any]:
    """As JSON has it: what is infinite is null."""
    values: dict[str, Any] = to_builtins(gate)
    values["figures"] = {name: _json(value) for name, value in values.get("figures", {}).items()}
    return {name: _json(value) for name, value in values.items() if name != "figures" or value}


def _json(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _found(case: _Case, gates: Gates) -> Iterator[Gate]:
    record, rival = case.record, case.rival
    if gates.certified:
        ok = record.status == "certified"
        yield Gate(name="certified", ok=ok, found=record.ratio, asked=None, told=f"the model is {record.status}")
    if gates.ratio is not None:
        ok = record.ratio is not None and record.ratio >= gates.ratio
        told = f"the bounds have the ratio {_told(record.ratio)}, at least {gates.ratio} is asked for"
        yield Gate(name="ratio", ok=ok, found=record.ratio, asked=gates.ratio, told=told)
    if gates.shrink is not None:
        yield _shrink(case, rival, gates.shrink)
    if gates.class_shares is not None:
        yield from _class_shares(record, gates.class_shares)
    if gates.drift is not None or gates.class_shift is not None:
        yield from _drift(case, rival, gates)
    if gates.held_out is not None:
        yield from _held_out(case, rival, gates, gates.held_out)
    if gates.verify:
        yield _verified(case)


def _forced(case: _Case) -> str:
    return shlex.join(["coremargin", "registry", "promote", str(case.registry.path), str(case.number), "--force"])


def _told(value: float | None) -> str:
    return "not known" if value is None else f"{value:.6g}"


def _shrink(case: _Case, rival: VersionRecord | None, share: float) -> Gate:
    record = case.record
    least = 0 if rival is None else math.ceil((1.0 - share) * rival.rows)
    told = f"{record.rows:,} rows, at least {least:,} are asked for" + (" (no champion yet)" if rival is None else "")
    if record.rows < least:
        told += f"; if they are meant to be gone, `{_forced(case)}`, or set shrink in [gates]"
    return Gate(name="shrink", ok=record.rows >= least, found=record.rows, asked=least, told=told)


def _class_shares(record: VersionRecord, asked: dict[str, tuple[float, float]]) -> Iterator[Gate]:
    rows = {str(label): count for label, count in record.classes}
    total = sum(rows.values())
    for label, (low, high) in asked.items():
        share = rows.get(label, 0) / max(1, total)
        told = f"class {label!r} has {share:.4%} of the rows, from {low:.4%} to {high:.4%} is asked for"
        name = f"class_shares {label}"[:200]
        yield Gate(name=name, ok=low <= share <= high, found=share, asked=low, told=told[:4000])


def _drift(case: _Case, rival: VersionRecord | None, gates: Gates) -> Iterator[Gate]:
    asked = [(name, value) for name in ("drift", "class_shift") if (value := getattr(gates, name)) is not None]
    if rival is None or case.champion is None:
        yield from (Gate(name=name, ok=True, found=0.0, asked=value, told="no champion yet") for name, value in asked)
        return
    try:
        old, new = (Store.open(case.store, digest=one.digest) for one in (rival, case.record))
        found = drift(old, new, case.model(case.champion), read=False)
    except StoreError as error:
        told = (
            f"not known without the champion's rows ({error}"[:3500] + f"): look at the version, then `{_forced(case)}`"
        )
        yield from (Gate(name=name, ok=False, found=None, asked=value, told=told) for name, value in asked)
        return
    for name, most in asked:
        value = found.largest if name == "drift" else found.class_shift
        where = f" ({found.features[0].feature})" if name == "drift" and found.features else ""
        what = "means of features moved by up to" if name == "drift" else "shares of classes changed by up to"
        unit = " standard deviations" if name == "drift" else ""
        told = f"{what} {value:.4g}{unit}{where}, at most {most} is asked for"
        yield Gate(name=name, ok=value <= most, found=value, asked=most, told=told)


def _held_out(case: _Case, rival: VersionRecord | None, gates: Gates, store: Path) -> Iterator[Gate]:
    candidate = case.model(case.number)
    champion = candidate if rival is None or case.champion is None else case.model(case.champion)
    found = compare(champion, candidate, Store.open(store))
    for name in SCORES:
        margin = getattr(gates, name)
        if margin is not None:
            now, then = getattr(found.second, name), getattr(found.first, name)
            least = 0.0 if rival is None else then - margin
            told = f"{name} {now:.6g} on {found.rows:,} rows, at least {least:.6g} is asked for"
            told += " (no champion yet)" if rival is None else f" (the champion has {then:.6g})"
            figures = {"rows": found.rows, "champion": None if rival is None else then}
            more = _paired(found) if name == "accuracy" and rival is not None else {}
            ok = now >= least or math.isclose(now, least, abs_tol=1e-12)
            yield Gate(name=name, ok=ok, found=now, asked=least, told=told, figures={**figures, **more})
    if gates.worse is not None:
        yield _worse(found, gates.worse)


def _worse(found: Paired, level: float) -> Gate:
    chance = worse_by_chance(found.only_first, found.only_second)
    told = (
        f"{found.only_first:,} rows lost and {found.only_second:,} won of {found.rows:,}: by chance alone with "
        f"probability {chance:.4g}, more than {level} is asked for"
    )
    return Gate(name="worse", ok=chance > level, found=chance, asked=level, told=told, figures=_paired(found))


def _paired(found: Paired) -> dict[str, float | int | None]:
    """What the exact test says of two models."""
    low, high = moved_between(found.only_first, found.only_second, found.rows, 0.95)
    return {
        "lost": found.only_first,
        "won": found.only_second,
        "p_worse": worse_by_chance(found.only_first, found.only_second),
        "p_two_sided": different_by_chance(found.only_first, found.only_second),
        "difference_low": low,
        "difference_high": high,
    }


def _verified(case: _Case) -> Gate:
    from coremargin.verify.examine import examine

    if Store.open(case.store).digest != case.record.digest:
        raise StoreError(
            f"{case.store}: has changed since version {case.number} was trained: retrain, and hold what comes "
            "of it against the gates"
        )
    result = examine(case.registry.folder(case.number), case.store)
    false = [check.text for check in result.listed if not check.ok]
    told = "verify passed" if result.ok else f"verify: {'; '.join(false)}"
    return Gate(name="verify", ok=result.ok, found=None, asked=None, told=told[:4000])
