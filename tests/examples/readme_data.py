"""The tables that README names, small and from a seed: those to train on, and those that say how stores change."""

from __future__ import annotations

import csv
import gzip
import os
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
    small = {
        "corrected": ("row,label", [(5, 1), (6, -1), (7, 1)]),
        "weights": ("row,weight", [(5, 2), (8, 0.5), (9, 0)]),
        "orders": ("order,amount,paid", [(4700 + k, k % 7 + (k % 2) * 3, "yn"[k % 2]) for k in range(100)]),
        "refunded": ("order,label", [(4720, "n"), (4721, "n")]),
    }
    for name, (head, values) in small.items():
        lines = [head, *(",".join(map(str, line)) for line in values)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    lines = [",".join([*(f"x{k}" for k in range(8)), "label"])]
    lines += [",".join(map(str, [*rng.normal(size=8).round(3), rng.choice([-1, 1])])) for _ in range(30)]
    (folder / "tuesday.csv").write_text("\n".join(lines) + "\n")
    groups(folder, rng)
    nights(folder, rng)


def groups(folder: Path, rng: np.random.Generator) -> None:
    """Results of queries, and words of sentences."""
    clicks, queries = ["query,position,relevance"], []
    for query in range(4700, 4730):
        for position in range(5):
            clicks.append(f"{query},{position},{int(rng.integers(0, 3))}")
            queries.append(f"{1 + position % 3} qid:{query} 1:{rng.normal():.3f} 2:{rng.normal():.3f}")
    (folder / "clicks.csv").write_text("\n".join(clicks) + "\n")
    (folder / "queries.svm").write_text("\n".join(queries) + "\n")
    for name, sentences in (("train", 40), ("test", 10)):
        lines = []
        for _ in range(sentences):
            noun, verb = rng.choice(["ship", "man", "cat"]), rng.choice(["sleeps", "sinks"])
            lines += ["the DT B-NP", *["old JJ I-NP"][: int(rng.integers(2))], f"{noun} NN I-NP", f"{verb} VB B-VP", ""]
        with gzip.open(folder / f"{name}.txt.gz", "wt") as file:
            file.write("\n".join(lines))


def nights(folder: Path, rng: np.random.Generator) -> None:
    """Three files in an inbox, which were written a while ago, and rows that want labels."""
    (folder / "inbox").mkdir()
    for place, rows in (("inbox/monday", 400), ("inbox/tuesday", 500), ("inbox/wednesday", 600), ("visitors", 50)):
        lines = ["pages,minutes,paid" if place != "visitors" else "pages,minutes"]
        for _ in range(rows):
            pages, minutes = int(rng.integers(1, 40)), round(float(rng.exponential(9)), 1)
            paid = "yes" if pages + minutes + rng.normal(0, 6) > 30 else "no"
            lines.append(f"{pages},{minutes},{paid}" if place != "visitors" else f"{pages},{minutes}")
        path = folder / f"{place}.csv"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (1e9, 1e9))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
