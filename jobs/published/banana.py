"""Figure 4 of Louche and Ralaivola 2015 on Banana: `python jobs/published/banana.py DATA [--runs 50] [--json FILE]
[--plot FILE] [--maps]`.

DATA: the folder that holds ``banana/banana.tsv.gz``. 400 rows to learn from, all of them the pool, 4,891 to judge by;
two labelled to start, one of each class; the kernel exp(-||x - y||^2 / (2 sigma^2)), sigma = 0.5 (the paper does not
say how sigma enters). Rows are taken as coordinates in the space that the pool spans there: few labels need no more.

--maps: the same kernel by feature maps instead, in campaigns on a store of 2,000 rows, their questions against those of
one that asks about rows by chance; the other rows judge. Of Banana with the hinge, as its classes overlap, and of
two rings that do not, 6,000 rows in a disc of radius 1 or in a ring from 1.1 to 2, by hard margins.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg as sla
from curves import Panel, draw
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from coremargin.active import Campaign
from coremargin.data.writer import StoreWriter
from coremargin.maths.active.centres import CentreName, centre_of
from coremargin.maths.active.cutting_planes import active_cutting_planes

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows

#: Questions after which all is measured.
AFTER = (0, 5, 10, 20, 30, 40, 60, 80, 100)
POOL, SIGMA = 400, 0.5
#: Eigenvalues of the pool's kernel below this share of the largest are rounding.
VANISHED = 1e-12
#: Of campaigns on mapped rows: when they are measured, their store's rows, and what is asked of all of them.
ANSWERS, STORED = (10, 20, 30, 40, 60, 80, 100, 150, 200), 2_000
CAMPAIGN: dict[str, Any] = {"gamma": 1 / (2 * SIGMA**2), "classes": (-1, 1)}
OVERLAPPING: dict[str, Any] = {"loss": "hinge", "C": 1.0, "error": 0.2, "trial": 1_000}
MAPS: dict[str, dict[str, Any]] = {
    "Nystroem, 100 landmarks": {"map": "nystroem", "components": 100},
    "Fourier, 200 frequencies": {"map": "fourier", "components": 200},
    "no map": {"gamma": None},
}


def read(folder: Path) -> tuple[Array, NDArray[np.int8]]:
    """Rows (n, 2) and signs (n,); of equal rows the first, for two of them have both labels."""
    with gzip.open(folder / "banana" / "banana.tsv.gz", "rt", encoding="utf-8") as file:
        names = file.readline().split()
        table = np.loadtxt(file)
    target = names.index("target")
    first = np.sort(np.unique(np.delete(table, target, axis=1), axis=0, return_index=True)[1])
    values = table[first, target]
    return np.delete(table[first], target, axis=1), np.where(values > 0, 1, -1).astype(np.int8)


def coordinates(pool: Array, others: Array) -> tuple[Array, Array]:
    """Both as coordinates in the span of the pool under the kernel."""
    values, vectors = sla.eigh(kernel(pool, pool))
    held = values > VANISHED * values.max()
    basis = vectors[:, held] / np.sqrt(values[held])
    return kernel(pool, pool) @ basis, kernel(others, pool) @ basis


def kernel(a: Array, b: Array) -> Array:
    """(n, m)."""
    return np.asarray(np.exp(-cdist(a, b, "sqeuclidean") / (2 * SIGMA**2)))


def measure(X: Array, y: NDArray[np.int8], name: CentreName, seed: int) -> list[float]:
    """Accuracy after so many questions each, in one run: the same rows and start for all methods."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    start = [next(k for k in order if y[k] == sign) for sign in (1, -1)]
    chosen = np.concatenate([start, order[~np.isin(order, start)]])
    mine, rest = chosen[:POOL], chosen[POOL:]
    pool, others = coordinates(X[mine], X[rest])

    def centre(rows: Rows, signs: NDArray[np.int8]) -> tuple[Array, float]:
        return centre_of(name, rows, signs)

    told = active_cutting_planes(pool, lambda row: int(y[mine[row]]), centre, np.array([0, 1]))
    return [
        float((np.where(others @ asked.w + asked.b > 0, 1, -1) == y[rest]).mean())
        for count, asked in enumerate(islice(told, AFTER[-1] + 1))
        if count in AFTER
    ]


def rings(rows: int = 6_000) -> tuple[Array, NDArray[np.int8]]:
    """Rows (n, 2) in a disc, -1, and in a ring around it, 1."""
    rng = np.random.default_rng(0)
    y, angle = rng.choice([-1, 1], rows), rng.uniform(0, 2 * np.pi, rows)
    radius = np.where(y < 0, rng.uniform(0, 1, rows), rng.uniform(1.1, 2, rows))
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y.astype(np.int8)


def campaign(X: Array, y: NDArray[np.int8], asked: dict[str, Any], seed: int) -> list[float]:
    """Accuracy of a campaign's model on the rows that are not in its store, after so many answers each."""
    order = np.random.default_rng(seed).permutation(len(y))
    mine, rest = order[:STORED], order[STORED:]
    with tempfile.TemporaryDirectory() as folder:
        place, found = Path(folder) / "rows.zarr", list[float]()
        with StoreWriter.create(place, features=X.shape[1], dtype="float64") as writer:
            writer.write(X[mine], None, None, origin="banana")
        with Campaign.create(Path(folder) / "c", place, **CAMPAIGN | asked, seed=seed) as begun:
            for most in ANSWERS:
                begun.run(lambda rows: {row: int(y[mine[row]]) for row in rows}, most=most)
                found.append(float((begun.model.predict(X[rest]) == y[rest]).mean()))
    return found


def measure_maps(title: str, rows: tuple[Array, NDArray[np.int8]], asked: dict[str, Any], runs: int) -> dict[str, Any]:
    """What all campaigns about rows have reached, printed, too."""
    told: dict[str, Any] = {"after": ANSWERS, "rows": len(rows[1]), "runs": runs}
    print(f"{title}: {len(rows[1]):,} rows, {STORED:,} of them asked about; after {ANSWERS} answers, {runs} runs")
    for name, how in MAPS.items():
        for asking in ("coreset", "random"):
            if "map" not in how and (asking == "random" or not asked):  # no hyperplane tells rings apart
                continue
            each = np.array([campaign(*rows, {**asked, **how, "method": asking}, seed) for seed in range(runs)])
            told[f"{name}, {asking}"] = {"mean": each.mean(axis=0).tolist(), "std": each.std(axis=0, ddof=1).tolist()}
            print(f"{name:25} {asking:8} " + " ".join(f"{value:.3f}" for value in each.mean(axis=0)))
            print(f"{'':25} {'std':8} " + " ".join(f"{value:.3f}" for value in each.std(axis=0, ddof=1)), flush=True)
    return told


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="SVG")
    parser.add_argument("--maps", action="store_true", help="campaigns on mapped rows")
    options = parser.parse_args()
    X, y = read(options.data)
    if options.maps:
        maps = {
            "banana": measure_maps("Banana", (X, y), OVERLAPPING, options.runs),
            "rings": measure_maps("Two rings", rings(), {}, options.runs),
        }
        if options.json:
            options.json.write_text(json.dumps(maps, indent=1) + "\n", encoding="utf-8")
        return
    print(f"{len(y):,} rows, {int((y > 0).sum()):,} positive; after {AFTER} questions, {options.runs} runs")
    methods: tuple[tuple[str, CentreName], ...] = (("Active-BPM (EP)", "ep"), ("Active-SVM", "chebyshev"))
    lines: dict[str, list[tuple[float, float]]] = {}
    told: dict[str, Any] = {"after": AFTER, "rows": len(y), "runs": options.runs}
    for name, centre in methods:
        runs = np.array([measure(X, y, centre, seed) for seed in range(options.runs)])
        print(f"{name:16} mean " + " ".join(f"{value:.3f}" for value in runs.mean(axis=0)))
        print(f"{name:16} std  " + " ".join(f"{value:.3f}" for value in runs.std(axis=0, ddof=1)), flush=True)
        lines[name] = list(zip(AFTER, runs.mean(axis=0).tolist(), strict=True))
        told[name] = {"mean": runs.mean(axis=0).tolist(), "std": runs.std(axis=0, ddof=1).tolist()}
    if options.plot:
        note = f"{options.runs} runs; circle: published, roughly 0.8 after 20 questions"
        draw(options.plot, [Panel("Figure 4: Banana, accuracy", "questions", lines, ((20, 0.8),), 0.5, 1.0)], note)
    if options.json:
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
