"""Relative margins on digits beside published errors: `python jobs/published/digits.py DATA [--of usps] [--plot FILE]`.

Jebara's lecture and Shivaswamy, Jebara 2010, *Maximum Relative Margin and Data-Dependent Regularization*, JMLR 11:
digits are classified by the votes of 45 machines, one for each pair of digits. Errors on the test part, by kernel:
polynomials of degree 1 to 7, and RBF. Machines: SVM; RMM, the relative margin; Sigma-SVM, the SVM in the metric (1 - D)
I + D Sigma with the covariance Sigma; KLDA, Fisher's discriminant with the kernel.

Ours: (1 + x.z / m)^q, m the mean of ||x||^2, for degree 1 x.z / m; exp(-||x - z||^2 / v), v the total variance. C, B,
D and the ridge of KLDA are common to all pairs: chosen by the votes on a fifth of the training part, then all of it is
trained on. Equal votes are decided by the sum of tanh f. The machines with a margin are solved by coremargin's
own solvers (pipeline/coremargin/maths/kernel/machine.py, relative_machine.py); a line states the widest duality gap of
a kernel's 45. The linear one of a pair is compared with the certificate of ``coremargin.train``.

MNIST takes the first ``--rows`` rows of the training part, since a pair of all 60,000 has a matrix of 12,000^2.
``--plot`` draws the decision values of a pair's test rows by both machines.

DATA: the folder that holds ``uci/optdigits.tsv.gz``, ``usps/usps.npz`` and ``mnist/*-ubyte.gz``.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from curves import Panel, draw
from numpy.typing import NDArray

import coremargin
from coremargin.maths.kernel.machine import Side, solve
from coremargin.maths.kernel.relative_machine import solve_within

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

#: Errors of the lecture, by degree 1 to 7 and RBF.
PUBLISHED = {
    "optdigits": {
        "svm": (71, 57, 54, 47, 40, 46, 46, 51),
        "sigma-svm": (61, 48, 41, 36, 35, 31, 29, 47),
        "klda": (71, 57, 54, 47, 40, 46, 46, 45),
        "rmm": (71, 36, 32, 31, 33, 30, 29, 51),
    },
    "usps": {
        "svm": (145, 109, 109, 103, 100, 95, 93, 104),
        "sigma-svm": (132, 108, 99, 94, 89, 87, 90, 97),
        "klda": (132, 119, 121, 117, 114, 118, 117, 101),
        "rmm": (153, 109, 94, 91, 91, 90, 90, 98),
    },
    "mnist": {
        "svm": (536, 198, 170, 156, 157, 141, 136, 146),
        "rmm": (521, 146, 140, 130, 119, 116, 115, 129),
    },
}
OPTDIGITS_TEST = 1797  #: rows at the end of the file
KERNELS = (1, 2, 3, 4, 5, 6, 7, "rbf")
COSTS = (0.1, 1.0, 10.0)
BOUNDS = (4.0, 2.5, 1.8, 1.4, 1.15)
SHARES = (0.5, 0.9, 0.99)
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
GRIDS: dict[str, tuple[tuple[float, ...], ...]] = {
    "svm": tuple((C, np.inf, 0.0) for C in COSTS),
    "rmm": tuple((C, B, 0.0) for C in COSTS for B in BOUNDS),
    "sigma-svm": tuple((C, np.inf, D) for D in SHARES for C in COSTS),
    "klda": tuple((ridge,) for ridge in RIDGES),
}
#: Relative duality gap to which machines are solved, where parameters are chosen, and at last.
CHOOSING, FINAL = 1e-2, 1e-4


class Digits(NamedTuple):
    """Rows and digits of both parts."""

    X: Array
    digits: Labels
    test_X: Array
    test_digits: Labels


@dataclass(frozen=True)
class Result:
    """Errors of the votes on the test part, what was chosen, and the widest proven gap; NaN without a gap."""

    machine: str
    kernel: int | str
    errors: int
    chosen: tuple[float, ...]
    gap: float


def read(data: Path, name: str, rows: int | None = None) -> Digits:
    """The rows of a set, as its authors part them; rows: how many of the training part, from the first on."""
    if name == "mnist":

        def values(file: str, header: int) -> NDArray[np.uint8]:
            with gzip.open(data / "mnist" / f"{file}-ubyte.gz") as packed:
                return np.frombuffer(packed.read(), np.uint8, offset=header)

        X, test = (values(f"{part}-images-idx3", 16).reshape(-1, 784).astype(np.float64) for part in ("train", "t10k"))
        labels, test_labels = (values(f"{part}-labels-idx1", 8).astype(np.int64) for part in ("train", "t10k"))
        return Digits(X[:rows], labels[:rows], test, test_labels)
    if name == "usps":
        with np.load(data / "usps" / "usps.npz") as found:
            X, test = (found[key].reshape(len(found[key]), -1).astype(np.float64) for key in ("X_train", "X_test"))
            return Digits(X[:rows], found["y_train"].astype(np.int64)[:rows], test, found["y_test"].astype(np.int64))
    with gzip.open(data / "uci" / "optdigits.tsv.gz", "rt", encoding="utf-8") as file:
        target = file.readline().split().index("target")
        table = np.loadtxt(file)
    X, digits = np.delete(table, target, axis=1), table[:, target].astype(np.int64)
    most = len(X) - OPTDIGITS_TEST
    kept = most if rows is None else min(rows, most)
    return Digits(X[:kept], digits[:kept], X[most:], digits[most:])


def kernel_values(X: Array, Z: Array, kernel: int | str, size: float, variance: float) -> Array:
    """K (n, m) of rows X (n, d) and Z (m, d); size: the mean of ||x||^2."""
    products = X @ Z.T
    if kernel == "rbf":
        squares = (X * X).sum(axis=1)[:, None] + (Z * Z).sum(axis=1)
        return np.asarray(np.exp(-np.maximum(squares - 2.0 * products, 0.0) / variance))
    return np.asarray(products / size if kernel == 1 else (1.0 + products / size) ** int(kernel))


class Machine(NamedTuple):
    """f(x) = sum v k(x_i, x) + b, and its proven bounds."""

    v: Array
    b: float
    lower: float
    upper: float


def train(K: Array, y: Array, C: float, B: float, tolerance: float, start: Array | None = None) -> Machine:
    """The machine of a kernel matrix K (n, n), scaled so that its rows keep the bound B; B inf: the SVM.

    tolerance: of the relative duality gap. start (n,): weights v to begin with, for the machine with a bound.
    """
    side = Side(y, np.full(len(y), C), "hinge", intercept=True, bound=B)
    if np.isfinite(B):
        found = solve_within(K, side, np.zeros(len(y)) if start is None else y * start, tolerance)
    else:
        found = solve(K, side, np.zeros(len(y)), tolerance)
    return Machine(found.scale * y * found.duals, found.scale * found.offset, found.bound, found.value)


def in_metric(K: Array, share: float) -> tuple[Array, Array]:
    """K in the metric (1 - D) I + D Sigma (n, n), and the matrix T (n, n) that maps k(x, rows) to the same there."""
    n = len(K)
    half = K - K.mean(axis=0)
    inner = half - half.mean(axis=1)[:, None]
    inner[np.diag_indices(n)] += (1.0 - share) / share * n
    solved = np.linalg.solve(inner, half)
    mapped = (np.eye(n) - (solved - solved.mean(axis=0))) / (1.0 - share)
    return K @ mapped, mapped


def discriminant(K: Array, y: Array, ridge: float) -> tuple[Array, float]:
    """Fisher's discriminant as least squares (v, b), b in the middle between the classes' means."""
    n = len(K)
    centred = K - K.mean(axis=0)
    centred -= centred.mean(axis=1)[:, None]
    target = np.where(y > 0, n / (y > 0).sum(), -n / (y < 0).sum())
    centred[np.diag_indices(n)] += ridge * float(np.trace(centred))
    v = np.linalg.solve(centred, target)
    v -= v.mean()
    f = K @ v
    return v, -0.5 * float(f[y > 0].mean() + f[y < 0].mean())


def functions(
    machine: str, K: Array, y: Array, grid: Sequence[tuple[float, ...]], tolerance: float
) -> Iterator[Machine]:
    """The machine of each choice of parameters; each begins with the one before."""
    if machine == "klda":
        for (ridge,) in grid:
            v, b = discriminant(K, y, ridge)
            yield Machine(v, b, np.nan, np.nan)
        return
    start, last, own, mapped = None, 0.0, K, None
    for C, B, share in grid:
        if share != last:
            (own, mapped), start, last = in_metric(K, share), None, share
        found = train(own, y, C, B, tolerance, start if np.isfinite(B) else None)
        start = found.v
        yield found if mapped is None else found._replace(v=mapped @ found.v)


def votes(
    machine: str,
    X: Array,
    digits: Labels,
    others: Array,
    kernel: int | str,
    grid: Sequence[tuple[float, ...]],
    tolerance: float,
) -> tuple[Labels, float]:
    """The digits (g, m) of other rows by the votes of all pairs, for each choice; and the widest gap of any machine."""
    size, variance = float((X * X).sum(axis=1).mean()), float(X.var(axis=0).sum())
    counts = np.zeros((len(grid), len(others), 10))
    gap = np.nan
    for one, two in itertools.combinations(range(10), 2):
        mine = np.flatnonzero((digits == one) | (digits == two))
        y = np.where(digits[mine] == one, 1.0, -1.0)
        K = kernel_values(X[mine], X[mine], kernel, size, variance)
        beside = kernel_values(others, X[mine], kernel, size, variance)
        for k, found in enumerate(functions(machine, K, y, grid, tolerance)):
            f = beside @ found.v + found.b
            counts[k, :, one] += (f > 0) + 1e-4 * np.tanh(f)
            counts[k, :, two] += (f <= 0) - 1e-4 * np.tanh(f)
            gap = float(np.fmax(gap, (found.upper - found.lower) / found.upper))
    return counts.argmax(axis=2), gap


def measure(found: Digits, machine: str, kernel: int | str) -> Result:
    """Choose on a fifth of the training part, then train on all of it and count errors on the test part."""
    order = np.random.default_rng(0).permutation(len(found.X))
    held, rest = order[: len(order) // 5], order[len(order) // 5 :]
    grid = GRIDS[machine]
    chosen, _ = votes(machine, found.X[rest], found.digits[rest], found.X[held], kernel, grid, CHOOSING)
    best = grid[int((chosen != found.digits[held]).sum(axis=1).argmin())]
    last, gap = votes(machine, found.X, found.digits, found.test_X, kernel, [best], FINAL)
    return Result(machine, kernel, int((last[0] != found.test_digits).sum()), best, gap)


def projections(found: Digits, file: Path, one: int = 3, two: int = 8, kernel: int = 3) -> None:
    """Draw how many test rows of a pair have which decision value, by an SVM and with a bound of 1.4; C = 10."""
    mine, theirs = (np.flatnonzero((digits == one) | (digits == two)) for digits in (found.digits, found.test_digits))
    X, Z, y = found.X[mine], found.test_X[theirs], np.where(found.digits[mine] == one, 1.0, -1.0)
    size, edges, panels = float((found.X * found.X).sum(axis=1).mean()), np.linspace(-6.0, 6.0, 61), list[Panel]()
    for name, B in (("SVM", np.inf), ("relative margin, B = 1.4", 1.4)):
        machine = train(kernel_values(X, X, kernel, size, 0.0), y, 10.0, B, FINAL)
        f = np.clip(kernel_values(Z, X, kernel, size, 0.0) @ machine.v + machine.b, edges[0], edges[-1])
        lines: dict[str, list[tuple[float, float]]] = {}
        for digit in (one, two):
            counts = np.histogram(f[found.test_digits[theirs] == digit], edges)[0]
            lines[f"digit {digit}"] = list(zip((edges[:-1] + 0.1).tolist(), counts.tolist(), strict=True))
        panels.append(Panel(name, "decision value", lines, low=0.0))
    draw(file, panels, f"Test rows of digits {one} and {two} by their decision values, in bins of 0.2")


def linear_agrees(found: Digits, one: int, two: int, bound: float, epsilon: float = 1e-6) -> bool:
    """Whether the value of the linear machine of a pair is the certified one of coremargin, to twice its gap."""
    mine = np.flatnonzero((found.digits == one) | (found.digits == two))
    X, y = found.X[mine], np.where(found.digits[mine] == one, 1.0, -1.0)
    root = float(np.sqrt((found.X * found.X).sum(axis=1).mean()))
    model: Any = coremargin.train(X / root, y, loss="hinge", C=1.0, relative_margin=bound, epsilon=epsilon)
    own = train((X / root) @ (X / root).T, y, 1.0, bound, FINAL)
    return bool(own.lower <= model.certificate.upper and model.certificate.lower <= own.upper)


def main() -> None:
    """Print a line for each kernel and machine, beside the published one."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--of", choices=tuple(PUBLISHED), default="optdigits")
    parser.add_argument("--machines", nargs="+", choices=tuple(GRIDS), help="those of the published table")
    parser.add_argument("--kernels", nargs="+", default=[str(kernel) for kernel in KERNELS])
    parser.add_argument("--rows", type=int, help="of the training part, from the first on")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="SVG of the decision values of a pair")
    asked = parser.parse_args()
    found, results = read(asked.data, asked.of, asked.rows), list[Result]()
    if asked.plot is not None:
        projections(found, asked.plot)
    print(f"a linear pair is within coremargin's certificate: {linear_agrees(found, 3, 8, 2.5)}", flush=True)
    for word, machine in itertools.product(asked.kernels, asked.machines or PUBLISHED[asked.of]):
        kernel = word if word == "rbf" else int(word)
        result = measure(found, machine, kernel)
        published = PUBLISHED[asked.of][machine][KERNELS.index(kernel)]
        chosen = ", ".join(f"{value:g}" for value in result.chosen)
        print(
            f"{word} {machine}: {result.errors} errors ({published}); {chosen}; widest gap {result.gap:.1e}", flush=True
        )
        results.append(result)
    if asked.json is not None:
        asked.json.write_text(json.dumps([result.__dict__ for result in results], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
