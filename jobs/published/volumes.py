"""Theorems 1 and 2 of Louche and Ralaivola 2015, and their Figure 1: `python jobs/published/volumes.py [--plot FILE]`.

Theorem 1 (Grünbaum): a hyperplane through the centre of gravity of a convex body leaves at least 1/e of its volume on
either side. So cuts that remove the centre leave at most (1 - 1/e)^t of the volume after t planes. Theorem 2 is about
points near that centre: at least (1 - lambda)^d / e. Its lambda contains a constant that only a supplement states, so
that the share itself is measured here, and held against the statement of Bertsimas and Vempala 2004 (*Solving convex
programs by random walks*, Theorem 3): at least 1/e - t at a distance t from the centre, in coordinates in which the
body has the identity for its covariance.

Version spaces of random rows of length 1; points of hit-and-run walks measure volumes, and their mean is the centre of
gravity. Shares have the standard errors of means over independent walks; statements hold up to two of them.

1. The least share on one side of hyperplanes with random normals through each centre.
2. The volume after t planes, the nearest of the rows that the centre misclassifies being the next plane.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
from curves import Panel, draw
from numpy.typing import NDArray

from coremargin.maths.active.centres import CENTRES, CentreName
from coremargin.maths.active.cutting_planes import smallest_error
from coremargin.maths.active.version_space import VersionSpace
from coremargin.maths.active.walks import WALKS, hit_and_run

Array = NDArray[np.float64]

DIMENSIONS, CONES, NORMALS = (2, 5, 10), 5, 200
CENTRE_NAMES = ("gravity", "ep", "analytic", "chebyshev", "perceptron")
#: Steps of a walk for shares, and for the volume that a plane leaves.
STEPS, VOLUME_STEPS = 1_000, 300
#: Rows and features of the second experiment, its runs, and its most planes.
ROWS, FEATURES, RUNS, PLANES = 400, 5, 3, 8


def random_rows(rng: np.random.Generator, count: int, features: int) -> Array:
    """Rows z = y x (n, d) of length 1 on one side of a random hyperplane."""
    w, z = rng.standard_normal(features), rng.standard_normal((count, features))
    z /= np.linalg.norm(z, axis=1)[:, None]
    return np.asarray(z * np.sign(z @ w)[:, None])


def space_of(z: Array) -> VersionSpace:
    """The version space of rows z (n, d)."""
    return VersionSpace.of(z, np.ones(len(z), np.int8))


def centre_of(name: str, space: VersionSpace, points: Array) -> Array:
    """The centre (q,) by name; points (k, q): of a walk through the space.

    The perceptron's has the mean length of points of a cone within the unit ball, q / (q + 1).
    """
    if name == "gravity":
        return np.asarray(points.mean(axis=0))
    if name == "perceptron":
        w = np.asarray(CENTRES["perceptron"](space, 0))
        return np.asarray(w / np.linalg.norm(w) * len(w) / (len(w) + 1))
    return np.asarray(CENTRES[cast("CentreName", name)](space, 0))


def share_and_error(inside: NDArray[np.bool_]) -> tuple[float, float]:
    """The share of points that are inside, and its standard error; inside (k,): points of WALKS walks, step by step."""
    each = inside.reshape(-1, WALKS).mean(axis=0)
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(WALKS))


def least_share(centre: Array, points: Array, others: Array, normals: Array) -> tuple[float, float]:
    """The share of points (k, q) on one side of the hyperplane through a centre that leaves least, and its error.

    others (k, q): points of other walks choose it among those with the given normals (m, q), and its side.
    """
    shares = ((others - centre) @ normals.T > 0).mean(axis=0)
    both = np.concatenate([normals, -normals])
    worst = both[int(np.concatenate([shares, 1 - shares]).argmin())]
    return share_and_error((points - centre) @ worst > 0)


def distance(centre: Array, points: Array) -> float:
    """How far a centre is from the mean of points (k, q), in units in which their covariance is the identity."""
    factor = np.linalg.cholesky(np.cov(points.T).reshape(points.shape[1], -1))
    return float(np.linalg.norm(np.linalg.solve(factor, centre - points.mean(axis=0))))


def measure_shares(dimensions: int, cones: int) -> dict[str, dict[str, float]]:
    """For each centre, over random cones: the least share, its error, and by how much 1/e - t is exceeded at least."""
    found = {name: {"share": 1.0, "error": 0.0, "above": 1.0, "distance": 0.0} for name in CENTRE_NAMES}
    for seed in range(cones):
        rng = np.random.default_rng([dimensions, seed])
        space = space_of(random_rows(rng, 4 * dimensions, dimensions))
        gravity_points, points = (hit_and_run(space, walk, STEPS) for walk in (2 * seed, 2 * seed + 1))
        normals = rng.standard_normal((NORMALS, space.dimensions))
        for name in CENTRE_NAMES:
            centre, one = centre_of(name, space, gravity_points), found[name]
            share, error = least_share(centre, points, gravity_points, normals)
            away = distance(centre, points)
            one["above"] = min(one["above"], share + 2 * error - (1 / math.e - away))
            one["distance"] = max(one["distance"], away)
            if share < one["share"]:
                one["share"], one["error"] = share, error
    return found


def measure_volumes(name: str, seed: int) -> list[float]:
    """Shares of the first volume that are left after 0, 1, ... planes, until the centre is in the version space.

    The first body is the half ball of the first row: the ball itself is symmetric, and its centre is its own.
    """
    z = random_rows(np.random.default_rng(seed), ROWS, FEATURES)
    planes, volumes = [0], [1.0]
    while len(planes) <= PLANES:
        # The other directions of the ball are as wide whatever the planes: add them as coordinates.
        held = z[planes]
        space = VersionSpace(held, np.eye(FEATURES), space_of(held).span)
        points = hit_and_run(space, seed, VOLUME_STEPS)
        scores = z @ centre_of(name, space, points)
        if scores.min() > 0:
            return volumes
        row = smallest_error(scores)
        volumes.append(volumes[-1] * float((points @ z[row] > 0).mean()))
        planes.append(row)
    return volumes


def measure(dimensions: tuple[int, ...], cones: int, runs: int) -> dict[str, Any]:
    """All figures."""
    shares = {size: measure_shares(size, cones) for size in dimensions}
    volumes = {name: [measure_volumes(name, seed) for seed in range(runs)] for name in CENTRE_NAMES}
    return {"shares": shares, "volumes": volumes}


def statements(found: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """What is stated, what is measured, and whether it holds."""
    least = [one["gravity"] for one in found["shares"].values()]
    worst = min(least, key=lambda one: float(one["share"]))
    above = {name: min(one[name]["above"] for one in found["shares"].values()) for name in CENTRE_NAMES}
    chebyshev_share = min(one["chebyshev"]["share"] for one in found["shares"].values())
    kept = [
        (volumes[t] / (1 - 1 / math.e) ** t, t)
        for volumes in found["volumes"]["gravity"]
        for t in range(1, len(volumes))
    ]
    return [
        (
            "Theorem 1: at least 1/e = .368 on either side, through the centre of gravity",
            f"{worst['share']:.3f} at least, standard error {worst['error']:.3f}",
            all(one["share"] + 2 * one["error"] >= 1 / math.e for one in least),
        ),
        (
            "volume at most (1 - 1/e)^t after t planes, with the centre of gravity",
            f"{max(kept)[0]:.2f} times that at most",
            max(kept)[0] <= 1.0,
        ),
        (
            "Theorem 1 does not carry over to the Chebyshev centre",
            f"{chebyshev_share:.3f} on one side",
            chebyshev_share < 1 / math.e,
        ),
        (
            "near the centre of gravity: at least 1/e - t at a distance t (Bertsimas, Vempala)",
            f"by {min(above.values()):.3f} more at least, of all centres",
            min(above.values()) >= 0,
        ),
    ]


def plot(found: dict[str, Any], file: Path) -> None:
    """Least shares against dimensions, and volumes against planes, as a picture."""
    shares = {
        name: [(float(size), one[name]["share"]) for size, one in found["shares"].items()] for name in CENTRE_NAMES
    }
    longest = max(len(volumes) for each in found["volumes"].values() for volumes in each)
    curves: dict[str, list[tuple[float, float]]] = {}
    for name in CENTRE_NAMES:
        each = found["volumes"][name]
        curves[name] = [
            (t, float(np.mean([math.log10(volumes[t]) for volumes in each if len(volumes) > t])))
            for t in range(longest)
            if sum(len(volumes) > t for volumes in each) * 2 >= len(each)
        ]
    bound = [(float(t), t * math.log10(1 - 1 / math.e)) for t in range(longest)]
    draw(
        file,
        [
            Panel("Least share through a centre", "dimensions", shares, ((2, 1 / math.e), (10, 1 / math.e)), 0.0, 0.5),
            Panel("Volume left, power of ten", "planes", curves, bound, None, 0.0),
        ],
        "circles: Theorem 1, 1/e on the left, (1 - 1/e)^t on the right",
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cones", type=int, default=CONES)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="SVG")
    options = parser.parse_args()
    found = measure(DIMENSIONS, options.cones, options.runs)
    print(f"least share on one side of {NORMALS} hyperplanes through a centre, {options.cones} cones each")
    for size, each in found["shares"].items():
        texts = (f"{name} {one['share']:.3f} (t {one['distance']:.2f})" for name, one in each.items())
        print(f"{size:3} dimensions: {', '.join(texts)}")
    print(f"volume left after planes, {ROWS} rows of {FEATURES} features, {options.runs} runs")
    for name, each in found["volumes"].items():
        planes = [len(volumes) - 1 for volumes in each]
        factor = np.exp(np.mean([math.log(volumes[-1]) / (len(volumes) - 1) for volumes in each]))
        print(f"{name:10} {np.mean(planes):5.1f} planes, a plane leaves {factor:.3f} of the volume")
    print()
    for statement, text, holds in statements(found):
        print(f"{'holds' if holds else 'does not hold':14} {statement}: {text}")
    if options.plot:
        plot(found, options.plot)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
