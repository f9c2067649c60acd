"""The tables that README names, small and from a seed: those to train on, and those that say how stores change."""

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
    with (folder / "orders.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["order", "items", "price", "paid"])
        for k in range(40):
            out.writerow([4700 + k, int(rng.integers(1, 9)), round(rng.random() * 90, 2), ("no", "yes")[k % 2]])
    for name, lines in (
        ("corrected", ["row,label", "3,-1", "8,1"]),
        ("weights", ["row,weight", "5,2.5", "6,0"]),
        ("refunded", ["order,label", "4713,no", "4715,no"]),
    ):
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    small = {
        "corrected": ("row,label", [(5, 1), (6, -1), (7, 1)]),
        "weights": ("row,weight", [(5, 2), (8, 0.5), (9, 0)]),
        "orders": ("order,amount,paid", [(4700 + k, k % 7 + (k % 2) * 3, "yn"[k % 2]) for k in range(100)]),
        "refunded": ("order,label", [(4720, "n"), (4721, "n")]),
    }
    for name, (head, values) in small.items():
        lines = [head, *(",".join(map(str, line)) for line in values)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
