"""Ellipsoidal machines, Jebara's two tables: `python jobs/published/ellipsoidal.py DATA [--plot FILE] [--folds N]`.

Jebara, *Advanced machine learning*, lecture on ellipsoidal and relative margin machines, after Shivaswamy and Jebara
2007, *Ellipsoidal Kernel Machines*. A machine of maximal margin in the metric of the least ellipsoid around the rows,
against one in the metric of the rows. Ten folds: eight to train, one to choose C, one to judge. In the first table
the ellipsoid is that of the rows to train with, in the second of all rows, whose labels it does not see.

The lecture also chooses which share of the rows may lie outside of the ellipsoid; here all rows lie inside. It does
not say how columns were scaled. So each table is measured twice: with columns as they are, divided by one number, and
with columns of mean 0 and variance 1.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import coremargin
from coremargin.report.svg import tag, text

Map = Callable[[np.ndarray], np.ndarray]
Parts = tuple[np.ndarray, np.ndarray, np.ndarray]  #: rows to train, to choose and to judge by

TITLES = ("rows as they are", "in the metric of the ellipsoid")
LOOKS = ("stroke:#555555", "stroke:#d55e00;stroke-dasharray:7 3", "stroke:#0072b2")
STYLE = (
    "text{font:13px sans-serif;fill:#333}.line{fill:none;stroke-width:2}"
    ".class-0{fill:#fff;stroke:#333;stroke-width:2}.class-1{fill:#333}"
)
COSTS = [0.01, 0.1, 1.0, 10.0, 100.0]
FOLDS = 10


@dataclass(frozen=True)
class Rows:
    """A data set with two classes. published: accuracy in the lecture, classical and ellipsoidal, of both tables."""

    name: str
    file: str
    classes: tuple[int, int]
    published: tuple[tuple[float, float] | None, tuple[float, float] | None]


SETS = (
    Rows("Heart", "heart_statlog", (0, 1), ((0.819, 0.831), (0.859, 0.855))),
    Rows("Pima", "pima", (0, 1), ((0.763, 0.764), (0.761, 0.766))),
    Rows("Ionosphere", "ionosphere", (0, 1), ((0.803, 0.835), (0.854, 0.857))),
    Rows("Pen digits 0, 5", "pendigits", (0, 5), ((0.997, 0.999), (1.0, 1.0))),
    Rows("Iris 1, 2", "iris", (1, 2), ((0.965, 0.965), (0.946, 0.966))),
    Rows("Bupa", "bupa", (1, 2), ((0.655, 0.658), (0.676, 0.685))),
    Rows("Segmentation 1, 6", "segmentation", (1, 6), ((0.798, 0.825), (0.804, 0.838))),
    Rows("Sonar", "sonar", (0, 1), (None, (0.752, 0.757))),
)


def read(data: Path, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d) and labels (n,) of the two classes."""
    with gzip.open(data / "uci" / f"{rows.file}.tsv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter="\t", skiprows=1)
    table = table[np.isin(table[:, -1], rows.classes)]
    return table[:, :-1], (table[:, -1] == rows.classes[1]).astype(int)


def common_scale(own: np.ndarray) -> Map:
    """Divide all columns by one number: the mean square of a value of centred rows (n, d) becomes 1."""
    mean = own.mean(axis=0)
    size = np.sqrt(np.square(own - mean).mean())
    return lambda x: (x - mean) / size


def standardised(own: np.ndarray) -> Map:
    """Columns of mean 0 and variance 1 over rows (n, d); constant ones are left out."""
    mean, size = own.mean(axis=0), own.std(axis=0)
    varies = size > 0
    return lambda x: (x[:, varies] - mean[varies]) / size[varies]


def ellipsoidal(own: np.ndarray) -> Map:
    """The metric of the least ellipsoid around rows (n, d), in one common scale."""
    model: Any = coremargin.train(own, one_class="ellipsoid", epsilon=1e-4)
    scale = common_scale(model.transform(own))
    return lambda x: scale(model.transform(x))


def accuracy(X: np.ndarray, y: np.ndarray, parts: Parts) -> float:
    """Share of the last part of the rows that is right by the C that is best on the second, trained on the first."""
    train, choose, judge = parts
    fleet: Any = coremargin.train(X[train], y[train], loss="hinge", C=COSTS, epsilon=1e-3)
    right = [float((fleet.at(C=cost).predict(X[choose]) == y[choose]).mean()) for cost in COSTS]
    best = COSTS[int(np.argmax(right))]
    return float((fleet.at(C=best).predict(X[judge]) == y[judge]).mean())


def folds(y: np.ndarray, count: int, seed: int = 0) -> list[Parts]:
    """The first ``count`` of ten folds; each has its share of both classes."""
    rng, fold = np.random.default_rng(seed), np.empty(len(y), int)
    for label in (0, 1):
        mine = rng.permutation(np.flatnonzero(y == label))
        fold[mine] = np.arange(len(mine)) % FOLDS
    found = list[Parts]()
    for judge in range(count):
        choose = (judge + 1) % FOLDS
        train = (fold != judge) & (fold != choose)
        found.append((np.flatnonzero(train), np.flatnonzero(fold == choose), np.flatnonzero(fold == judge)))
    return found


def measured(X: np.ndarray, y: np.ndarray, count: int = FOLDS) -> dict[str, list[float]]:
    """Accuracies of ``count`` folds by name: of both scalings the classical machine, and two ellipsoidal ones."""
    found: dict[str, list[float]] = {}
    for scaling in (common_scale, standardised):
        for parts in folds(y, count):
            own = X[parts[0]]
            rows = scaling(own)(X)
            for name, z in (
                ("classical", rows),
                ("ellipsoid of train", ellipsoidal(rows[parts[0]])(rows)),
                ("ellipsoid of all", ellipsoidal(rows)(rows)),
            ):
                found.setdefault(f"{scaling.__name__}, {name}", []).append(accuracy(z, y, parts))
    return found


def tilted(seed: int = 8, rows: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Few rows (n, 2) in a long and slanted ellipse, and their labels (n,): the sides of a line with a gap around it.

    The more rows there are, the less the boundaries differ: both lie in the gap.
    """
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((20 * rows, 2))
    z = z[np.linalg.norm(z, axis=1) < 2]
    side = z @ [0.6, 0.8]
    z, side = (values[np.abs(side) > 0.3][:rows] for values in (z, side))
    return z * [3.0, 0.5] @ np.array([[0.8, 0.6], [-0.6, 0.8]]), (side > 0).astype(int)


def boundaries(X: np.ndarray, y: np.ndarray) -> dict[str, tuple[np.ndarray, float]]:
    """Weights (2,) and intercept, for rows as they are, of the classical and the ellipsoidal machine of hard margin."""
    plain: Any = coremargin.train(X, y, epsilon=1e-6)
    scaled: Any = coremargin.train(X, y, scaling="ellipsoid", epsilon=1e-6)
    return {
        "maximal margin": (plain.w, float(plain.b)),
        "maximal margin in the ellipsoid's metric": (scaled.coef, float(scaled.intercept)),
    }


def picture(file: Path) -> None:
    """The boundaries tilt: drawn in the plane of the rows, and in the metric of the ellipsoid, where it is a circle."""
    X, y = tilted()
    ellipsoid: Any = coremargin.train(X, one_class="ellipsoid", epsilon=1e-6)
    angles = np.linspace(0, 2 * np.pi, 181)
    circle = ellipsoid.radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    curves = {"least ellipsoid": ellipsoid.centre + circle @ np.linalg.inv(ellipsoid.axes).T}
    for name, (w, b) in boundaries(X, y).items():
        along = np.array([-w[1], w[0]]) / np.linalg.norm(w)
        foot = ellipsoid.centre - w * (float(w @ ellipsoid.centre) + b) / (w @ w)
        curves[name] = foot + np.outer([-30.0, 30.0], along)
    parts = [tag("rect", width="100%", height="100%", fill="white"), tag("style", STYLE)]
    for place, (name, look) in enumerate(zip(curves, LOOKS, strict=True)):
        parts.append(tag("path", d=f"M{20 + 260 * place} 20h30", class_="line", style=look))
        parts.append(text(58 + 260 * place, 24, name, anchor="start"))
    for place, put in enumerate((np.asarray, ellipsoid.transform)):
        parts.append(_panel(place, put(X), y, [put(curve) for curve in curves.values()]))
        parts.append(text(20 + 400 * place, 424, TITLES[place], anchor="start"))
    head = '<svg xmlns="http://www.w3.org/2000/svg" width="800" height="436" viewBox="0 0 800 436">'
    file.write_text(head + "".join(parts) + "</svg>\n", encoding="utf-8")


def _panel(place: int, rows: np.ndarray, y: np.ndarray, curves: list[np.ndarray]) -> str:
    """Rows (n, 2) and curves (k, 2), of which the first is shown whole, in equal scales."""
    low, high = curves[0].min(axis=0), curves[0].max(axis=0)
    middle, reach = (low + high) / 2, 0.54 * float((high - low).max())

    def put(points: np.ndarray) -> np.ndarray:
        return np.asarray(180 + 180 * (points - middle) / reach * [1, -1])

    parts = list[str]()
    for curve, look in zip(curves, LOOKS, strict=True):
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in put(curve))
        parts.append(tag("path", d=path, class_="line", style=look))
    for (a, b), label in zip(put(rows), y, strict=True):
        parts.append(tag("circle", cx=a, cy=b, r=5, class_=f"class-{label}"))
    return f'<svg x="{20 + 400 * place}" y="40" width="360" height="360">{"".join(parts)}</svg>'


def main() -> None:
    """Measure and print both tables, beside the published accuracies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--folds", type=int, default=FOLDS, help="fewer are faster")
    parser.add_argument("--plot", type=Path, help="SVG of a boundary that tilts")
    parser.add_argument("--only", help="one data set, by the beginning of its name")
    options = parser.parse_args()
    if options.plot:
        picture(options.plot)
    for rows in SETS:
        if options.only and not rows.name.lower().startswith(options.only.lower()):
            continue
        found = measured(*read(options.data, rows), options.folds)
        for name, values in found.items():
            error = np.std(values, ddof=1) / np.sqrt(len(values))
            print(f"{rows.name:18} {name:32} {np.mean(values):.3f} +- {error:.3f}", flush=True)
        for table, pair in enumerate(rows.published, 1):
            if pair is not None:
                print(
                    f"{rows.name:18} lecture, table {table}: classical {pair[0]:.3f}, ellipsoidal {pair[1]:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
