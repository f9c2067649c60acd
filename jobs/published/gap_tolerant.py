"""Jebara's figures of gap-tolerant classifiers in the plane: `python jobs/published/gap_tolerant.py [--plot FILE]`.

A gap-tolerant classifier is a line with a margin M between its classes; it counts rows within a disc, or an ellipse,
and outside of the margin. Three points can be labelled in all ways (h = 3) while each of them is at least M from the
segment between the two others: the largest such M is searched for over all triples of points. The lecture states 3a/2
for the disc of radius a, and 6 a^2 b / (b^2 + 3 a^2) for the ellipse with half axes a and b. Its general formula, h <=
min(ceil(D^2 / M^2), d) + 1 with D = 2a, gives 3 for all M below 2a: it is a bound, and not sharp in the plane.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from curves import Panel, draw
from scipy.optimize import minimize

from coremargin.maths.published_bounds import vc_dimension

Point: TypeAlias = tuple[float, float]

#: Half axes b of the ellipses, a being 1; searches that start anywhere.
HALF_AXES, STARTS = (0.25, 0.5, 0.7, 0.85, 1.0, 1.5, 2.0), 12
#: A search ends that near to the largest margin, relatively.
NEAR = 1e-4


def lecture_margin(b: float, a: float = 1.0) -> float:
    """The lecture's largest margin for three points in an ellipse."""
    return 6 * a**2 * b / (b**2 + 3 * a**2)


def distance(p: Point, q: Point, r: Point) -> float:
    """The distance of p from the segment between q and r."""
    x, y = r[0] - q[0], r[1] - q[1]
    size = x * x + y * y
    t = min(1.0, max(0.0, ((p[0] - q[0]) * x + (p[1] - q[1]) * y) / size)) if size else 0.0
    return math.hypot(p[0] - q[0] - t * x, p[1] - q[1] - t * y)


def distances(points: Sequence[Point]) -> list[float]:
    """Of each of three points from the segment between the others."""
    p, q, r = points
    return [distance(p, q, r), distance(q, r, p), distance(r, p, q)]


def points_of(numbers: Sequence[float], b: float) -> list[Point]:
    """Three points in the ellipse with half axes 1 and b, from three angles and three numbers for their depths."""
    found = []
    for angle, depth in zip(numbers[:3], numbers[3:], strict=True):
        radius = 1.0 / (1.0 + depth**2)
        found.append((radius * math.cos(angle), b * radius * math.sin(angle)))
    return found


def largest_margin(b: float, starts: int = STARTS) -> float:
    """The largest margin for which three points in the ellipse can be labelled in all ways.

    Three angles, three depths and M, largest subject to distances of at least M (SLSQP from random starts).
    """
    rng = np.random.default_rng(0)
    room = {"type": "ineq", "fun": lambda x: np.array(distances(points_of(x[:6].tolist(), b))) - x[6]}
    best = 0.0
    for _ in range(starts):
        start = np.concatenate([rng.uniform(0, 2 * np.pi, 3), rng.normal(0, 0.3, 3), [0.0]])
        found = minimize(lambda x: -x[6], start, method="SLSQP", constraints=[room], options={"ftol": 1e-12})
        best = max(best, min(distances(points_of(found.x[:6].tolist(), b))))
    return best


def statements(found: dict[float, float]) -> list[tuple[str, str, bool]]:
    """What the lecture states, what is found, and whether it holds; found: the largest margins by b."""
    flat = [b for b in found if b <= 1.0]
    long = [b for b in found if b > 1.0]
    swapped = all(abs(found[b] / (b * lecture_margin(1 / b)) - 1) < NEAR for b in long)
    return [
        ("three points in a disc up to M = 3a/2", f"up to {found[1.0]:.5f} a", abs(found[1.0] / 1.5 - 1) < NEAR),
        (
            "three points in an ellipse up to 6 a^2 b / (b^2 + 3 a^2), b at most a",
            ", ".join(f"b {b:g}: {found[b]:.5f}" for b in flat),
            all(abs(found[b] / lecture_margin(b) - 1) < NEAR for b in flat),
        ),
        (
            "the same, b above a",
            f"b {long[-1]:g}: {found[long[-1]]:.5f} for {lecture_margin(long[-1]):.5f}"
            + ("; it holds with a and b exchanged" if swapped else ""),
            all(abs(found[b] / lecture_margin(b) - 1) < NEAR for b in long),
        ),
        (
            "the general formula is a bound: h <= 3 wherever three points can be labelled",
            "h at most 3 up to M = 2a, of which three points allow 3a/2",
            all(vc_dimension(1.0, found[b] / 2, 2) >= 3 for b in flat),
        ),
        (
            "ellipses have a lower VC dimension than spheres: 2 for 3 between the two limits",
            f"b 0.5: from {found[0.5]:.4f} to {found[1.0]:.4f}",
            all(found[b] < found[1.0] for b in flat if b < 1.0),
        ),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="SVG")
    options = parser.parse_args()
    found = {b: largest_margin(b) for b in HALF_AXES}
    print("half axis b   largest margin   lecture   (a = 1)")
    for b, margin in found.items():
        print(f"{b:11g} {margin:16.6f} {lecture_margin(b):9.6f}")
    print()
    for statement, text, holds in statements(found):
        print(f"{'holds' if holds else 'does not hold':14} {statement}: {text}")
    if options.plot:
        axes = np.linspace(0.2, 2.0, 37)
        lines = {
            "largest margin, searched for": list(found.items()),
            "disc around it, 3/2 max(a, b)": [(b, 1.5 * max(1.0, b)) for b in axes],
            "general formula with that disc, 2 max(a, b)": [(b, 2.0 * max(1.0, b)) for b in axes],
        }
        published = [(b, lecture_margin(b)) for b in HALF_AXES]
        note = "circles: the lecture's 6 a^2 b / (b^2 + 3 a^2)"
        draw(options.plot, [Panel("Three points up to M (a = 1)", "half axis b", lines, published, 0.0)], note)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
