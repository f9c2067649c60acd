"""Made-up but realistic model folders for the tests of the report, from seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from coremargin.problems.hard import report as hard
from coremargin.problems.soft import report as soft

HOSTILE = ("</title><script>alert(1)</script>", '" onload="x\u202e\n<b>& \u0000')
GIB = 1 << 30
JOB = """[train]
store = "kdd.zarr"
out = "models/kdd"
epsilon = 1e-3
intercept = true

[memory]
worker = "896 MiB"
"""

Example = tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]], dict[str, Any]]


def render_report(model: Any, run: Any, rounds: Any, coreset: Any, *, name: str = "MODEL") -> str:
    """The page of an example, by its kind."""
    kind = {"hard_margin": hard, "soft_margin": soft}[model["problem"]]
    return kind.render(model, run, rounds, coreset, name=name)


def example(
    kind: str = "certified",
    *,
    scans: int = 2,
    rows: int = 1_000_000,
    scale: float = 1.0,
    classes: tuple[Any, Any] = ("normal.", "neptune."),
    coreset: int = 101,
    strategy: str = "fast",
    intercept: bool = True,
    seed: int = 0,
) -> Example:
    """A model, its run, its rounds and its coreset; ``scale`` multiplies all margins."""
    generator = np.random.default_rng(seed)
    store_bytes = rows * 404
    rounds = _rounds(kind, scans, scale, rows, store_bytes, strategy, generator)
    last = rounds[-1]
    lower, upper = last["lower"], last["upper"]
    if kind == "not_separable":
        lower, upper, coreset = None, 3.1e-16 * scale, 7
    half = coreset // 2
    y = np.array([-1] * half + [1] * (coreset - half), dtype=np.int8)
    alpha = generator.gamma(0.7, size=coreset)
    for side in (-1, 1):
        alpha[y == side] /= alpha[y == side].sum()
    margins = lower * generator.uniform(1.0, 1.0008, coreset) if lower is not None else generator.normal(size=coreset)
    model = {
        "format": "coremargin-model",
        "version": 1,
        "problem": "hard_margin",
        "status": kind,
        "parameters": {"epsilon": 1e-3, "intercept": intercept, "strategy": strategy},
        "classes": list(classes),
        "features": 100,
        "rows": rows,
        "dtype": "float32",
        "certificate": {
            "kind": "not_separable" if kind == "not_separable" else "margin",
            "lower": lower,
            "upper": upper,
            "ratio": None if lower is None or lower <= 0 else lower / upper,
            "epsilon": 1e-3,
            "coreset_rows": coreset,
            "store_digest": "sha256:" + generator.bytes(32).hex(),
            "radius": 14.21934 * scale,
        },
        "software": {"coremargin": "0.1.0"},
    }
    ids = np.sort(generator.choice(rows, coreset, replace=False)).astype(np.int64)
    return (
        model,
        _run(rounds, store_bytes, lower, scale, rows, generator),
        rounds,
        {
            "ids": ids,
            "y": y,
            "alpha": alpha,
            "margins": margins,
        },
    )


def _rounds(
    kind: str, scans: int, scale: float, rows: int, store_bytes: int, strategy: str, generator: np.random.Generator
) -> list[dict[str, Any]]:
    goal = 4e-4 if kind == "certified" else 0.13
    gaps = np.geomspace(3.0 if scans > 10 else 0.02, goal, scans) if scans > 1 else np.array([goal])
    best, chunks, found = None, -(-rows // 20_000), []
    sample = min(rows, 20_000)
    found.append(
        _round(0, "sample", None, None, 0.5042 * scale * (1.0 if scans < 10 else 9.0), store_bytes * sample // rows, 0)
    )
    for number, gap in enumerate(gaps, start=1):
        upper = 0.500116 * scale * (1.0 + gap * (0.4 if scans < 10 else 1.5))
        upper = upper if number < scans else 0.500116 * scale
        now = 0.5 * scale * (1.0 - gap * generator.uniform(1.0, 1.6)) if number < scans else upper * (1.0 - gap)
        best = now if best is None else max(best, now)
        skipped = int(chunks * 0.34) if number == scans and scans > 1 and strategy == "fast" else 0
        share = (chunks - skipped) / chunks
        row = _round(number, "scan", best, now, upper, int(store_bytes * share), skipped, chunks)
        row |= {"new_rows": int(4000 * gap) + (number < scans), "rows_below": int(9000 * gap)}
        found.append(row)
    if kind == "not_separable":
        for row in found[1:]:
            row["lower"] = row["lower_now"] = -abs(row["lower"] or 0.1) * 0.7
        found[-1] |= {"upper": 3.1e-16 * scale}
    if kind == "stopped" and scans == 0:
        return found[:1]
    return found


def _round(
    number: int, kind: str, lower: Any, now: Any, upper: float, read: int, skipped: int, chunks: int = 1
) -> dict[str, Any]:
    return {
        "round": number,
        "kind": kind,
        "lower": lower,
        "lower_now": now,
        "upper": upper,
        "ratio": None if lower is None else lower / upper,
        "working_set_rows": 8000 + 300 * number,
        "coreset_rows": 96 + number,
        "new_rows": 8000,
        "chunks": chunks,
        "chunks_read": chunks - skipped,
        "chunks_skipped": skipped,
        "bytes_read": read,
        "seconds": read / 3e9,
        "solve_seconds": 0.41,
        "rows_below": None,
    }


def _run(
    rounds: list[dict[str, Any]], store_bytes: int, lower: Any, scale: float, rows: int, generator: np.random.Generator
) -> dict[str, Any]:
    offset = lower if lower is not None and lower > 0 else -0.4 * scale
    edges = np.linspace(offset - 1.2 * scale, offset + 6.0 * scale, 81)  # with room on both sides, as a scan has it
    counts = []
    for part in (rows // 2, rows - rows // 2):
        draws = np.abs(generator.normal(size=min(part, 200_000))) * scale + offset
        found = np.histogram(draws, edges)[0] * part // len(draws)
        found[np.argmax(found)] += part - found.sum()
        counts.append(found.tolist())
    scanned = any(row["kind"] == "scan" for row in rounds)
    return {
        "started": "2026-11-20T18:22:36+00:00",
        "seconds": sum(row["seconds"] + row["solve_seconds"] for row in rounds),
        "scans": sum(row["kind"] == "scan" for row in rounds),
        "sample_scans": 1,
        "bytes_read": sum(row["bytes_read"] for row in rounds),
        "store_bytes": store_bytes,
        "peak_rss_bytes": int(1.31 * GIB),
        "working_set_rows": rounds[-1]["working_set_rows"],
        "executor": "embedded Dask cluster: 2 workers, 1 thread each, 896 MiB per worker",
        "store": "kdd.zarr",
        "versions": {"python": "3.11.9", "numpy": "2.4.0", "scipy": "1.17.0", "dask": "2026.8.0", "zarr": "3.1.6"},
        "job": JOB,
        "resumed": 0,
        "histogram": {"edges": edges.tolist(), "negative": counts[0], "positive": counts[1], "hypothesis": "final"}
        if scanned
        else None,
        "margins": {"minimum": lower, "mean": 1.3 * scale},
    }


def soft_example(
    kind: str = "certified",
    *,
    loss: str = "hinge",
    scans: int = 3,
    scale: float = 1.0,
    classes: tuple[Any, Any] = ("normal.", "neptune."),
    class_weight: Any = None,
    intercept: bool = True,
    seed: int = 0,
) -> Example:
    """A soft margin: value and dual close in from both sides; ``scale`` multiplies C and with it all bounds."""
    generator = np.random.default_rng(seed)
    model, run, _, _ = example(kind, scans=scans, classes=classes, intercept=intercept, seed=seed)
    rows, cost, value = model["rows"], 0.1 * scale, 1149.5 * scale
    rounds = [
        _round(0, "sample", None, None, 0.0, 2_000_000, 0) | {"upper": None, "ratio": None, "working_set_rows": 0}
    ]
    for number in range(1, scans + 1):
        gap = 10.0 ** (-1.7 * number)
        bounds = {"lower": value * (1 - gap), "lower_now": value * (1 - gap), "upper": value * (1 + gap / 3)}
        rounds.append(_round(number, "scan", bounds["lower"], None, bounds["upper"], rows * 404, 0, 50) | bounds)
        rounds[-1] |= {"working_set_rows": 40_000, "coreset_rows": 40_000, "rows_below": 360_000}
    last = rounds[-1]
    band = 300 if loss == "hinge" and scans else 0
    width = 0.05
    edges = (np.arange(201) - 80) * width
    middle = 0.5 * (edges[:-1] + edges[1:])
    shape = np.exp(-0.5 * (middle - 1.2) ** 2)
    counts = [(shape * part / shape.sum()).astype(int) for part in (0.4 * rows, 0.6 * rows)]
    counts[1][100] += rows - int(sum(part.sum() for part in counts))
    run |= {
        "scans": scans,
        "reason": "a limit was reached",
        "histogram": {
            "edges": edges.tolist(), "negative": counts[0].tolist(), "positive": counts[1].tolist(),
            "hypothesis": "final",
        } if scans else None,
        "margins": {"rows_below_upper": 360_000 if scans else None},
    }  # fmt: skip
    model |= {"problem": "soft_margin"}
    model["parameters"] |= {"loss": loss, "C": cost, "class_weight": class_weight}
    model["certificate"] |= {
        "kind": "duality_gap", "lower": last["lower"], "upper": last["upper"], "coreset_rows": band,
        "ratio": None if last["lower"] is None else last["lower"] / last["upper"],
    }  # fmt: skip
    y = np.where(generator.random(band) < 0.5, -1, 1).astype(np.int8)
    alpha = np.select([np.arange(band) < 80, np.arange(band) < 200], [cost * (1 - 1e-9), cost * 1e-10], 0.3 * cost)
    ids = np.sort(generator.choice(rows, band, replace=False)).astype(np.int64)
    return model, run, rounds, {"ids": ids, "y": y, "alpha": alpha, "margins": np.full(band, np.nan), "norm": 2.0}
