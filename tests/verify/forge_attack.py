"""Campaigns mutated one after the other: what the verifier says of each, and that it believes nothing false."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.errors import CoremarginError
from coremargin.verify.examine import examine
from forge_active_mutations import log_mutated, model_mutated
from forge_run import SEED, Guard, asked, loaded, quick

if TYPE_CHECKING:
    from forge_active import Played

#: What a judge finds false of a model by itself: its store's rows, its record, its arrays.
Lies = Callable[[Any, dict[str, Any], dict[str, Any]], Iterator[str]]


def models_attacked(
    specimens: Sequence[Played], folder: Path, numbers: Iterable[int], lies: Lies, *seed: int
) -> Counter[str]:
    """What became of mutated models; nothing false was accepted, nothing crashed, hung or grew."""
    counts: Counter[str] = Counter()
    guard = Guard()
    with guard.watching(), quick():
        for number in numbers:
            rng = np.random.default_rng([SEED, *seed, number])
            one, other = specimens[number % len(specimens)], specimens[rng.integers(len(specimens))]
            told = model_mutated(rng, one, other, folder / "m")
            outcome = asked(guard, folder / "m", one.rows.path)
            counts[outcome.answer] += 1
            assert not outcome.wrong, (number, told, outcome)
            if outcome.answer == "accepted":
                record = json.loads((folder / "m" / "model.json").read_bytes())
                with np.load(folder / "m" / "arrays.npz") as found:
                    arrays = dict(found)
                assert list(lies(one.rows, record, arrays)) == [], (number, told)
            if outcome.answer == "accepted" or number % 5 == 0:
                assert loaded(guard, folder / "m", show=number % 7 == 0)[1] == "", (number, told)
    return counts


def logs_attacked(
    specimens: Sequence[Played],
    folder: Path,
    numbers: Iterable[int],
    lies: Callable[[Played, Sequence[dict[str, Any]]], list[str]],
    *seed: int,
) -> Counter[str]:
    """What became of campaigns with mutated logs; nothing false was accepted.

    lies: what a judge finds false of a campaign by the lines that its model is about.
    """
    counts: Counter[str] = Counter()
    for number in numbers:
        rng = np.random.default_rng([SEED, *seed, number])
        forged = specimens[number % len(specimens)].copy()
        told = log_mutated(rng, forged)
        last = len(forged.lines) if not 0 <= forged.model_line <= len(forged.lines) else forged.model_line
        forged.model_line = last
        place = forged.write(folder / "c")
        try:
            found = examine(place, forged.rows.path, threads=1)
        except CoremarginError:
            counts["refused"] += 1
            continue
        counts["accepted" if found.ok else "refuted"] += 1
        assert not found.ok or lies(forged, forged.lines[:last]) == [], (number, told)
    return counts
