"""Campaigns of several classes, with a loss, by class, with unsure rows, mutated: nothing false is accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coremargin.errors import CoremarginError
from coremargin.verify.examine import examine
from forge_asked import Maker, corners, mixed
from forge_asked_judge import Sort, lies, log_lies
from forge_attack import logs_attacked, models_attacked
from forge_run import SEED

if TYPE_CHECKING:
    from forge_active import Played

FEW, MANY = 60, 6_000
THREE, TWO = ["a", "b", "c"], ["no", "yes"]
NO_ROW = frozenset(range(0, 80, 7))


@pytest.fixture(scope="module")
def specimens(tmp_path_factory: pytest.TempPathFactory) -> list[Played]:
    """Small campaigns of each sort, certified or stopped, with evidence and without."""
    folder = tmp_path_factory.mktemp("asked")
    weights = np.random.default_rng(1).choice([0.0, 1.0], 80, p=[0.2, 0.8])
    apart, among, three = corners(folder, 80), mixed(folder, 80), mixed(folder, 80, 3, weights=weights)
    soft = {"loss": "hinge", "C": 1.0, "trial": 20, "error": 0.4, "confidence": 0.6}
    return [
        Maker(*apart, THREE).play(), Maker(*apart, THREE, by_class=True, error=0.3, nobody=NO_ROW).play(first=15),
        Maker(*apart, THREE).play(attempts=0), Maker(*among, TWO, **soft, nobody=NO_ROW).play(first=20),
        Maker(*among, TWO, **soft | {"loss": "squared_hinge"}, by_class=True).play(first=20, go_on=True),
        Maker(*three, THREE, **soft, by_class=True, nobody=NO_ROW).play(first=20),
    ]  # fmt: skip


def test_honest_campaigns_are_true(specimens: list[Played], tmp_path: Path) -> None:
    """The judge finds nothing false in what was played, and the verifier neither."""
    for k, one in enumerate(specimens):
        assert list(lies(one.rows, one.record, one.arrays)) == [], k
        assert list(log_lies(Sort(one.rows, one.record, one.arrays), one.lines, one.about)) == [], k
        assert examine(one.write(tmp_path / str(k)), one.rows.path, threads=1).ok, k
    assert Counter(one.record["status"] for one in specimens)["certified"] > 2


def test_a_few_mutated_models(specimens: list[Played], tmp_path: Path) -> None:
    """Of some mutations of records and arrays none is accepted that is false, and none crashes."""
    models_attacked(specimens, tmp_path, range(FEW), lies, 3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_mutated_models(specimens: list[Played], tmp_path: Path) -> None:
    """Of thousands of mutations none is accepted that is false, and none crashes; some are true, most not."""
    counts = models_attacked(specimens, tmp_path, range(MANY), lies, 3)
    assert MANY // 100 < counts["accepted"] < MANY // 2
    assert counts["refuted"] > MANY // 100


def numbers_mutated(rng: np.random.Generator, played: Played) -> str:
    """A number of evidence or bounds is another by a little, in strata and members too; sums and ratios fit then."""
    evidence, claims, told = played.record["evidence"], played.record["certificate"], ""
    if evidence is not None and rng.random() < 0.7:
        parts = evidence.get("strata", [evidence])
        for _ in range(int(rng.integers(1, 3))):
            part, more = parts[int(rng.integers(len(parts)))], int(rng.choice([-2, -1, 1, 2]))
            name = str(rng.choice(["population", "draws", "wrong", "error_bound", "error_least"]))
            part[name] = max(0, part[name] + more)
            told += f"{name} {more:+d}; "
        if "strata" in evidence:
            evidence.update({name: sum(part[name] for part in parts) for name in parts[0] if name != "label"})
    else:
        members = played.record.get("members", [claims])
        k, name = int(rng.integers(len(members))), str(rng.choice(["lower", "upper"]))
        factor = 1 + float(rng.choice([-1, 1]) * 10.0 ** rng.uniform(-12, 0))
        members[k][name] *= factor
        keys = [one["lower"] / one["upper"] if one["lower"] > 0 else 0.0 for one in members]
        worst = members[int(np.argmin(keys))]
        claims.update(lower=worst["lower"], upper=worst["upper"], ratio=min(1.0, *keys, 1.0))
        told = f"{name} of {k} times {factor}"
    if rng.random() < 0.3:
        played.record["status"] = str(rng.choice(["stopped", "certified"]))
    return told + played.record["status"]


def renumbered(specimens: list[Played], folder: Path, numbers: range) -> Counter[str]:
    """What became of models whose numbers are others by a little; what is accepted is true."""
    counts: Counter[str] = Counter()
    for number in numbers:
        rng = np.random.default_rng([SEED, 4, number])
        forged = specimens[number % len(specimens)].copy()
        told = numbers_mutated(rng, forged)
        try:
            found = examine(forged.write_model(folder / "n"), forged.rows.path, threads=1)
        except CoremarginError:
            counts["refused"] += 1
            continue
        counts["accepted" if found.ok else "refuted"] += 1
        assert not found.ok or list(lies(forged.rows, forged.record, forged.arrays)) == [], (number, told)
    return counts


@pytest.mark.slow
def test_a_few_other_numbers(specimens: list[Played], tmp_path: Path) -> None:
    """Of some models whose numbers are others by a little none is accepted that is false."""
    counts = renumbered(specimens, tmp_path, range(3 * FEW))
    assert min(counts["accepted"], counts["refuted"]) > FEW // 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_other_numbers(specimens: list[Played], tmp_path: Path) -> None:
    """The same of thousands."""
    renumbered(specimens, tmp_path, range(MANY))


def campaign_lies(played: Played, lines: Sequence[dict[str, Any]]) -> list[str]:
    """What is false of a campaign by these lines."""
    sort = Sort(played.rows, played.record, played.arrays)
    return [*lies(played.rows, played.record, played.arrays), *log_lies(sort, lines, played.about)]


@pytest.mark.slow
def test_a_few_mutated_logs(specimens: list[Played], tmp_path: Path) -> None:
    """Of some mutations of logs whose chain is whole none is accepted by which the model says something false."""
    logs_attacked(specimens, tmp_path, range(2 * FEW), campaign_lies, 5)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_mutated_logs(specimens: list[Played], tmp_path: Path) -> None:
    """Of thousands of mutated logs none is accepted that is false; some are true, most are not."""
    counts = logs_attacked(specimens, tmp_path, range(MANY), campaign_lies, 5)
    assert MANY // 100 < counts["accepted"] < MANY // 2
    assert counts["refuted"] > MANY // 10
