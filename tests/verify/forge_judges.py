"""The judges of several classes at once and of fleets, and one door to all of them: ``judge_of(specimen)``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

import forge_solve
from forge_ball import BallJudge, KernelBallJudge, SoftBallJudge
from forge_ellipsoid import EllipsoidJudge, SoftEllipsoidJudge
from forge_judge import (
    Judge,
    coreset_x,
    counts_asked,
    facts,
    fold,
    margin_status,
    same,
    scaled,
    scaling_lies,
    value_status,
)

if TYPE_CHECKING:
    from forge_specimens import Arrays, Record, Rows, Specimen

_NEAR = (
    1e-12  # decision values that are nearer to each other than that, relatively, may count either way, in a few rows
)


class Folder(Protocol):
    """A model as it lies in a folder, read without coremargin: the record, and arrays by folder below."""

    path: Path
    record: Record

    def arrays(self, below: str = "") -> Arrays:
        """The content of an ``arrays.npz``."""

    def member(self, name: str) -> Record:
        """The record of a fleet's member."""


class SeveralJudge:
    """Of models of several classes at once; ``planes``: weights (K, d) and offsets (K,) that are about the best."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.planes: list[tuple[np.ndarray, np.ndarray]] = []

    def learn(self, record: Record, arrays: Arrays) -> None:
        """Look for the best hypotheses of the problem of an honest model, with intercepts and without."""
        X, y = scaled(self.rows, record, arrays), self._codes(record)
        kept, classes = y >= 0, len(record["classes"])
        for constant in (self._constant(X), 0.0):
            if "loss" in record["parameters"]:
                V = forge_solve.cheapest_of_classes(X[kept], y[kept], self._prices(record, y)[kept], constant)
            else:
                V = forge_solve.widest_of_classes(X[kept], y[kept], classes, constant)
            self.planes.append((V[:, :-1], constant * V[:, -1]))
        V = np.array(arrays["hypothesis"])
        self.planes.append((V[:, :-1], record["constant"] * V[:, -1]))
        if "outliers" in record["parameters"]:
            self.planes += self._trimmed(X[kept], y[kept], classes)

    def _trimmed(self, X: np.ndarray, y: np.ndarray, classes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The best hypotheses without one to five of the rows that a soft margin puts deepest on the wrong side."""
        for constant in (self._constant(X), 0.0):
            soft = forge_solve.cheapest_of_classes(X, y, np.ones(len(X)), constant)
            order = np.argsort(self._leads(soft, X, y, constant))
            for most in range(1, 6):
                mine = np.sort(order[most:])
                V = forge_solve.widest_of_classes(X[mine], y[mine], classes, constant)
                yield V[:, :-1], constant * V[:, -1]

    def _constant(self, X: np.ndarray) -> float:
        longest = float(np.linalg.norm(X, axis=1).max())
        return 2.0 ** math.ceil(math.log2(longest)) if longest > 0 else 1.0

    def _codes(self, record: Record) -> np.ndarray:
        labels = record["classes"]
        if len(labels) != len(self.rows.classes):
            raise ValueError("classes")
        places = [next((k for k, one in enumerate(labels) if same(one, label)), -1) for label in self.rows.labels]
        return np.where(self.rows.weighed > 0, places, -1)

    def _prices(self, record: Record, y: np.ndarray) -> np.ndarray:
        asked, weighed, classes = record["parameters"], np.where(y >= 0, self.rows.weighed, 0.0), len(record["classes"])
        if asked["class_weight"] is None:
            return np.asarray(asked["C"] * weighed)
        sums = np.array([weighed[y == k].sum() for k in range(classes)])
        return np.asarray(asked["C"] * weighed * (weighed.sum() / (classes * sums))[y])

    def lies(self, record: Record, arrays: Arrays) -> list[str]:
        """What is false."""
        X, y, asked = scaled(self.rows, record, arrays), self._codes(record), record["parameters"]
        found = [*facts(self.rows, record, arrays["coreset_ids"], X), *scaling_lies(self.rows, record, arrays)]
        constant = record["constant"]
        power = 2.0 ** round(math.log2(constant)) if 0 < constant < math.inf else -1.0
        longest = float(np.linalg.norm(X, axis=1).max())
        if not (constant == power >= longest * (1 - 1e-9) if asked["intercept"] else constant == 0):
            found.append(f"constant {constant} with intercept {asked['intercept']}, rows up to {longest}")
        found += self._coreset(record, arrays, X, y)
        known = [(W, b) for W, b in self.planes if constant or not b.any()]
        lifted = [np.column_stack([W, b / constant if constant else b]) for W, b in known]
        V = arrays["hypothesis"]
        if "loss" in asked:
            price = self._prices(record, y)
            best = min(self._value(V, X, y, price, constant) for V in lifted)
            return [*found, *value_status(record, self._value(V, X, y, price, constant), best)]
        tiny = 1e-12 * (float(np.linalg.norm(X, axis=1).max()) + constant)
        best = max((self._margin(V, X, y, constant, self._most(asked)) for V in lifted if V.any()), default=-np.inf)
        ids = arrays.get("outliers_ids", np.zeros(0, np.int64))
        if len(set(ids.tolist())) < len(ids) or len(ids) > self._most(asked) or not (y[ids] >= 0).all():
            return [*found, f"rows {ids} are left out, of at most {self._most(asked)} that count"]
        y[ids] = -1
        if record["certificate"]["lower"] is not None:
            lowest = self._margin(V, X, y, constant)
            if abs(np.linalg.norm(V) - 1) > 1e-8 or record["certificate"]["lower"] > lowest + 1e-9 * abs(lowest) + tiny:
                found.append(f"lower {record['certificate']['lower']}, a row has {lowest}, |V| = {np.linalg.norm(V)}")
        return [*found, *margin_status(record, best, tiny)]

    def _most(self, asked: Record) -> int:
        """How many rows may be left out."""
        return counts_asked(asked["outliers"])[0] if "outliers" in asked else 0

    def _leads(self, V: np.ndarray, X: np.ndarray, y: np.ndarray, constant: float) -> np.ndarray:
        """How far the class of each row that counts is ahead of the best of the others."""
        kept = y >= 0
        scores, own = (X @ V[:, :-1].T + constant * V[:, -1])[kept], y[kept]
        mine = scores[np.arange(len(own)), own]
        scores[np.arange(len(own)), own] = -np.inf
        return np.asarray(mine - scores.max(axis=1))

    def _margin(self, V: np.ndarray, X: np.ndarray, y: np.ndarray, constant: float, most: int = 0) -> float:
        """The margin of all rows but the ``most`` with the lowest."""
        return float(np.sort(self._leads(V, X, y, constant))[most]) / float(np.linalg.norm(V) or 1.0)

    def _value(self, V: np.ndarray, X: np.ndarray, y: np.ndarray, price: np.ndarray, constant: float) -> float:
        loss = np.maximum(0.0, 1 - self._leads(V, X, y, constant))
        return 0.5 * float((V**2).sum()) + float(price[y >= 0] @ loss)

    def _coreset(self, record: Record, arrays: Arrays, X: np.ndarray, y: np.ndarray) -> Iterator[str]:
        ids, codes = arrays["coreset_ids"], arrays["coreset_classes"]
        if len(set(ids.tolist())) < len(ids) or not ((ids >= 0) & (ids < len(X))).all():
            yield f"coreset rows {ids}"
        elif not (y[ids] == codes).all():
            yield f"classes {codes} of rows {ids}, they are {y[ids]}"
        elif "loss" not in record["parameters"] and not np.array_equal(coreset_x(arrays), X[ids]):
            yield "the coreset's rows are not the store's"


class FleetJudge:
    """Of fleets: every member by its own judge, and what they decide together."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.judge = rows, Judge(rows)

    def learn(self, specimen: Specimen) -> None:
        """Look for the best hypotheses of every member."""
        for entry in specimen.record["members"]:
            below = f"members/{entry['name']}"
            self.judge.learn(json.loads(specimen.files[f"{below}/model.json"]), specimen.arrays(below))

    def lies(self, folder: Folder) -> list[str]:
        """What is false of a fleet."""
        record, found = folder.record, []
        members = [
            (entry, folder.member(entry["name"]), folder.arrays(f"members/{entry['name']}"))
            for entry in record["members"]
        ]
        for entry, own, arrays in members:
            found += [f"{entry['name']}: {text}" for text in self.judge.lies(own, arrays)]
            found += [f"{entry['name']}: {text}" for text in _entry_lies(record, entry, own)]
        found += self._table(record)
        words = [entry["status"] for entry in record["members"]]
        if record["status"] != next((word for word in ("stopped", "not_separable") if word in words), "certified"):
            found.append(f"status {record['status']!r} of {words}")
        return [*found, *self._decisions(record, members), *_choice_lies(record)]

    def _table(self, record: Record) -> Iterator[str]:
        asked, labels = record["parameters"], record["classes"]
        store = self.rows
        told = (record["rows"], record["features"], record["dtype"], record["store_digest"])
        if told != (len(store.X), store.X.shape[1], store.dtype, store.digest):
            yield f"store {told}"
        sides = labels if len(labels) > 2 else [None]
        costs = asked.get("C", [None])
        folds = [None, *range(asked["folds"] or 0)]
        wanted = {(side, cost, held) for side in sides for cost in costs for held in folds}
        found = [(entry["class"], entry["C"], entry["fold"]) for entry in record["members"]]
        if set(found) != wanted or len(found) != len(wanted):
            yield f"members {found}, asked for {wanted}"

    def _decisions(self, record: Record, members: list[tuple[Record, Record, Arrays]]) -> Iterator[str]:
        """Whether the confusion matrices are those of what ``predict`` decides: by the order of the members."""
        labels, told = record["classes"], {(entry["fold"], entry["C"]): entry for entry in record["evaluations"] or ()}
        truth = [next((k for k, one in enumerate(labels) if same(one, label)), -1) for label in self.rows.labels]
        counted = np.where(self.rows.weighed > 0, truth, -1)
        for (held, cost), entry in told.items():
            mine = [(own, arrays) for line, own, arrays in members if (line["fold"], line["C"]) == (held, cost)]
            rows = np.flatnonzero(counted >= 0)
            if held is not None:
                asked = record["parameters"]
                rows = rows[[fold(int(row), asked["folds"], asked["fold_seed"]) == held for row in rows]]
            values = np.stack(
                [scaled(self.rows, own, arrays)[rows] @ arrays["w"] + arrays["b"][0] for own, arrays in mine], axis=1
            )
            if values.shape[1] == 1:
                values = np.column_stack([0 * values, values])
            given, ordered = values.argmax(axis=1), np.sort(values, axis=1)  # the first of equals, as everybody does
            gaps, sizes = ordered[:, -1] - ordered[:, -2], np.abs(values).max(axis=1)
            unclear = int(((gaps > 0) & (gaps <= _NEAR * sizes)).sum())
            matrix = np.zeros((len(labels), len(labels)), dtype=int)
            np.add.at(matrix, (counted[rows], given), 1)
            claimed = np.array(entry["confusion"])
            if np.abs(claimed - matrix).sum() > 2 * min(unclear, 1 + len(rows) // 20) or entry["rows"] != len(rows):
                yield f"C {cost}, fold {held}: confusion {claimed.tolist()}, it is {matrix.tolist()}"
            if abs(entry["accuracy"] - np.trace(claimed) / len(rows)) > 1e-12:
                yield f"C {cost}, fold {held}: accuracy {entry['accuracy']} of {claimed.tolist()}"


def _entry_lies(record: Record, entry: Record, own: Record) -> Iterator[str]:
    """Whether the fleet's line about a member says what the member says, and the member what the fleet asked for."""
    claims, asked, view = own["certificate"], own["parameters"], own.get("view", {})
    told = {"class": view.get("class"), "fold": view.get("fold"), "status": own["status"]}
    told |= {key: claims[key] for key in ("lower", "upper", "ratio", "coreset_rows")}
    yield from (
        f"{key} {entry[key]!r}, of its own {value!r}" for key, value in told.items() if not same(entry[key], value)
    )
    if entry["C"] != asked.get("C"):
        yield f"C {entry['C']!r}, of its own {asked.get('C')!r}"
    for key in ("epsilon", "intercept", "loss", "class_weight", "scaling"):
        if asked.get(key) != record["parameters"].get(key):
            yield f"{key} {asked.get(key)!r}, of the fleet {record['parameters'].get(key)!r}"
    if own["problem"] != record["problem"]:
        yield f"problem {own['problem']!r}"
    if view.get("fold") is not None and (view["folds"], view["fold_seed"]) != (
        record["parameters"]["folds"], record["parameters"]["fold_seed"],
    ):  # fmt: skip
        yield f"view {view}"


def _choice_lies(record: Record) -> Iterator[str]:
    """Whether validation and choice follow from the evaluations."""
    costs = list(dict.fromkeys(entry["C"] for entry in record["members"]))
    table, evaluations = record["validation"], record["evaluations"] or ()
    held = [entry for entry in evaluations if entry["fold"] is not None]
    if (table is None) != (not held):
        yield f"validation {table}"
        return
    for line in table or ():
        values = [entry["accuracy"] for entry in sorted(held, key=lambda e: e["fold"]) if entry["C"] == line["C"]]
        if (
            line["accuracies"] != values
            or abs(line["mean"] - np.mean(values)) > 1e-12
            or abs(line["std"] - np.std(values)) > 1e-9
        ):
            yield f"validation {line}, found {values}"
    expected: Any = None
    if len(costs) == 1:
        expected = {"C": costs[0], "by": "only"}
    elif table:
        most = max(line["mean"] for line in table)
        expected = {"C": min(line["C"] for line in table if line["mean"] == most), "by": "validation"}
    if record["chosen"] != expected:
        yield f"chosen {record['chosen']}, expected {expected}"


class Bench:
    """The judge for one specimen, who has seen the honest model."""

    def __init__(self, specimen: Specimen) -> None:
        problem = "" if specimen.fleet else specimen.record["problem"]
        judges = {
            "crammer_singer": SeveralJudge,
            "ball": BallJudge,
            "soft_ball": SoftBallJudge,
            "kernel_ball": KernelBallJudge,
            "ellipsoid": EllipsoidJudge,
            "soft_ellipsoid": SoftEllipsoidJudge,
        }
        self.fleet = FleetJudge(specimen.rows) if specimen.fleet else None
        self.single: Any = judges.get(problem, Judge)(specimen.rows)
        if self.fleet:
            self.fleet.learn(specimen)
        else:
            self.single.learn(specimen.record, specimen.arrays())

    def lies(self, folder: Folder) -> list[str]:
        """What is false of a model in a folder."""
        with np.errstate(all="ignore"):  # what overflows is held against the claim where it is compared
            return self.fleet.lies(folder) if self.fleet else self.single.lies(folder.record, folder.arrays())
