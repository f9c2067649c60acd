"""What the stop of core vector machines leaves of the SVM: `python jobs/published/core_vectors.py DATA`.

Tsang, Kwok and Cheung 2005 (*Core vector machines: fast SVM training on very large data sets*, JMLR 6) solve the SVM
with squared slacks as the smallest ball around the rows in the space of the kernel y y' k(x, x') + [x = x'] / (2 C), on
a growing core set, and stop when no row lies outside of (1 + eps) times the ball of the core set. Loosli and Canu 2007
(*Comments on the "Core vector machines"*, JMLR 8) ask what that says of the SVM. Here the rule is run as it stands, all
rows looked at, the farthest joins; there is no intercept, and what it stops with is held against the certified value.

DATA: the folder that holds ``banana/banana.tsv.gz`` and ``raetsch/``.
"""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import coremargin
from coremargin.maths.kernel.functions import Kernel
from coremargin.maths.kernel.machine import Side, solve

Array = NDArray[np.float64]

EPSILONS = (0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
#: By name: where the rows are, gamma, C.
DATA = {
    "banana": ("banana/banana.tsv.gz", 2.0, 1.0), "twonorm": ("raetsch/twonorm.tsv.gz", 0.02, 1.0),
    "ringnorm": ("raetsch/ringnorm.tsv.gz", 0.02, 1.0),
}  # fmt: skip
#: The ball of a core set is solved to this gap of the SVM on it.
EXACT = 1e-8


@dataclass(frozen=True)
class Stopped:
    """Where the rule stopped: rows of the core set; bounds of the SVM there, over the certified optimum."""

    epsilon: float
    rows: int
    dual: float
    value: float
    wrong: float

    @property
    def gap(self) -> float:
        """The duality gap of all rows, as a share of the value."""
        return 1.0 - self.dual / self.value


def read(folder: Path, place: str) -> tuple[Array, Array]:
    """Rows (n, d), each feature less its mean and over its deviation, and sides (n,)."""
    with gzip.open(folder / place, "rt", encoding="utf-8") as file:
        names = file.readline().split()
        table = np.loadtxt(file)
    target = names.index("target")
    X = np.delete(table, target, axis=1)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.where(table[:, target] > 0, 1.0, -1.0)


def stops(X: Array, y: Array, gamma: float, C: float, most: int) -> list[Stopped]:
    """Where the rule stops for each epsilon, as far as the core set has no more than ``most`` rows.

    The nearest point to the origin of the core set, sum alpha_i phi_i with squared length p, is the dual point
    alpha / p of the SVM, of value 1 / (2 p); the ball's radius is sqrt(1 + 1 / (2 C) - p).
    """
    kernel, core, found = Kernel("rbf", gamma=gamma), [int(np.argmax(y > 0)), int(np.argmax(y < 0))], list[Stopped]()
    points, duals = kernel.points(X), np.zeros(2)
    most = min(most, len(y))
    values = np.empty((len(y), most), order="F")
    values[:, :2] = kernel.block(points, points.take(core))
    own, left = 1.0 + 1.0 / (2.0 * C), list(EPSILONS)
    while left:
        m = len(core)
        side = Side(y[core], np.full(m, C), "squared_hinge", intercept=False)
        duals = solve(values[core, :m], side, duals, EXACT).duals
        margins = y * (values[:, :m] @ (y[core] * duals))
        p = 1.0 / duals.sum()  # of the best weights sum a = a' K a
        far = own + p - 2.0 * p * margins
        far[core] = 0.0
        while left and far.max() <= (1.0 + left[0]) ** 2 * (own - p):
            square = float(duals @ (y[core] * (values[core, :m] @ (y[core] * duals))))
            value = 0.5 * square + C * float((np.maximum(0.0, 1.0 - margins) ** 2).sum())
            dual = float(duals.sum() - 0.5 * square - (duals**2).sum() / (4.0 * C))
            found.append(Stopped(left.pop(0), m, dual, value, float((margins <= 0).mean())))
        if m == most:
            break
        core.append(int(far.argmax()))
        values[:, m] = kernel.block(points, points.take(core[-1:]))[:, 0]
        duals = np.append(duals, 0.0)
    return found


def main() -> None:
    """Print a table for each data set."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--most", type=int, default=600, help="rows of a core set, at most")
    parser.add_argument("--only", choices=sorted(DATA), action="append", help="some of the data sets")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    asked, figures = parser.parse_args(), dict[str, Any]()
    for name, (place, gamma, C) in DATA.items():
        if asked.only and name not in asked.only:
            continue
        X, y = read(asked.data, place)
        best = coremargin.train(
            X, y > 0, kernel="rbf", gamma=gamma, loss="squared_hinge", C=C, intercept=False, epsilon=1e-5
        )
        claims, own = best.certificate, float((best.predict(X) != (y > 0)).mean())
        print(
            f"{name}, {X.shape[0]:,} x {X.shape[1]}, gamma {gamma}, C {C}: {best.status}, value {claims.upper:.2f}, "
            f"{claims.coreset_rows:,} rows carry it, on the wrong side {own:.1%}"
        )
        found = stops(X, y, gamma, C, asked.most)
        for one in found:
            print(
                f"  eps {one.epsilon:g}: core set {one.rows:,}, dual {one.dual / claims.lower:.4f}, value "
                f"{one.value / claims.lower:.4f} of the best, gap {one.gap:.2%}, on the wrong side {one.wrong:.1%}"
            )
        for epsilon in EPSILONS[len(found) :]:
            print(f"  eps {epsilon:g}: more than {asked.most:,} rows")
        figures[name] = {"best": asdict(claims), "stopped": [asdict(one) | {"gap": one.gap} for one in found]}
    if asked.json is not None:
        asked.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
