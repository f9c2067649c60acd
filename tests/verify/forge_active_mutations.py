"""Mutations of campaigns: of their models, and of their logs, whose chain is made anew; each says what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import forge_arrays
import forge_json

if TYPE_CHECKING:
    from pathlib import Path

    from forge_active import Played


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


def log_mutated(rng: np.random.Generator, played: Played) -> str:
    """A change of the log, or of what the model says of it; the chain is made anew later. Says what was done."""
    lines, told = played.lines, []
    for _ in range(int(rng.integers(1, 4))):
        i, j = (int(k) for k in rng.integers(len(lines), size=2))
        kind = int(rng.integers(12))
        if kind == 0 and len(lines) > 1:
            told.append(f"{lines.pop(i)} gone")
        elif kind == 1:
            lines.insert(j, lines.pop(i))
            told.append(f"line {i} moved to {j}")
        elif kind == 2:
            lines.insert(j, dict(lines[i]))
            told.append(f"line {i} again at {j}")
        elif kind == 3 and lines[i]["label"] is not None:
            classes = played.record["classes"]
            lines[i]["label"] = classes[(classes.index(lines[i]["label"]) + 1) % len(classes)]
            told.append(f"line {i} turned")
        elif kind == 4:
            action = str(rng.choice(["label", "skip", "unsure", "undo", "correct"]))
            label = str(rng.choice(played.record["classes"])) if action in ("label", "correct") else None
            lines.insert(j, {**lines[i], "action": action, "label": label})
            told.append(f"{action} of line {i} at {j}")
        elif kind in (5, 6, 9):
            told.append(f"line {i} {_drawn_otherwise(rng, lines[i], kind)}")
        elif kind == 7:
            lines[i]["row"] = int(rng.integers(played.rows.X.shape[0]))
            told.append(f"line {i} of row {lines[i]['row']}")
        elif kind == 8:
            played.model_line = int(rng.integers(1, len(lines) + 1))
            told.append(f"about {played.model_line} lines")
        elif kind == 10:
            told.append(_attempts_moved(rng, played))
        else:
            told.append(_answer_moved(rng, played))
    return "; ".join(told)


def _drawn_otherwise(rng: np.random.Generator, line: dict[str, Any], kind: int) -> str:
    """A line is of another attempt, or of none, or tries another hypothesis, or none."""
    if kind == 6 or (kind == 9 and line["why"] != "draw"):
        line.update(why="query", attempt=None)
        line.pop("tried", None)
        return "a query"
    if kind == 9:
        line["tried"] = str(rng.choice(["", "5" * 64]))
        return f"tries {line['tried'][:3]!r}"
    line.update(why="draw", attempt=int(rng.integers(1, 4)))
    return f"of attempt {line['attempt']}"


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
    for name in ("answered_ids", "answered_signs", "answered_classes"):
        if name in played.arrays:
            played.arrays[name] = np.delete(played.arrays[name], k)
    played.record["answers"] -= 1
    if played.record["evidence"] and rng.random() < 0.7:
        played.record["evidence"]["population"] += 1
    if rng.random() < 0.7 and any(line["row"] != row for line in played.lines):
        played.lines[:] = [line for line in played.lines if line["row"] != row]
    return f"answer about {row} left out"
