"""An SVM on Banana, certified, beside its published error: `python jobs/published/banana_svm.py DATA [--runs N]`.

Raetsch, Onoda and Mueller 2001, *Soft margins for AdaBoost*, Machine Learning 42, Table 2: 11.5 % (0.7) of the test
rows are wrong by an SVM. The kernel exp(-||x - z||^2) and C = 316.2 are handed down with the authors' splits, and were
not held against their files; nor are the 100 splits at hand: 400 rows to learn from and the others to judge by are
drawn from seeds, of PMLB's 5,300 rows without repeated ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from banana import POOL, read

import coremargin

GAMMA, C = 1.0, 316.2


def measured(data: Path, runs: int) -> tuple[list[float], list[float], list[int]]:
    """Of each split the share of other rows that are wrong, the proven gap, and how many rows carry the function."""
    X, y = read(data)
    wrong, gaps, rows = list[float](), list[float](), list[int]()
    for seed in range(runs):
        order = np.random.default_rng(seed).permutation(len(X))
        own, others = order[:POOL], order[POOL:]
        model = coremargin.train(X[own], y[own], kernel="rbf", gamma=GAMMA, loss="hinge", C=C, epsilon=1e-4)
        wrong.append(float((model.predict(X[others]) != y[others]).mean()))
        gaps.append(1.0 - (model.certificate.ratio or 0.0))
        rows.append(model.certificate.coreset_rows)
    return wrong, gaps, rows


def main() -> None:
    """Print the mean error, and the widest gap."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=int, default=100)
    asked = parser.parse_args()
    wrong, gaps, rows = measured(asked.data, asked.runs)
    print(f"{asked.runs} splits: {np.mean(wrong):.1%} wrong of the others (deviation {np.std(wrong, ddof=1):.1%}),")
    print(f"widest gap {max(gaps):.1e}, {np.mean(rows):.0f} rows carry the function on average")


if __name__ == "__main__":
    main()
