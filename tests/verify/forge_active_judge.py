"""A judge of campaigns: fractions and counting on the rows that a store was made from, nothing of coremargin.

``lies(rows, record, arrays)`` says what is false of a model, ``log_lies(record, arrays, lines, about)`` what is false
of it by a log whose chain is whole. Rows are as they are stored: campaigns whose rows are scaled have no judge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

import forge_judge
import forge_solve
from forge_active import OWN, drawing

if TYPE_CHECKING:
    from forge_specimens import Arrays, Record, Rows

_SLACK = Fraction(1, 10**11)


def decision(w: Sequence[float], b: float, x: Sequence[float]) -> Fraction:
    """w.x + b, exactly."""
    return Fraction(b) + sum(Fraction(one) * Fraction(other) for one, other in zip(w, x, strict=True))


def chance(rows: int, bad: int, draws: int, wrong: int) -> Fraction:
    """Of at most so many bad rows among the draws, by counting all ways to draw."""
    ways = sum(math.comb(bad, k) * math.comb(rows - bad, draws - k) for k in range(wrong + 1))
    return Fraction(ways, math.comb(rows, draws))


def lies(rows: Rows, record: Record, arrays: Arrays) -> Iterator[str]:
    """What is false of a model by itself."""
    yield from forge_judge.facts(rows, record, arrays["coreset_ids"], rows.X)
    claims, evidence = record["certificate"], record["evidence"]
    weighed = np.ones(len(rows.X), bool) if rows.weights is None else np.asarray(rows.weights) > 0
    known = dict(zip(arrays["answered_ids"].tolist(), arrays["answered_signs"].tolist(), strict=True))
    w, b = arrays["w"].tolist(), float(arrays["b"][0])
    values = [decision(w, b, x) for x in rows.X.tolist()]
    if claims["lower"] is not None:
        yield from _lower(values, known, weighed, Fraction(claims["lower"]), w)
    yield from _coreset(rows, arrays, {row: sign for row, sign in known.items() if weighed[row]})
    yield from _upper(rows, record, {row: sign for row, sign in known.items() if weighed[row]})
    population = [row for row in np.flatnonzero(weighed).tolist() if row not in known]
    if evidence is not None:
        yield from _evidence(record, arrays, population, values)
    if record["status"] == "certified":
        lower, upper = claims["lower"], claims["upper"]
        if not Fraction(lower) >= (1 - Fraction(claims["epsilon"])) * Fraction(upper) or lower <= 0:
            yield f"certified with bounds {lower}, {upper}"
        if population and (
            evidence is None or evidence["error_bound"] > record["parameters"]["error"] * len(population)
        ):
            yield f"certified with evidence {evidence}"


def _lower(
    values: list[Fraction], known: dict[int, int], weighed: np.ndarray, lower: Fraction, w: list[float]
) -> Iterator[str]:
    size = sum(Fraction(one) ** 2 for one in w)
    for row in np.flatnonzero(weighed).tolist():
        value = known[row] * values[row] if row in known else abs(values[row])
        enough = value >= 0 and value**2 >= lower**2 * size * (1 - _SLACK) if lower > 0 else value >= lower * 2
        if not enough:
            yield f"lower {float(lower)}, row {row} has {float(value)}"
            return


def _coreset(rows: Rows, arrays: Arrays, known: dict[int, int]) -> Iterator[str]:
    ids, signs = arrays["coreset_ids"].tolist(), arrays["coreset_y"].tolist()
    if len(set(ids)) < len(ids) or any(known.get(row) != sign for row, sign in zip(ids, signs, strict=True)):
        yield f"coreset {ids} with {signs} is not answered so"
    elif not np.array_equal(rows.X[ids], arrays["coreset_x"]):
        yield "coreset's rows are others"


def _upper(rows: Rows, record: Record, known: dict[int, int]) -> Iterator[str]:
    claims, intercept = record["certificate"], record["parameters"]["intercept"]
    ids, signs = list(known), np.array(list(known.values()))
    best = 0.0
    if ids and (not intercept or len(set(signs.tolist())) == 2):
        v, c = forge_solve.widest(rows.X[ids], signs, intercept=intercept)
        best = float((signs * (rows.X[ids] @ v + c)).min() / (np.linalg.norm(v) or 1.0))
    if claims["upper"] is not None and best > claims["upper"] * (1 + 1e-6) + 1e-12 * claims["radius"]:
        yield f"upper {claims['upper']}, the answers allow {best}"
    if record["status"] == "not_separable" and best > 1e-9 * claims["radius"]:
        yield f"not separable, the answers allow {best}"


def _evidence(record: Record, arrays: Arrays, population: list[int], values: list[Fraction]) -> Iterator[str]:
    evidence, asked, claims = record["evidence"], record["parameters"], record["certificate"]
    bounds = [-1.0 if claims[name] is None else claims[name] for name in ("lower", "upper")]
    if min(bounds) <= 0 or Fraction(bounds[0]) < (1 - Fraction(claims["epsilon"])) * Fraction(bounds[1]):
        yield f"evidence, and lower and upper {bounds} do not prove epsilon {claims['epsilon']}"
    if evidence["population"] != len(population) or evidence["confidence"] != asked["confidence"]:
        yield f"population {evidence['population']} of {len(population)}, confidence {evidence['confidence']}"
    some = set(population)
    order = [
        row
        for row in drawing(record["certificate"]["store_digest"], asked["seed"], evidence["attempt"], len(values))
        if row in some
    ]
    draws, signs = arrays["draws_ids"].tolist(), arrays["draws_signs"].tolist()
    if draws != order[: len(draws)] or len(draws) != evidence["draws"]:
        yield f"draws {draws[:5]}..., {order[:5]}... are drawn"
    wrong = sum((values[row] >= 0) != (sign > 0) for row, sign in zip(draws, signs, strict=True))
    if wrong != evidence["wrong"]:
        yield f"{evidence['wrong']} wrong draws, there are {wrong}"
    delta = (1 - Fraction(asked["confidence"])) / (evidence["attempt"] * (evidence["attempt"] + 1))
    n, t, bound = len(population), len(draws), evidence["error_bound"]
    if bound < n - (t - wrong) and chance(n, bound + 1, t, wrong) > delta:
        yield f"at most {bound} of {n} wrong by {t} draws"


def log_lies(record: Record, arrays: Arrays, lines: Sequence[dict[str, Any]], about: dict[str, Any]) -> Iterator[str]:
    """What is false of a model by the lines that it is about."""
    asked = record["parameters"]
    for name in ("seed", "epsilon", "error", "confidence", "intercept"):
        if about[name] != asked[name]:
            yield f"{name} {asked[name]}, the campaign has {about[name]}"
    labels: dict[int, Any] = {}
    last: dict[int, int] = {}
    for k, line in enumerate(lines):
        if line["action"] in ("label", "correct", "undo"):
            last[line["row"]] = k
            labels[line["row"]] = line["label"]
    logged = {row: record["classes"].index(label) * 2 - 1 for row, label in labels.items() if label is not None}
    draws = arrays["draws_ids"].tolist()
    used = dict(zip(draws, arrays["draws_signs"].tolist(), strict=True))
    used |= dict(zip(arrays["answered_ids"].tolist(), arrays["answered_signs"].tolist(), strict=True))
    if used != logged:
        yield f"answers {sorted(set(used.items()) ^ set(logged.items()))[:4]} are not in both"
    if draws and not set(draws) - set(last):
        asides = [k for k, line in enumerate(lines) if line["attempt"] == record["evidence"]["attempt"]]
        first = min([*(last[row] for row in draws), *asides])
        if any(k > first for row, k in last.items() if row not in draws):
            yield f"line {first + 1} is about a draw, others were answered after it"
        attempts = {lines[last[row]]["attempt"] for row in draws}
        earlier = {line["attempt"] for line in lines[:first] if line["action"] in ("label", "correct", "undo")}
        if attempts != {record["evidence"]["attempt"]} or attempts & earlier:
            yield f"draws of attempts {attempts}, before them {earlier}"
        tried = {line.get("tried", OWN) for line in lines if line["attempt"] == record["evidence"]["attempt"]}
        if tried != {OWN}:
            yield f"draws try {tried}, and not the model"
