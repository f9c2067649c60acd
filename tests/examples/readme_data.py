"""The tables that README trains on by name, small and from a seed: adult.csv, adult-test.csv and new.csv."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np


def main(folder: Path) -> None:
    """Write them."""
    rng = np.random.default_rng(5)
    for name, rows, labelled in (("adult", 600, True), ("adult-test", 200, True), ("new", 50, False)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["age", "workclass", "hours", *["income"][: int(labelled)]])
            for _ in range(rows):
                age, hours = int(rng.integers(17, 90)), int(rng.integers(1, 99))
                work = str(rng.choice(["Private", "State-gov", "Self-emp", ""]))
                rich = age + hours + 40 * (work == "Self-emp") + rng.normal(0, 15) > 110
                out.writerow([age, work, hours, *([">50K" if rich else "<=50K"] if labelled else [])])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
