"""Campaigns that are played here, line by line, and written as formats/ has them; and what is needed to forge them.

The engine chooses rows and solves; log, folder and record are made here, by nothing that writes them for users.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from coremargin.data.scaled import scaled, scaling_of, unscaled
from coremargin.data.store import Store
from coremargin.engine.protocols import Block
from coremargin.maths.evidence import most_wrong, share_of
from coremargin.problems.active.draws import Drawing, has_weight
from coremargin.problems.active.problem import ActiveMargin
from coremargin.problems.active.state import Draws
from forge_specimens import Rows, write_store

if TYPE_CHECKING:
    from coremargin.problems.active.state import ActiveState

CLASSES = ["no", "yes"]
OPEN = "0" * 64  # a hash that is not known yet
OWN = "own"  #: what a draw tries that tries the model's hypothesis, whatever that is changed to
LINE = {"who": "anna", "when": "2026-11-22T14:00:00Z", "scans": 0}


def drawing(digest: str, seed: int, attempt: int, rows: int) -> Iterator[int]:
    """The rows in the order in which they are drawn, as formats/draws.py says in words."""
    most, block, before = 2**64 - 2**64 % rows, 0, set[int]()
    while len(before) < rows:
        text = hashlib.sha256(" ".join(map(str, ("coremargin draws 1", digest, seed, attempt, block))).encode())
        for number in struct.unpack(">4Q", text.digest()):
            if number < most and number % rows not in before:
                before.add(number % rows)
                yield number % rows
        block += 1


class OwnDraws(Drawing):
    """Draws that are made here."""

    def _first(self, state: ActiveState, count: int) -> np.ndarray:
        known, source = set(state.known.tolist()), self.source
        order = drawing(unscaled(source).digest, self.seed, state.attempt, source.rows)
        free = np.array([row for row in order if row not in known], np.int64)
        return np.asarray(free[has_weight(source, free)])[:count]


class Asking(ActiveMargin):
    """Its draws are made here."""

    @cached_property
    def drawing(self) -> Drawing:
        """Which rows are drawn."""
        return OwnDraws(self.source, self.seed, self.trials)


def sha(data: bytes) -> str:
    """A hash as the log has it."""
    return hashlib.sha256(data).hexdigest()


@dataclass
class Played:
    """A campaign as it came out: model, log (without hashes, which ``written`` adds) and what it is about."""

    rows: Rows
    record: dict[str, Any]
    arrays: dict[str, Any]
    lines: list[dict[str, Any]]
    about: dict[str, Any]
    model_line: int = -1  #: the number of the line that the model is about; -1: the last

    def copy(self) -> Played:
        """To be changed."""
        arrays = {name: np.array(values) for name, values in self.arrays.items()}
        lines = [dict(line) for line in self.lines]
        return Played(
            self.rows, json.loads(json.dumps(self.record)), arrays, lines, dict(self.about), self.model_line
        )  # fmt: skip

    def toml(self) -> bytes:
        """The campaign's file."""
        return "".join(f"{key} = {toml_value(value)}\n" for key, value in self.about.items()).encode()

    def tried(self) -> str:
        """What the log calls the hypothesis by, as formats/draws.py says in words."""
        if "hypothesis" in self.arrays:
            w, b = self.arrays["hypothesis"][:, :-1], self.arrays["hypothesis"][:, -1]
        else:
            w, b = self.arrays["w"], self.arrays["b"]
        return sha(np.ascontiguousarray(w, "<f8").tobytes() + np.ascontiguousarray(b, "<f8").tobytes())

    def chained(self) -> list[bytes]:
        """The log's lines, with their numbers and hashes; draws try the model, or what they say: "" nothing."""
        texts, before = list[bytes](), sha(self.toml())
        for number, line in enumerate(self.lines, 1):
            tried = line.get("tried", OWN if line.get("why") == "draw" else "")
            tried = self.tried() if tried == OWN else tried
            told = {name: value for name, value in line.items() if name != "tried"} | (
                {"tried": tried} if tried else {}
            )
            text = json.dumps({"number": number, **told, "before": before}).encode()
            texts.append(text)
            before = sha(text)
        return texts

    def write_model(self, place: Path, log: str | None = None) -> Path:
        """The model by itself; log: the hash that it names, where it names one that is left open."""
        open_one = self.record["log"] == OPEN and log is not None
        place.mkdir(parents=True, exist_ok=True)
        (place / "model.json").write_text(json.dumps(self.record | ({"log": log} if open_one else {})))
        np.savez(place / "arrays.npz", **self.arrays)
        return place

    def write(self, place: Path) -> Path:
        """The campaign's folder, its chain made anew."""
        texts = self.chained()
        number = len(texts) if self.model_line < 0 else self.model_line
        self.write_model(place / "model", sha(texts[number - 1]))
        (place / "campaign.toml").write_bytes(self.toml())
        (place / "answers.jsonl").write_bytes(b"".join(text + b"\n" for text in texts))
        return place


def toml_value(value: Any) -> str:
    """On one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_value(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


@dataclass
class Player:
    """Plays a campaign to its end; truth: the sign of each row."""

    problem: ActiveMargin
    truth: np.ndarray
    lines: list[dict[str, Any]] = field(default_factory=list)

    def scan(self, state: ActiveState) -> ActiveState:
        """One scan of the store."""
        probe = self.problem.probe(state)
        return self.problem.update(
            state, probe(self.problem.source, Block(0, tuple(range(self.problem.source.chunks))))
        )

    def line(self, row: int, action: str, why: str, attempt: int | None = None) -> None:
        """One more line of the log."""
        label = CLASSES[int(self.truth[row] > 0)] if action in ("label", "correct") else None
        self.lines.append({"row": row, "label": label, "action": action, "why": why, "attempt": attempt, **LINE})

    def play(self, most: int = 10**6) -> ActiveState:
        """To the end, or so many answers."""
        state = self.problem.start()
        while state.status == "running":
            wanted = self.problem.questions(state)
            if not wanted:
                state = self.scan(state)
                continue
            row = wanted[0]
            if len(self.lines) == most:
                break
            drawn = row in state.draws.ids
            self.line(row, "label", "draw" if drawn else "query", state.attempt if drawn else None)
            state = self.problem.answered(state, {row: int(self.truth[row] > 0)})
        return state


def played(rows: Rows, truth: np.ndarray, *, most: int = 10**6, **asked: Any) -> Played:
    """A campaign about a store, with a person who knows all signs and stops after so many answers."""
    scaling = asked.pop("scaling", None)
    store = Store.open(rows.path)
    player = Player(Asking(scaled(store, scaling), **asked), truth)
    state = player.play(most)
    return made(rows, player, state, scaling)


def made(rows: Rows, player: Player, state: ActiveState, scaling: str | None = None) -> Played:
    """What a state leaves."""
    problem, store = player.problem, Store.open(rows.path)
    ended = {"certified": "certified", "contradiction": "not_separable"}.get(state.status, "stopped")
    parameters = {
        "epsilon": problem.epsilon, "intercept": problem.intercept, "method": "coreset", "error": problem.error,
        "confidence": problem.confidence, "seed": problem.seed, **({"scaling": scaling} if scaling else {}),
    }  # fmt: skip
    answered, draws = state.answered, state.draws
    evidence = None
    if ended == "certified":
        population, delta = int(state.scanned.sides.sum()), share_of(1 - problem.confidence, state.attempt)
        bound = most_wrong(population, len(draws), 0, delta)
        evidence = {
            "attempt": state.attempt, "draws": len(draws), "wrong": 0, "population": population, "error_bound": bound,
            "confidence": problem.confidence,
        }  # fmt: skip
    else:
        answered, draws = problem.end_attempt(state).answered, Draws.empty()
    core = state.answered.take(state.answered.support)
    nearest, upper = float(state.scanned.nearest[0]), float(state.upper[0])
    lower = None if ended == "not_separable" or nearest == 0 else min(float(state.lower[0]), nearest)
    record = {
        "format": "coremargin-model", "version": 1, "problem": "active", "status": ended, "parameters": parameters,
        "certificate": {
            "kind": "not_separable" if ended == "not_separable" else "margin", "lower": lower, "upper": upper,
            "ratio": None if lower is None else min(1.0, lower / upper), "epsilon": problem.epsilon,
            "coreset_rows": len(core), "store_digest": store.digest, "radius": radius(rows, problem),
        },
        "classes": CLASSES, "features": store.features, "rows": store.rows, "dtype": rows.dtype,
        "software": {"coremargin": "0"}, "evidence": evidence, "answers": len(answered) + len(draws), "log": OPEN,
    }  # fmt: skip
    about = {
        "format": "coremargin-campaign", "version": 1, "store": str(rows.path), "digest": store.digest,
        "rows": store.rows, "features": store.features, **parameters, "memory": 2**20, "block": 2**20,
        "classes": CLASSES,
    }  # fmt: skip
    arrays = {
        "w": state.hypothesis.w[0], "b": state.hypothesis.b, "alpha": core.weights[:, 0], "coreset_ids": core.ids,
        "coreset_y": core.signs(0), **rows_of(core.rows),
        "answered_ids": answered.ids, "answered_signs": answered.signs(0),
        "draws_ids": draws.ids, "draws_signs": (2 * draws.codes - 1).astype(np.int8),
    }  # fmt: skip
    fitted = scaling_of(problem.source)
    if fitted is not None and fitted.shift is not None and len(fitted.shift):
        arrays |= {"shift": fitted.shift.astype(np.float64), "factor": fitted.factor.astype(np.float64)}
    return Played(rows, record, arrays, player.lines, about)


def radius(rows: Rows, problem: ActiveMargin) -> float:
    """The longest row, rounded up."""
    return float(problem.source.scalars().max_norm.max())


def rows_of(rows: Any) -> dict[str, Any]:
    """The rows of a coreset as a model has them."""
    if not sp.issparse(rows):
        return {"coreset_x": rows}
    parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "shape": np.array(rows.shape)}
    return {f"coreset_x_{name}": values for name, values in parts.items()}


def two_sides(
    folder: Path, rows: int = 400, features: int = 3, seed: int = 0, **options: Any
) -> tuple[Rows, np.ndarray]:
    """A store without labels of rows on both sides of a plane, 0.3 away from it at least, and their signs."""
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal(features)
    normal /= np.linalg.norm(normal)
    X = rng.standard_normal((rows, features))
    truth = np.where(X @ normal >= 0, 1, -1)
    X += 0.3 * truth[:, None] * normal
    if options.get("sparse"):
        X[rng.random(X.shape) < 0.2] = 0.0
        truth = np.where(X @ normal >= 0, 1, -1)
        X[np.abs(X @ normal) < 0.1] += normal
        truth = np.where(X @ normal >= 0, 1, -1)
    labels = options.pop("labels", [None] * rows)
    return write_store(folder / f"rows-{seed}.zarr", X, labels, **options), truth


def hidden_corner(folder: Path, **options: Any) -> tuple[Rows, np.ndarray]:
    """Rows of which few lie where no hyperplane is looked for at first, with the signs that it does not foretell."""
    rng = np.random.default_rng(3)
    X = 0.3 * rng.standard_normal((300, 2))
    truth = np.where(np.arange(300) % 2 == 0, 1, -1)
    X += np.where(truth[:, None] > 0, (3.0, -1.0), (0.0, 5.0))
    corner = np.arange(7, 300, 16)
    X[corner] += np.array((-5.0, -7.0)) - X[corner]
    truth[corner] = -1
    X[corner] += 0.3 * rng.standard_normal((len(corner), 2))
    return write_store(folder / "corner.zarr", X, [None] * 300, **options), truth


Change = Callable[[Played], Any]
