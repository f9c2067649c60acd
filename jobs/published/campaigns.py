"""Labels and scans of a campaign against rows and features, and how often its claim is false:
`python jobs/published/campaigns.py [--most 300000] [--runs 3] [--campaigns 100] [--json FILE] [--plot FILE]`.

Rows are normal, pushed apart by a plane so that none is nearer to it than MARGIN, 20,000 of them resident at most; a
claim is about an adversary's labels, who makes one row more wrong than may be whenever draws come (`jobs/bench`, part
i), with an error of 5 % and confidences of 1 - delta.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from curves import Panel, draw

from coremargin.active import Campaign
from coremargin.data.writer import StoreWriter

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))  # scripts there import each other, too
from false_claims import is_false

ROWS, FEATURES, MARGIN, RESIDENT = (3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000), (10, 20, 50), 0.5, 20_000
ERROR = 0.05  #: of a campaign; so that its draws are few
DELTAS = (0.05, 0.1, 0.2, 0.4)
AT_ONCE = 50_000  #: rows that are made at once


def made(path: Path, rows: int, features: int, seed: int) -> np.ndarray:
    """A store of such rows; which side of the plane each is on (n,)."""
    rng = np.random.default_rng([seed, rows, features])
    plane = rng.standard_normal(features)
    plane /= np.linalg.norm(plane)
    sides = list[np.ndarray]()
    with StoreWriter.create(path, features=features, dtype="float32") as writer:
        for begin in range(0, rows, AT_ONCE):
            X = rng.standard_normal((min(AT_ONCE, rows - begin), features))
            sides.append(X @ plane >= 0)
            X += MARGIN * np.where(sides[-1], 1, -1)[:, None] * plane
            writer.write(X.astype(np.float32), origin="made")
    return np.concatenate(sides)


def campaign(rows: int, features: int, seed: int) -> dict[str, int]:
    """Questions beside draws, draws, scans, and rows that are wrong, of a campaign that goes on to its end."""
    with TemporaryDirectory() as folder:
        sides = made(Path(folder) / "rows.zarr", rows, features, seed)
        memory, place = 8 * features * RESIDENT, Path(folder) / "c"
        with Campaign.create(
            place, Path(folder) / "rows.zarr", classes=[0, 1], error=ERROR, seed=seed, memory=memory
        ) as asked:
            status = asked.run(lambda wanted: {row: int(sides[row]) for row in wanted})
            if status["status"] != "certified":
                raise RuntimeError(f"expected a campaign that ends certified, found {status['status']}")
            w, b = asked.model.w, asked.model.b
            store = asked.store
            wrong = 0
            for chunk in range(store.chunks):
                X = store.read(chunk)[0]
                mine = sides[: len(X)]
                wrong, sides = wrong + int(((X @ w + b > 0) != mine).sum()), sides[len(X) :]
        return {
            "queries": status["labels"] - status["draws"], "draws": status["draws"], "scans": status["scans"],
            "wrong": wrong,
        }  # fmt: skip


def scaled(most: int, runs: int) -> list[dict[str, Any]]:
    """Means over some runs, of all sizes up to one."""
    found = list[dict[str, Any]]()
    for features in FEATURES:
        for rows in (one for one in ROWS if one <= most):
            each = [campaign(rows, features, seed) for seed in range(runs)]
            means = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
            found.append({"rows": rows, "features": features, **means})
            told = ", ".join(f"{value:.1f} {name}" for name, value in means.items())
            print(f"{rows:>9,} x {features}: {told}", flush=True)
    return found


def covered(campaigns: int) -> list[tuple[float, float]]:
    """What share of the claims is false, by delta."""
    found = list[tuple[float, float]]()
    for delta in DELTAS:
        share = sum(is_false(seed, 2, 1 - delta) for seed in range(campaigns)) / campaigns
        print(f"delta {delta}: {share:.3f} of {campaigns:,} claims are false", flush=True)
        found.append((delta, share))
    return found


def plot(file: Path, sizes: list[dict[str, Any]], claims: list[tuple[float, float]], note: str) -> None:
    """Questions and scans against rows, false claims against what may be false."""

    def lines(name: str) -> dict[str, list[tuple[float, float]]]:
        return {
            f"{features} features": [(np.log10(one["rows"]), one[name]) for one in sizes if one["features"] == features]
            for features in sorted({one["features"] for one in sizes})
        }

    ends = (0.0, max(DELTAS))
    panels = [
        Panel("Questions beside draws", "log10 of the rows", lines("queries"), low=0.0),
        Panel("Scans of all rows", "log10 of the rows", lines("scans"), low=0.0),
        Panel("False claims, as a share", "delta", {"measured": claims, "may be": list(zip(ends, ends, strict=True))},
              low=0.0),
    ]  # fmt: skip
    draw(file, panels, note)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=300_000, help="rows")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--campaigns", type=int, default=100)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="SVG")
    options = parser.parse_args()
    sizes, claims = scaled(options.most, options.runs), covered(options.campaigns)
    if options.plot:
        note = f"margin {MARGIN}, {options.runs} runs each; {options.campaigns:,} campaigns against an adversary"
        plot(options.plot, sizes, claims, note)
    if options.json:
        options.json.write_text(json.dumps({"sizes": sizes, "claims": claims}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
