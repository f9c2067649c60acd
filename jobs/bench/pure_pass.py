"""One pure pass over a store: what any method that looks at all rows once must pay.

Every byte of rows and labels is read, each row is multiplied with one direction, the smallest y w.x is kept. It is a
probe like that of training and runs through the same scan, blocks, reader and executor. As a script it is the whole
process to hold against ``coremargin train``::

    python jobs/bench/pure_pass.py STORE [--cluster embedded] [--passes 1]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.store import Store
from coremargin.engine.clusters.connect import connect
from coremargin.engine.clusters.specs import load_cluster
from coremargin.engine.plan import plan_blocks
from coremargin.engine.scan import run_scan

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block, Executor


@dataclass(frozen=True)
class PassSummary:
    """The smallest y w.x and the number of rows seen."""

    smallest: float
    rows: int

    def merge(self, later: PassSummary) -> PassSummary:
        """Both together."""
        return PassSummary(min(self.smallest, later.smallest), self.rows + later.rows)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For checkpoints."""
        return {"smallest": np.array([self.smallest]), "rows": np.array([self.rows])}


@dataclass(frozen=True)
class PurePass:
    """The question: w (d,) in the store's dtype, signs (c + 1,) by label code; the last is for code -1, no label."""

    w: np.ndarray
    signs: np.ndarray

    @classmethod
    def of(cls, source: Source, seed: int = 0) -> PurePass:
        """A random direction; classes alternate between -1 and 1."""
        w = np.random.default_rng(seed).standard_normal(source.features)
        signs = np.append(np.resize([-1.0, 1.0], len(source.classes)), 0.0)
        return cls((w / np.linalg.norm(w)).astype(source.dtype), signs.astype(source.dtype))

    def narrow(self, _: Block) -> PurePass:
        """The same question."""
        return self

    def empty(self) -> PassSummary:
        """The answer for no rows."""
        return PassSummary(np.inf, 0)

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> PassSummary:
        """Inverse of ``PassSummary.to_arrays``."""
        return PassSummary(float(arrays["smallest"][0]), int(arrays["rows"][0]))

    def __call__(self, source: Source, block: Block) -> PassSummary:
        """Answer for one block, chunk by chunk."""
        smallest, seen = np.inf, 0
        for chunk in block.chunks:
            rows, codes = source.read(chunk)
            values = rows @ self.w
            values *= self.signs[codes]
            smallest, seen = min(smallest, float(values.min())), seen + len(rows)
        return PassSummary(smallest, seen)


def one_pass(source: Source, executor: Executor) -> PassSummary:
    """Read everything once, in the blocks that training uses by default."""
    return run_scan(executor, source, PurePass.of(source), plan_blocks(source))  # type: ignore[return-value]


def main(argv: Sequence[str] | None = None) -> None:
    """Pass over a store and print one JSON object."""
    parser = argparse.ArgumentParser(description="Read a store once: one product per row, one minimum.")
    parser.add_argument("store")
    parser.add_argument("--cluster", help="as for coremargin train")
    parser.add_argument("--passes", type=int, default=1)
    args = parser.parse_args(argv)
    source = Store.open(args.store)
    seconds: list[float] = []
    answer = PassSummary(np.inf, 0)
    with connect(load_cluster(args.cluster), source) as executor:
        for _ in range(args.passes):
            started = time.perf_counter()
            answer = one_pass(source, executor)
            seconds.append(time.perf_counter() - started)
        found: dict[str, Any] = {
            "smallest": answer.smallest, "rows": answer.rows, "seconds": seconds, "store_bytes": source.nbytes,
            "bytes_read": source.nbytes * args.passes, "peak_rss_bytes": executor.peak_rss_bytes(),
        }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
