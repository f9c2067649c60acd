"""Accuracy against time of a kernel and of its maps: `python jobs/published/maps.py DATA [--plot FILE] [--json FILE]`.

Letters A to M against N to Z, the first 16,000 of UCI's 20,000 rows to learn from and the others to judge by, as is
usual with these; features at a mean of 0 and a variance of 1. The exact machine, of the kernel exp(-gamma ||x - z||^2),
and the linear one on rows mapped by Nystroem's method or by random Fourier features, of growing numbers of components:
the same gamma, hinge, C and gap for all, from one store on disk. CPU time is that of training, in all threads.

DATA: the folder that holds ``uci/letter.tsv.gz``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from curves import Panel, draw
from numpy.typing import NDArray

import coremargin
from coremargin.data.writer import StoreWriter

LEARNT, FIRST_HALF = 16_000, 13
GAMMA, C, EPSILON = 0.1, 10.0, 1e-3
COMPONENTS = (25, 50, 100, 200, 400, 800, 1600)
MAPS = ("nystroem", "fourier")


@dataclass(frozen=True)
class Run:
    """What one training took and is worth: CPU seconds; reads of the store; the proven gap; share of others wrong;
    CPU microseconds that the prediction of a row takes.
    """

    method: str
    components: int
    cpu: float
    reads: float
    gap: float
    wrong: float
    predict_us: float


def read(folder: Path) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Rows (n, 16), and which of them are of the first half of the alphabet (n,)."""
    with gzip.open(folder / "uci" / "letter.tsv.gz", "rt", encoding="utf-8") as file:
        target = file.readline().split().index("target")
        table = np.loadtxt(file)
    return np.delete(table, target, axis=1).astype(np.float32), table[:, target] <= FIRST_HALF


def measure(store: Path, X: NDArray[np.float32], y: NDArray[np.bool_], components: int, how: str) -> Run:
    """Train, and judge by other rows; how: "exact" or the name of a map."""
    asked: dict[str, Any] = {"kernel": "rbf"} if how == "exact" else {"map": how, "components": components}
    with tempfile.TemporaryDirectory() as name:
        out, began = Path(name) / "m", time.process_time()
        model = coremargin.train(
            store, out=out, loss="hinge", C=C, gamma=GAMMA, epsilon=EPSILON, scaling="standard", **asked
        )
        cpu, run = time.process_time() - began, json.loads((out / "run.json").read_text())
    began = time.process_time()
    wrong = float((np.asarray(model.predict(X)) != y).mean())
    each = 1e6 * (time.process_time() - began) / len(X)
    carry = model.certificate.coreset_rows if how == "exact" else components
    gap = 1.0 - (model.certificate.ratio or 0.0)
    return Run(how, carry, cpu, run["bytes_read"] / run["store_bytes"], gap, wrong, each)


def measured(folder: Path, components: list[int]) -> list[Run]:
    """The exact machine, then each map with each number of components."""
    X, y = read(folder)
    with tempfile.TemporaryDirectory() as name:
        for place, rows in (("warm", 400), ("rows", LEARNT)):
            with StoreWriter.create(Path(name) / place, features=X.shape[1]) as writer:
                writer.write(X[:rows], y[:rows])
        for how in ("exact", *MAPS):  # imports and kernels that are compiled are not counted
            measure(Path(name) / "warm", X[:400], y[:400], 25, how)
        runs = []
        for how, sizes in (("exact", [0]), *((how, components) for how in MAPS)):
            for size in sizes:
                runs.append(measure(Path(name) / "rows", X[LEARNT:], y[LEARNT:], size, how))
                print(told(runs[-1]), flush=True)
    return runs


def told(run: Run) -> str:
    """A line of the table."""
    return (
        f"{run.method:8} {run.components:6,}  CPU {run.cpu:6.2f} s  reads {run.reads:.2f}  gap {run.gap:.1e}  "
        f"wrong {run.wrong:.2%}  a prediction {run.predict_us:.1f} us"
    )


def picture(file: Path, runs: list[Run]) -> None:
    """Errors against the CPU time of training, and of a prediction; a dot for each number of components."""
    names = {"exact": "exact kernel", "nystroem": "Nystroem", "fourier": "random Fourier features"}
    of = {how: [one for one in runs if one.method == how] for how in names}
    words = {names[how]: [f"{one.components:,}" for one in of[how]] for how in MAPS}
    words[names["exact"]] = [f"{one.components:,} rows" for one in of["exact"]]
    panels = [
        Panel(
            title, x, {names[how]: [(getattr(one, what), 100 * one.wrong) for one in of[how]] for how in names},
            low=2.0, log=True, words=words, below=(names["nystroem"], names["exact"]),
        )
        for title, x, what in (
            ("Test error in %, by the time of training", "CPU seconds", "cpu"),
            ("By the time of a prediction", "CPU microseconds a row", "predict_us"),
        )
    ]  # fmt: skip
    draw(
        file, panels, f"letters A to M against N to Z; at the dots: components. All are proven to a gap of {EPSILON:g}"
    )


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--components", type=int, nargs="+", default=list(COMPONENTS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    asked = parser.parse_args()
    runs = measured(asked.data, asked.components)
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n", encoding="utf-8")
    if asked.plot is not None:
        picture(asked.plot, runs)


if __name__ == "__main__":
    main()
