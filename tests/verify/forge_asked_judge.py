"""A judge of campaigns of all sorts: fractions, counting, and other solvers, on the rows that a store was made from.

``lies(rows, record, arrays)`` says what is false of a model. Two classes are as several are: classes by their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

import forge_judge
import forge_solve
from forge_active import OWN, drawing
from forge_active_judge import chance, decision

if TYPE_CHECKING:
    from forge_specimens import Arrays, Record, Rows

_SLACK = Fraction(1, 10**9)


class Sort:
    """A model's numbers, whatever its sort."""

    def __init__(self, rows: Rows, record: Record, arrays: Arrays) -> None:
        self.rows, self.record, self.arrays, self.asked = rows, record, arrays, record["parameters"]
        self.several = record["problem"] == "active_classes"
        self.loss = self.asked.get("loss")
        ids = {name: arrays[f"{name}_ids"].tolist() for name in ("answered", "draws", "coreset")}
        self.codes = {name: dict(zip(ids[name], self._codes(name), strict=True)) for name in ids}
        self.draws, self.unsure = ids["draws"], set(arrays["unsure_ids"].tolist() if "unsure_ids" in arrays else ())
        planes = arrays["hypothesis"] if self.several else np.append(arrays["w"], arrays["b"])[None, :]
        self.planes = planes.tolist()
        self.values = [[decision(plane[:-1], plane[-1], x) for plane in self.planes] for x in rows.X.tolist()]
        weights = np.ones(len(rows.X)) if rows.weights is None else np.asarray(rows.weights)
        self.counted = [row for row in range(len(rows.X)) if weights[row] > 0 and row not in self.unsure]
        self.known = {row: code for row, code in self.codes["answered"].items() if row in set(self.counted)}
        self.free = [row for row in self.counted if row not in self.known]
        claims = record["members"] if self.several else [record["certificate"]]
        self.bounds = [(one["lower"], one["upper"]) for one in claims]

    def _codes(self, name: str) -> list[int]:
        if self.several:
            return list(map(int, self.arrays[f"{name}_classes"]))
        return [(int(sign) + 1) // 2 for sign in self.arrays["coreset_y" if name == "coreset" else f"{name}_signs"]]

    def sign(self, plane: int, code: int) -> int:
        """The side of a class."""
        return 1 if code == (plane if self.several else 1) else -1

    def side(self, row: int) -> int:
        """The class that the model gives a row, -1 for none."""
        values = self.values[row]
        if not self.several:
            return int(values[0] >= 0)
        if self.loss:
            return values.index(max(values))
        above = [k for k, value in enumerate(values) if value > 0]
        return above[0] if len(above) == 1 else -1


def lies(rows: Rows, record: Record, arrays: Arrays) -> Iterator[str]:
    """What is false of a model by itself."""
    yield from forge_judge.facts(rows, record, arrays["coreset_ids"], rows.X)
    sort = Sort(rows, record, arrays)
    yield from _coreset(sort)
    for k in range(len(sort.planes)):
        yield from _value(sort, k) if sort.loss else _margin(sort, k)
    claims, evidence = record["certificate"], record["evidence"]
    if (claims["lower"], claims["upper"]) not in sort.bounds:
        yield f"a certificate of {claims['lower']}, {claims['upper']}, of no class"
    if record["status"] == "certified" or evidence is not None:
        for lower, upper in sort.bounds:
            if lower is None or lower <= 0 or Fraction(lower) < (1 - Fraction(claims["epsilon"])) * Fraction(upper):
                yield f"certified, or evidence, with bounds {lower}, {upper}"
        if sort.free and not sort.loss and any(sort.side(row) < 0 for row in sort.free):
            yield "rows that no class claims, or two"
    if evidence is not None:
        yield from _evidence(sort, evidence)
    elif record["status"] == "certified" and sort.free:
        yield "certified without evidence"


def _coreset(sort: Sort) -> Iterator[str]:
    ids, rows = sort.arrays["coreset_ids"].tolist(), sort.rows
    if len(set(ids)) < len(ids) or any(sort.known.get(row) != code for row, code in sort.codes["coreset"].items()):
        yield f"coreset {ids} is not answered so"
    elif not np.array_equal(rows.X[ids], sort.arrays["coreset_x"]):
        yield "coreset's rows are others"


def _margin(sort: Sort, k: int) -> Iterator[str]:
    lower, upper = sort.bounds[k]
    size = sum(Fraction(one) ** 2 for one in sort.planes[k][:-1])
    for row in sort.counted if lower is not None else ():
        value = sort.values[row][k]
        value = sort.sign(k, sort.known[row]) * value if row in sort.known else abs(value)
        bound = Fraction(lower)
        if not (value >= 0 and value**2 >= bound**2 * size * (1 - _SLACK) if lower > 0 else value >= bound * 2):
            yield f"lower {lower} of class {k}, row {row} has {float(value)}"
            return
    best, (X, side) = 0.0, answered(sort, k)
    if len(X) and (not sort.asked["intercept"] or len(set(side.tolist())) == 2):
        w, b = forge_solve.widest(X, side, intercept=sort.asked["intercept"])
        best = float((side * (X @ w + b)).min() / (np.linalg.norm(w) or 1.0))
    claims = sort.record["certificate"]
    if upper is not None and best > upper * (1 + 1e-6) + 1e-12 * claims["radius"]:
        yield f"upper {upper} of class {k}, the answers allow {best}"
    if sort.record["status"] == "not_separable" and not sort.several and best > 1e-9 * claims["radius"]:
        yield f"not separable, the answers allow {best}"


def answered(sort: Sort, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that count and are answered, and their sides of a hyperplane."""
    side = np.array([sort.sign(k, code) for code in sort.known.values()])
    return sort.rows.X[list(sort.known)], side


def _value(sort: Sort, k: int) -> Iterator[str]:
    (lower, upper), cost, squared = sort.bounds[k], Fraction(sort.asked["C"]), sort.loss == "squared_hinge"
    slacks = [max(0, 1 - sort.sign(k, code) * sort.values[row][k]) for row, code in sort.known.items()]
    size = sum(Fraction(one) ** 2 for one in sort.planes[k][:-1])
    value = size / 2 + cost * sum(slack**2 if squared else slack for slack in slacks)
    if upper is not None and Fraction(upper) < value * (1 - _SLACK):
        yield f"value {upper} of class {k}, it is {float(value)}"
    if lower is None:
        return
    X, side = answered(sort, k)
    prices = np.full(len(X), float(cost))
    for w, b in forge_solve.cheapest(X, side, prices, intercept=sort.asked["intercept"], squared=squared):
        slack = np.maximum(0, 1 - side * (X @ w + b))
        reached = 0.5 * float(w @ w) + float(cost) * float((slack**2 if squared else slack).sum())
        if lower > reached * (1 + 1e-9):
            yield f"no value below {lower} of class {k}, one is {reached}"


def _evidence(sort: Sort, evidence: dict[str, Any]) -> Iterator[str]:
    asked, sides = sort.asked, {row: sort.side(row) for row in sort.free}
    if evidence["confidence"] != asked["confidence"]:
        yield f"confidence {evidence['confidence']}"
    parts = evidence.get("strata", [evidence])
    share = (1 - Fraction(asked["confidence"])) / (evidence["attempt"] * (evidence["attempt"] + 1)) / len(parts)
    share = share / 2 if sort.loss else share
    taken, free = [0] * len(parts), set(sort.free)
    wanted, waiting = [part["draws"] for part in parts], list(sort.draws)
    for row in drawing(
        sort.record["certificate"]["store_digest"], asked["seed"], evidence["attempt"], len(sort.values)
    ):
        k = sides.get(row, 0) if "strata" in evidence else 0
        if row not in free or taken[k] == wanted[k]:
            continue
        if not waiting or (waiting[0] != row and wanted[k] != sum(one == k for one in sides.values())):
            yield f"draws {sort.draws[:5]}..., row {row} is drawn"
            return
        taken[k] += 1
        waiting.remove(row)
    if waiting:
        yield f"draws {waiting[:5]} are none"
    for k, part in enumerate(parts):
        yield from _part(sort, part, [row for row in sort.free if "strata" not in evidence or sides[row] == k], share)


def _part(sort: Sort, part: dict[str, Any], rows: list[int], share: Fraction) -> Iterator[str]:
    mine = set(rows)
    draws = [row for row in sort.draws if row in mine]
    wrong = sum(sort.side(row) != sort.codes["draws"][row] for row in draws)
    if (part["population"], part["draws"], part["wrong"]) != (len(rows), len(draws), wrong):
        yield f"{part}, {len(rows)} rows, {len(draws)} drawn, {wrong} wrong"
        return
    if wrong and not sort.loss:
        yield f"{wrong} draws are wrong"
    n, t, most, least = len(rows), len(draws), part["error_bound"], part.get("error_least", 0)
    if sort.loss and t != min(sort.asked["trial"], n):
        yield f"{t} draws of {n} rows"
    if most < n - (t - wrong) and chance(n, most + 1, t, wrong) > share:
        yield f"at most {most} of {n} wrong by {t} draws, {wrong} of them wrong"
    if least > wrong and 1 - chance(n, least - 1, t, wrong - 1) > share:
        yield f"at least {least} of {n} wrong by {t} draws, {wrong} of them wrong"
    if sort.record["status"] == "certified" and most > sort.asked["error"] * n:
        yield f"certified, and {most} of {n} can be wrong"


def log_lies(sort: Sort, lines: Sequence[dict[str, Any]], about: dict[str, Any]) -> Iterator[str]:
    """What is false of a model by the lines that it is about."""
    for name in ("seed", "epsilon", "error", "confidence", "intercept", "by_class", "loss", "C", "trial"):
        if about.get(name) != sort.asked.get(name):
            yield f"{name} {sort.asked.get(name)}, the campaign has {about.get(name)}"
    labels, unsure, last = dict[int, Any](), set[int](), dict[int, int]()
    for k, line in enumerate(lines):
        if line["action"] in ("label", "correct", "undo"):
            last[line["row"]] = k
            labels[line["row"]] = line["label"]
        if line["action"] == "label":
            unsure.discard(line["row"])
        elif line["action"] in ("unsure", "undo") and labels.get(line["row"]) is None:
            unsure.add(line["row"])
    logged = {row: sort.record["classes"].index(label) for row, label in labels.items() if label is not None}
    used = sort.codes["answered"] | sort.codes["draws"]
    if used != logged:
        yield f"answers {sorted(set(used.items()) ^ set(logged.items()))[:4]} are not in both"
    if unsure != sort.unsure:
        yield f"unsure {sorted(unsure ^ sort.unsure)[:4]} are not in both"
    if sort.draws and not set(sort.draws) - set(last):
        yield from _attempts(sort, lines, last)


def _attempts(sort: Sort, lines: Sequence[dict[str, Any]], last: dict[int, int]) -> Iterator[str]:
    """last: the line that decides about a row."""
    mine, draws = sort.record["evidence"]["attempt"], set(sort.draws)
    first = min([*(last[row] for row in draws), *(k for k, line in enumerate(lines) if line["attempt"] == mine)])
    if any(k > first for row, k in last.items() if row not in draws):
        yield f"line {first + 1} is about a draw, others were answered after it"
    attempts = {lines[last[row]]["attempt"] for row in draws}
    earlier = {line["attempt"] for line in lines[:first] if line["action"] in ("label", "correct", "undo")}
    if attempts != {mine} or attempts & earlier:
        yield f"draws of attempts {attempts}, before them {earlier}"
    if (tried := {line.get("tried", OWN) for line in lines if line["attempt"] == mine}) != {OWN}:
        yield f"draws try {tried}, and not the model"
    yield from _set_aside(sort, lines, first)


def _set_aside(sort: Sort, lines: Sequence[dict[str, Any]], first: int) -> Iterator[str]:
    """Rows that are set aside from a line on are draws: each lies before the last draw of its stratum."""
    mine, aside, labelled, said = sort.record["evidence"]["attempt"], set[int](), set[int](), dict[int, Any]()
    for k, line in enumerate(lines):
        row = line["row"]
        if line["action"] in ("label", "correct"):
            labelled.add(row)
            aside.discard(row)
        elif line["action"] in ("undo", "unsure") and (line["action"] == "undo" or row not in labelled | aside):
            labelled.discard(row)
            aside.add(row)
            said |= {row: line["attempt"]} if k >= first else {}
    digest, seed = sort.record["certificate"]["store_digest"], sort.asked["seed"]
    order = {row: k for k, row in enumerate(drawing(digest, seed, mine, sort.record["rows"]))}
    strata = {row: sort.side(row) if sort.asked.get("by_class") else 0 for row in [*sort.free, *said]}
    for row, attempt in said.items():
        others = [one for one in sort.free if strata[one] == strata[row]]
        drawn = [order[one] for one in others if one in sort.draws]
        if attempt != mine or (strata[row] >= 0 and len(drawn) < len(others) and order[row] > max(drawn, default=-1)):
            yield f"row {row} is set aside, and was no draw"
