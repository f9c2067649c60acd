"""Campaigns mutated at random: what is false by a judge of our own is refused, and nothing crashes, hangs or grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coremargin.verify.examine import examine
from forge_active import Played, hidden_corner, played, two_sides
from forge_active_judge import lies, log_lies
from forge_attack import logs_attacked, models_attacked
from forge_run import SEED, Guard, asked, quick

ASKED = {"error": 0.1, "confidence": 0.8}
FEW, MANY = 40, 5_000


@pytest.fixture(scope="module")
def specimens(tmp_path_factory: pytest.TempPathFactory) -> list[Played]:
    """Campaigns of all ends: certified at once, or by the second attempt, with weights, stopped, and without hope."""
    folder = tmp_path_factory.mktemp("campaigns")
    rows, truth = two_sides(folder, 60)
    weights = np.random.default_rng(1).choice([0.0, 1.0], 60, p=[0.2, 0.8])
    other_class = truth.copy()
    other_class[::5] *= -1
    small = {"resident_rows": 4, "sample_share": 0.01, "sample_bytes": 600}
    return [
        played(rows, truth, **ASKED), played(rows, truth, **ASKED, most=9), played(rows, other_class, **ASKED),
        played(*two_sides(folder, 60, seed=2, weights=weights), **ASKED, intercept=False),
        played(*hidden_corner(folder), error=0.05, confidence=0.9, **small),
    ]  # fmt: skip


def test_honest_campaigns_are_true(specimens: list[Played], tmp_path: Path) -> None:
    """The judge finds nothing false in what was played, and the verifier neither."""
    for k, one in enumerate(specimens):
        assert list(lies(one.rows, one.record, one.arrays)) == []
        assert list(log_lies(one.record, one.arrays, one.lines, one.about)) == []
        assert examine(one.write(tmp_path / str(k)), one.rows.path, threads=1).ok
    ends = [(one.record["status"], one.record["evidence"] and one.record["evidence"]["attempt"]) for one in specimens]
    assert ends == [("certified", 1), ("stopped", None), ("not_separable", None), ("certified", 1), ("certified", 2)]


def test_a_few_mutated_models(specimens: list[Played], tmp_path: Path) -> None:
    """Of some mutations of records and arrays none is accepted that is false, and none crashes."""
    models_attacked(specimens, tmp_path, range(FEW), lies)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_mutated_models(specimens: list[Played], tmp_path: Path) -> None:
    """Of thousands of mutations none is accepted that is false, and none crashes; some are true, most not."""
    counts = models_attacked(specimens, tmp_path, range(MANY), lies)
    assert MANY // 100 < counts["accepted"] < MANY // 2
    assert counts["refuted"] > MANY // 100


def campaign_lies(played: Played, lines: Sequence[dict[str, Any]]) -> list[str]:
    """What is false of a campaign by these lines."""
    found = lies(played.rows, played.record, played.arrays)
    return [*found, *log_lies(played.record, played.arrays, lines, played.about)]


@pytest.mark.slow
def test_a_few_mutated_logs(specimens: list[Played], tmp_path: Path) -> None:
    """Of some mutations of logs whose chain is whole none is accepted by which the model says something false."""
    logs_attacked(specimens, tmp_path, range(2 * FEW), campaign_lies, 1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_mutated_logs(specimens: list[Played], tmp_path: Path) -> None:
    """Of thousands of mutated logs none is accepted that is false; some are true, most are not."""
    counts = logs_attacked(specimens, tmp_path, range(MANY), campaign_lies, 1)
    assert MANY // 100 < counts["accepted"] < MANY // 2
    assert counts["refuted"] > MANY // 10


def bytes_changed(specimens: list[Played], folder: Path, numbers: range) -> None:
    """Bytes of a campaign's file or of its log are others, more or fewer: refused, whatever they are."""
    guard = Guard()
    places = [one.write(folder / str(k)) for k, one in enumerate(specimens)]
    with guard.watching(), quick():
        for number in numbers:
            rng = np.random.default_rng([SEED, 2, number])
            k = number % len(specimens)
            file = places[k] / ("campaign.toml" if rng.random() < 0.4 else "answers.jsonl")
            honest = file.read_bytes()
            start = int(rng.integers(len(honest)))
            stop = start + int(rng.integers(0, 4))
            new = rng.integers(256, size=int(rng.integers(0, 4)), dtype=np.uint8).tobytes()
            if rng.random() < 0.3:
                new = honest[start:stop] * 2
            forged = honest[:start] + new + honest[stop:]
            file.write_bytes(forged)
            outcome = asked(guard, places[k], specimens[k].rows.path)
            file.write_bytes(honest)
            assert not outcome.wrong, (number, outcome)
            assert outcome.answer != "accepted" or forged == honest, (number, honest[start:stop], new)


def test_a_few_changed_bytes(specimens: list[Played], tmp_path: Path) -> None:
    """No byte of the log, or of what it begins with, can be changed, added or left out."""
    bytes_changed(specimens, tmp_path, range(2 * FEW))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_changed_bytes(specimens: list[Played], tmp_path: Path) -> None:
    """The same of thousands of places."""
    bytes_changed(specimens, tmp_path, range(MANY))
