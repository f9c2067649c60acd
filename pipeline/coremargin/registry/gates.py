"""Evaluate the gates that a version must pass to become the champion."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from coremargin.data.store import Store
from coremargin.errors import StoreError, UsageError
from coremargin.formats.location import storage_words
from coremargin.formats.versions import CHAMPION, Gate
from coremargin.maths.paired import different_by_chance, moved_between, worse_by_chance
from coremargin.models.ball import BallModel
from coremargin.models.ellipsoid import EllipsoidModel
from coremargin.models.paired import compare
from coremargin.models.registry import load
from coremargin.registry.drift import count_outside, drift
from coremargin.registry.nightly import SCORES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coremargin.formats.location import Location
    from coremargin.formats.versions import Line, VersionRecord
    from coremargin.models.paired import Paired
    from coremargin.registry.nightly import Gates
    from coremargin.registry.registry import Registry

_NO_CHAMPION = " (no champion yet)"


@dataclass(frozen=True)
class _Candidate:
    """A version, the champion (None: no other version is), and the path of their store."""

    registry: Registry
    record: VersionRecord
    champion: VersionRecord | None
    store: str | Path

    def load_model(self, record: VersionRecord) -> Any:
        return load(self.registry.folder(record.number))

    @property
    def promote_command(self) -> str:
        words = ["coremargin", "registry", "promote", str(self.registry.path), str(self.record.number), "--force"]
        return shlex.join([*words, *storage_words(self.registry.path)])


def evaluate(registry: Registry, number: int, gates: Gates, store: str | Path | None = None) -> Line:
    """Evaluate all gates for a version and log the results: "passed" or "refused".

    store: path of the store, if it has moved.
    Raises StoreError (no store, or one that was rewritten), DataError, Busy; nothing is logged then.
    """
    champion = registry.state().version_of(CHAMPION)
    record = registry.record(number)
    rival = None if champion in (None, number) else registry.record(champion)
    candidate = _Candidate(registry, record, rival, record.store if store is None else store)
    results = list(_evaluate(candidate, gates))
    failed = [gate.text for gate in results if not gate.ok]
    return registry.append(
        "refused" if failed else "passed",
        number,
        "; ".join(failed)[:4000],
        previous=champion,
        gates=[_json_values(gate) for gate in results],
    )


def _json_values(gate: Gate) -> dict[str, Any]:
    """Infinite numbers become null."""

    def finite(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    values: dict[str, Any] = {name: finite(value) for name, value in to_builtins(gate).items()}
    figures = values.pop("figures", {})
    return {**values, "figures": {name: finite(value) for name, value in figures.items()}} if figures else values


def _evaluate(candidate: _Candidate, gates: Gates) -> Iterator[Gate]:
    record = candidate.record
    if gates.certified:
        ok = record.status == "certified"
        yield Gate(name="certified", ok=ok, value=record.ratio, limit=None, text=f"the model is {record.status}")
    if gates.ratio is not None:
        ok = record.ratio is not None and record.ratio >= gates.ratio
        ratio = "not known" if record.ratio is None else f"{record.ratio:.6g}"
        text = f"ratio of the bounds {ratio}, required at least {gates.ratio}"
        yield Gate(name="ratio", ok=ok, value=record.ratio, limit=gates.ratio, text=text)
    if gates.shrink is not None:
        yield _evaluate_shrink(candidate, gates.shrink)
    if gates.class_shares is not None:
        yield from _evaluate_class_shares(record, gates.class_shares)
    if gates.drift is not None or gates.class_shift is not None:
        yield from _evaluate_drift(candidate, gates)
    if gates.outside is not None:
        yield _evaluate_outside(candidate, gates.outside, gates.ball)
    if gates.held_out is not None:
        yield from _evaluate_scores(candidate, gates, gates.held_out)
    if gates.verify:
        yield _verify(candidate)


def _evaluate_shrink(candidate: _Candidate, share: float) -> Gate:
    rows, champion = candidate.record.rows, candidate.champion
    least = 0 if champion is None else math.ceil((1.0 - share) * champion.rows)
    text = f"{rows:,} rows, required at least {least:,}{_NO_CHAMPION * (champion is None)}"
    if rows < least:
        text += f"; if rows were removed on purpose, `{candidate.promote_command}`, or set shrink in [gates]"
    return Gate(name="shrink", ok=rows >= least, value=rows, limit=least, text=text)


def _evaluate_class_shares(record: VersionRecord, limits: dict[str, tuple[float, float]]) -> Iterator[Gate]:
    rows = {str(label): count for label, count in record.classes}
    total = sum(rows.values())
    for label, (low, high) in limits.items():
        share = rows.get(label, 0) / max(1, total)
        text = f"class {label!r} has {share:.4%} of the rows, required between {low:.4%} and {high:.4%}"
        name = f"class_shares {label}"[:200]
        yield Gate(name=name, ok=low <= share <= high, value=share, limit=low, text=text[:4000])


def _evaluate_drift(candidate: _Candidate, gates: Gates) -> Iterator[Gate]:
    limits = [(name, value) for name in ("drift", "class_shift") if (value := getattr(gates, name)) is not None]
    champion = candidate.champion
    if champion is None:
        yield from (Gate(name=name, ok=True, value=0.0, limit=most, text="no champion yet") for name, most in limits)
        return
    try:
        old, new = (Store.open(candidate.store, digest=one.store_digest) for one in (champion, candidate.record))
        found = drift(old, new, candidate.load_model(champion), read=False)
    except StoreError as error:
        reason = f"not known without the champion's rows ({error}"[:3500]
        text = f"{reason}): check the version, then `{candidate.promote_command}`"
        yield from (Gate(name=name, ok=False, value=None, limit=most, text=text) for name, most in limits)
        return
    for name, most in limits:
        if name == "drift":
            value = found.largest
            where = f" ({found.features[0].feature})" if found.features else ""
            text = f"means of features moved by up to {value:.4g} standard deviations{where}, allowed at most {most}"
        else:
            value = found.class_shift
            text = f"shares of classes changed by up to {value:.4g}, allowed at most {most}"
        yield Gate(name=name, ok=value <= most, value=value, limit=most, text=text)


def _evaluate_outside(candidate: _Candidate, most: float, folder: Location | None) -> Gate:
    """Of the rows since the champion's commit, without a champion of all rows, those outside of a ball or ellipsoid."""
    champion, start = candidate.champion, 0
    place: Path | Location
    if folder is not None:
        place = folder
    elif champion is not None:
        place = candidate.registry.folder(champion.number)
    else:
        return Gate(name="outside", ok=True, value=0.0, limit=most, text="no champion yet")
    ball = load(place)
    if not isinstance(ball, BallModel | EllipsoidModel):
        found = getattr(ball, "WHAT", "several models")
        raise UsageError(
            f"{place}: gate outside: expected a ball or an ellipsoid, found {found}; set ball in [gates] to the folder "
            "of one"
        )
    try:
        if champion is not None:
            start = Store.open(candidate.store, digest=champion.store_digest).rows
        new = Store.open(candidate.store, digest=candidate.record.store_digest)
    except StoreError as error:
        reason = f"not known without the champion's rows ({error}"[:3500]
        text = f"{reason}): check the version, then `{candidate.promote_command}`"
        return Gate(name="outside", ok=False, value=None, limit=most, text=text)
    outside, total = count_outside(ball, new, start)
    share = outside / max(1, total)
    shape = "ball" if isinstance(ball, BallModel) else "ellipsoid"
    whose = f"the champion's {shape}" if folder is None else f"the {shape} in {folder}"
    text = f"{outside:,} of {total:,} new rows ({share:.4%}) lie outside of {whose}, allowed at most {most:.4%}"
    return Gate(name="outside", ok=share <= most, value=share, limit=most, text=text[:4000], figures={"rows": total})


def _evaluate_scores(candidate: _Candidate, gates: Gates, held_out: Location) -> Iterator[Gate]:
    model, champion = candidate.load_model(candidate.record), candidate.champion
    paired = compare(model if champion is None else candidate.load_model(champion), model, Store.open(held_out))
    for name in SCORES:
        margin = getattr(gates, name)
        if margin is None:
            continue
        value, before = getattr(paired.second, name), getattr(paired.first, name)
        least = 0.0 if champion is None else before - margin
        text = f"{name} {value:.6g} on {paired.rows:,} rows, required at least {least:.6g}"
        text += _NO_CHAMPION if champion is None else f" (the champion has {before:.6g})"
        figures = {"rows": paired.rows, "champion": None if champion is None else before}
        if name == "accuracy" and champion is not None:
            figures |= _paired_figures(paired)
        ok = value >= least or math.isclose(value, least, abs_tol=1e-12)
        yield Gate(name=name, ok=ok, value=value, limit=least, text=text, figures=figures)
    if gates.worse is not None:
        chance = worse_by_chance(paired.only_first, paired.only_second)
        text = (
            f"{paired.only_first:,} rows lost and {paired.only_second:,} gained of {paired.rows:,}: p = {chance:.4g}, "
            f"required more than {gates.worse}"
        )
        figures = _paired_figures(paired)
        yield Gate(name="worse", ok=chance > gates.worse, value=chance, limit=gates.worse, text=text, figures=figures)


def _paired_figures(paired: Paired) -> dict[str, float | int | None]:
    low, high = moved_between(paired.only_first, paired.only_second, paired.rows, 0.95)
    return {
        "lost": paired.only_first,
        "won": paired.only_second,
        "p_worse": worse_by_chance(paired.only_first, paired.only_second),
        "p_two_sided": different_by_chance(paired.only_first, paired.only_second),
        "difference_low": low,
        "difference_high": high,
    }


def _verify(candidate: _Candidate) -> Gate:
    from coremargin.verify.examine import examine

    record = candidate.record
    if Store.open(candidate.store).digest != record.store_digest:
        raise StoreError(
            f"{candidate.store}: has changed since version {record.number} was trained: retrain, and evaluate "
            "the gates of the new version"
        )
    result = examine(candidate.registry.folder(record.number), candidate.store)
    failed = [check.text for check in result.listed if not check.ok]
    text = "verify passed" if result.ok else f"verify: {'; '.join(failed)}"
    return Gate(name="verify", ok=result.ok, value=None, limit=None, text=text[:4000])
