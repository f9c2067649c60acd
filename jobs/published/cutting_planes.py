"""Figures 2 and 3 of Louche and Ralaivola 2015: `python jobs/published/cutting_planes.py [--runs 1000] [--plot FILE]`.

Their data: 1,000 points uniform in a 20 x 20 square around the origin, a random w*, negatives reflected, points with
w*.x below gamma removed. Algorithm 3 with three picks, and the same perceptron on all rows at once. Figure 2: gamma =
0.1; Figure 3: gamma from 0.01 to 0.3. A plane is counted when a row is picked, the first one included. What they state
of both is held against what is measured, and printed at the end.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from curves import Panel, draw
from numpy.typing import NDArray

from coremargin.maths.active.cutting_planes import (
    Pick,
    largest_error,
    perceptron,
    perceptron_cutting_planes,
    random_error,
    smallest_error,
)
from coremargin.maths.published_bounds import perceptron_updates

PICKS: dict[str, Callable[[int], Pick]] = {
    "largest": lambda seed: largest_error,
    "random": random_error,
    "smallest": lambda seed: smallest_error,
}
GAMMAS = (0.01, 0.05, 0.1, 0.2, 0.3)
SIDE, POINTS = 20.0, 1000
#: Planes, and loops of the perceptron, that Figure 2 has bars for here.
BARS = 10


def points(gamma: float, seed: int) -> NDArray[np.float64]:
    """Rows z = y x (n, 2), the points of a run."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-SIDE / 2, SIDE / 2, (POINTS, 2))
    angle = rng.uniform(0, 2 * np.pi)
    along = x @ np.array([np.cos(angle), np.sin(angle)])
    x[along < 0] *= -1
    return np.asarray(x[np.abs(along) >= gamma])


def measure(gamma: float, runs: int) -> dict[str, Any]:
    """Planes and updates of each pick, and of the perceptron, over all runs."""
    planes: dict[str, list[int]] = {name: [] for name in PICKS}
    updates: dict[str, list[list[int]]] = {name: [] for name in PICKS}
    plain: list[int] = []
    for seed in range(runs):
        z = points(gamma, seed)
        for name, pick in PICKS.items():
            found = perceptron_cutting_planes(z, pick(seed))
            planes[name].append(len(found.planes))
            updates[name].append(found.updates)
        plain.append(perceptron(z, np.zeros(2)).updates)
    told = {name: _told(np.array(planes[name]), updates[name]) for name in PICKS}
    bound = perceptron_updates(SIDE / np.sqrt(2), gamma)
    return {"gamma": gamma, "runs": runs, "picks": told, "perceptron": float(np.mean(plain)), "bound": bound}


def _told(planes: NDArray[np.int64], updates: list[list[int]]) -> dict[str, Any]:
    loops = [[float(run[k]) for run in updates if len(run) > k] for k in range(BARS)]
    return {
        "at_least": [float((planes >= k).mean()) for k in range(1, BARS + 1)],
        "most_planes": int(planes.max()),
        "planes": float(planes.mean()),
        "updates": float(np.mean([sum(run) for run in updates])),
        "updates_error": float(np.std([sum(run) for run in updates]) / np.sqrt(len(updates))),
        "most_updates": max(sum(run) for run in updates),
        "updates_per_loop": [float(np.mean(loop)) if loop else None for loop in loops],
    }


def show(measured: dict[str, Any]) -> None:
    """As tables."""
    print(f"\ngamma {measured['gamma']:g}, {measured['runs']:,} runs")
    print(
        f"{'pick':10} {'planes':>7} {'most':>5} {'updates':>8} {'most':>6}  share of runs with at least 1, 2, .. planes"
    )
    for name, told in measured["picks"].items():
        shares = " ".join(f"{share:5.3f}" for share in told["at_least"])
        print(
            f"{name:10} {told['planes']:7.2f} {told['most_planes']:5} {told['updates']:8.2f} {told['most_updates']:6}  "
            f"{shares}"
        )
    print(f"perceptron {'':13} {measured['perceptron']:8.2f}   bound (R / gamma)^2 {measured['bound']:,.0f}")
    for name, told in measured["picks"].items():
        loops = " ".join("-" if loop is None else f"{loop:.2f}" for loop in told["updates_per_loop"])
        print(f"updates after plane 1, 2, ..., where there is one, {name}: {loops}")


def stated(measured: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    """What the paper states, what is measured, and whether it is so, up to two standard errors of the runs."""
    at = next(one for one in measured if one["gamma"] == 0.1)
    picks, shares = at["picks"], at["picks"]["largest"]["at_least"]
    planes = {name: told["planes"] for name, told in picks.items()}
    updates = {name: told["updates"] for name, told in picks.items()}
    falls = [one - other for one, other in pairwise(shares)]
    most = picks["largest"]["most_planes"]
    fewer = all(told["updates"] <= one["perceptron"] for one in measured for told in one["picks"].values())
    above = max(told["most_updates"] for told in picks.values())
    most_of_all = [
        {"most": max(told["most_updates"] for told in one["picks"].values()), "bound": one["bound"]} for one in measured
    ]
    least = min(picks, key=lambda name: float(updates[name]))
    noise = 2.0 * float(np.hypot(picks["smallest"]["updates_error"], picks[least]["updates_error"]))
    few = updates["smallest"] <= updates[least] + noise
    steps = [
        (a["picks"][name]["updates"], b["picks"][name]["updates"]) for a, b in pairwise(measured) for name in PICKS
    ]
    grows = all(at_smaller_gamma > at_larger for at_smaller_gamma, at_larger in steps)
    return [
        ("at most 6 planes with the largest error", f"at most {most}", most <= 6),
        (
            "4 planes suffice in 80 % of the runs",
            f"in {1 - shares[4]:.0%}",
            abs(shares[4] - 0.2) <= max(0.03, 2.0 * np.sqrt(0.16 / at["runs"])),
        ),
        (
            "a sharp fall after the third plane",
            f"{shares[2]:.0%} have three, {shares[3]:.0%} four",
            max(falls) == falls[2],
        ),
        (
            "more planes with the smallest error than with the largest",
            f"{planes['smallest']:.1f} and {planes['largest']:.1f}",
            planes["smallest"] > planes["largest"],
        ),
        ("fewest updates with the smallest error", f"{updates['smallest']:.1f}", few),
        (
            "fewer updates than the perceptron on all rows (slightly, they say), at every gamma",
            f"{max(updates.values()) / at['perceptron']:.0%} of its at most, at gamma = 0.1",
            fewer,
        ),
        ("the smaller gamma, the more updates", "at every gamma measured" if grows else "not at every gamma", grows),
        ("at most 1 / gamma^2 = 100 updates, of rows of length 1", f"up to {above:,}: they are longer", above <= 100),
        (
            "at most (R / gamma)^2 updates (Novikoff), at every gamma",
            f"{max(one['most'] / one['bound'] for one in most_of_all):.0%} of it at most",
            all(one["most"] <= one["bound"] for one in most_of_all),
        ),
    ]


def plot(measured: list[dict[str, Any]], file: Path) -> None:
    """Figures 2 and 3 as a picture."""
    at = next(one for one in measured if one["gamma"] == 0.1)
    shares = {name: list(enumerate(told["at_least"], 1)) for name, told in at["picks"].items()}
    loops = {
        name: [(k, loop) for k, loop in enumerate(told["updates_per_loop"], 1) if loop is not None]
        for name, told in at["picks"].items()
    }
    updates = {name: [(one["gamma"], one["picks"][name]["updates"]) for one in measured] for name in PICKS}
    updates["perceptron on all rows"] = [(one["gamma"], one["perceptron"]) for one in measured]
    draw(
        file,
        [
            Panel("Figure 2: share of runs with so many planes", "planes", shares, ((5, 0.2),), 0.0, 1.05),
            Panel("Figure 2: updates after each plane", "plane", loops, (), 0.0),
            Panel("Figure 3: updates", "gamma", updates, (), 0.0),
        ],
        f"gamma = 0.1 in Figure 2; {at['runs']:,} runs; circle: published, 80 % of the runs need no fifth plane",
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="SVG")
    options = parser.parse_args()
    measured = [measure(gamma, options.runs) for gamma in GAMMAS]
    for one in measured:
        show(one)
    print()
    for statement, found, holds in stated(measured):
        print(f"{'holds' if holds else 'does not hold':14} {statement}: {found}")
    if options.plot:
        plot(measured, options.plot)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
