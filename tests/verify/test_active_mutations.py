"""Campaigns mutated at random: what is false by a judge of our own is refused, and nothing crashes, hangs or grows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forge_arrays
import forge_json
from coremargin.errors import CoremarginError
from coremargin.verify.examine import examine
from forge_active import CLASSES, Played, hidden_corner, played, two_sides
from forge_active_judge import lies, log_lies
from forge_run import SEED, Guard, asked, loaded, quick

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


def model_mutated(rng: np.random.Generator, specimen: Played, other: Played, place: Path) -> str:
    """A model of which the record, the arrays or both are others; says what was done."""
    specimen.write_model(place)
    told = ""
    if rng.random() < 0.6:
        told, text = forge_json.mutated(rng, (place / "model.json").read_bytes())
        (place / "model.json").write_bytes(text)
    if not told or rng.random() < 0.1:
        what, packed = forge_arrays.mutated(rng, specimen.arrays, other.arrays)
        (place / "arrays.npz").write_bytes(packed)
        told += what
    return told


def test_honest_campaigns_are_true(specimens: list[Played], tmp_path: Path) -> None:
    """The judge finds nothing false in what was played, and the verifier neither."""
    for k, one in enumerate(specimens):
        assert list(lies(one.rows, one.record, one.arrays)) == []
        assert list(log_lies(one.record, one.arrays, one.lines, one.about)) == []
        assert examine(one.write(tmp_path / str(k)), one.rows.path, threads=1).ok
    ends = [(one.record["status"], one.record["evidence"] and one.record["evidence"]["attempt"]) for one in specimens]
    assert ends == [("certified", 1), ("stopped", None), ("not_separable", None), ("certified", 1), ("certified", 2)]


def attacked(specimens: list[Played], folder: Path, numbers: range) -> Counter[str]:
    """What became of mutated models; nothing false was accepted."""
    counts: Counter[str] = Counter()
    guard = Guard()
    with guard.watching(), quick():
        for number in numbers:
            rng = np.random.default_rng([SEED, number])
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


def test_a_few_mutated_models(specimens: list[Played], tmp_path: Path) -> None:
    """Of some mutations of records and arrays none is accepted that is false, and none crashes."""
    attacked(specimens, tmp_path, range(FEW))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_mutated_models(specimens: list[Played], tmp_path: Path) -> None:
    """Of thousands of mutations none is accepted that is false, and none crashes; some are true, most not."""
    counts = attacked(specimens, tmp_path, range(MANY))
    assert MANY // 100 < counts["accepted"] < MANY // 2
    assert counts["refuted"] > MANY // 100


def log_mutated(rng: np.random.Generator, played: Played) -> str:
    """A change of the log, or of what the model says of it; the chain is made anew later. Says what was done."""
    lines, told = played.lines, []
    for _ in range(int(rng.integers(1, 4))):
        i, j = (int(k) for k in rng.integers(len(lines), size=2))
        kind = int(rng.integers(11))
        if kind == 0 and len(lines) > 1:
            told.append(f"{lines.pop(i)} gone")
        elif kind == 1:
            lines.insert(j, lines.pop(i))
            told.append(f"line {i} moved to {j}")
        elif kind == 2:
            lines.insert(j, dict(lines[i]))
            told.append(f"line {i} again at {j}")
        elif kind == 3 and lines[i]["label"] is not None:
            lines[i]["label"] = CLASSES[lines[i]["label"] == CLASSES[0]]
            told.append(f"line {i} turned")
        elif kind == 4:
            action = str(rng.choice(["label", "skip", "unsure", "undo", "correct"]))
            label = str(rng.choice(CLASSES)) if action in ("label", "correct") else None
            lines.insert(j, {**lines[i], "action": action, "label": label})
            told.append(f"{action} of line {i} at {j}")
        elif kind == 5:
            attempt = int(rng.integers(1, 4))
            lines[i].update(why="draw", attempt=attempt)
            told.append(f"line {i} of attempt {attempt}")
        elif kind == 6:
            lines[i].update(why="query", attempt=None)
            told.append(f"line {i} a query")
        elif kind == 7:
            lines[i]["row"] = int(rng.integers(played.rows.X.shape[0]))
            told.append(f"line {i} of row {lines[i]['row']}")
        elif kind == 8:
            played.model_line = int(rng.integers(1, len(lines) + 1))
            told.append(f"about {played.model_line} lines")
        elif kind == 9:
            told.append(_attempts_moved(rng, played))
        else:
            told.append(_answer_moved(rng, played))
    return "; ".join(told)


def _attempts_moved(rng: np.random.Generator, played: Played) -> str:
    """All draws of an attempt are of another, in the log and in the model."""
    old, new = (int(k) for k in rng.integers(1, 4, size=2))
    for line in played.lines:
        if line["attempt"] == old:
            line["attempt"] = new
    if played.record["evidence"] and played.record["evidence"]["attempt"] == old:
        played.record["evidence"]["attempt"] = new
    return f"attempt {old} is {new}"


def _answer_moved(rng: np.random.Generator, played: Played) -> str:
    """An answer of the model is left out, with its lines in the log or without."""
    k = int(rng.integers(len(played.arrays["answered_ids"])))
    row = int(played.arrays["answered_ids"][k])
    for name in ("answered_ids", "answered_signs"):
        played.arrays[name] = np.delete(played.arrays[name], k)
    played.record["answers"] -= 1
    if played.record["evidence"] and rng.random() < 0.7:
        played.record["evidence"]["population"] += 1
    if rng.random() < 0.7 and any(line["row"] != row for line in played.lines):
        played.lines[:] = [line for line in played.lines if line["row"] != row]
    return f"answer about {row} left out"


def played_on(specimens: list[Played], folder: Path, numbers: range) -> Counter[str]:
    """What became of campaigns with mutated logs; nothing false was accepted."""
    counts: Counter[str] = Counter()
    for number in numbers:
        rng = np.random.default_rng([SEED, 1, number])
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
        wrong: list[Any] = []
        if found.ok:
            wrong = [*lies(forged.rows, forged.record, forged.arrays)]
            wrong += log_lies(forged.record, forged.arrays, forged.lines[:last], forged.about)
        assert wrong == [], (number, told)
    return counts


def test_a_few_mutated_logs(specimens: list[Played], tmp_path: Path) -> None:
    """Of some mutations of logs whose chain is whole none is accepted by which the model says something false."""
    played_on(specimens, tmp_path, range(2 * FEW))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_mutated_logs(specimens: list[Played], tmp_path: Path) -> None:
    """Of thousands of mutated logs none is accepted that is false; some are true, most are not."""
    counts = played_on(specimens, tmp_path, range(MANY))
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
