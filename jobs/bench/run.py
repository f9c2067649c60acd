"""The bench: one command, one table, ratios from one run. What is measured and how to read it: jobs/bench/README.md.

::

    python jobs/bench/run.py                        everything, half an hour or more
    python jobs/bench/run.py --quick                tiny sizes, a minute or two: tells whether it runs, not how fast
    python jobs/bench/run.py --only a,c             some parts
    python jobs/bench/run.py --only d --sizes 30    one large store
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import machine
from against_grid import against_grid
from against_pass import against_pass
from against_peers import against_peers
from against_soft_peers import against_soft_peers
from batches import batches
from buckets import buckets
from few_labels import few_labels
from kernel_machines import kernel_machines
from kinds_of_updates import kinds_of_updates
from large import large
from many_updates import many_updates
from one_class import one_class
from outlier_search import outlier_search
from scale import sizes, workers
from sequences import sequences
from slots import slots
from stores import Settings
from strategies import strategies
from table import Group, as_json, as_markdown, as_text
from updates import updates

from tables import tables

PARTS: dict[str, tuple[str, Callable[[Settings], Iterable[Group]]]] = {
    "a": ("train against one pure pass", against_pass),
    "b": ("against the paper's strategy", strategies),
    "c": ("against scikit-learn", against_peers),
    "d": ("memory and time against size", sizes),
    "e": ("one worker against two", workers),
    "f": ("with a loss, against six other tools", against_soft_peers),
    "g": ("ten values of C by the same scans", against_grid),
    "h": ("outliers: the search, against enumeration, a MILP and cleanlab", outlier_search),
    "i": ("few labels: a campaign, against random labels", few_labels),
    "j": ("stores of terabytes: what the driver needs", large),
    "k": ("tables of mixed columns: into a store", tables),
    "l": ("updates of new rows: retraining", updates),
    "m": ("two hundred updates of random changes: retraining", many_updates),
    "n": ("batches of hashed text: partial_fit, against SGDClassifier", batches),
    "o": ("updates of new rows: retraining several kinds of models", kinds_of_updates),
    "p": ("machines with kernels, from disk, against LIBSVM", kernel_machines),
    "q": ("balls, soft balls and ellipsoids around rows without labels", one_class),
    "r": ("a thousand worker threads: how many are busy", slots),
    "s": ("rows in a bucket: training against the same files", buckets),
    "t": ("sequences that are labelled together: reads, CPU seconds, accuracy", sequences),
}
REPOSITORY = Path(__file__).resolve().parents[2]


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description="Measure coremargin: " + "; ".join(f"({key}) {what}" for key, (what, _) in PARTS.items()) + "."
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: whether it runs, not how fast")
    parser.add_argument("--only", type=_parts, default=tuple(PARTS), metavar="a,b,...", help="some parts")
    parser.add_argument("--sizes", type=_sizes, metavar="1,4,16", help="GB of the stores of part d")
    parser.add_argument("--large", action="store_true", help="parts i and l on 4 GB, too")
    parser.add_argument("--repetitions", type=int, help="runs of each thing that is timed (default 5)")
    parser.add_argument("--limit", type=float, help="seconds for one scikit-learn method (default 45)")
    parser.add_argument("--data", type=Path, default=REPOSITORY.parent / "shared" / "data", help="folder of real data")
    parser.add_argument("--work", type=Path, help="folder for stores, kept and used again; default: a temporary one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table for the README")
    return parser.parse_args(argv)


def _parts(text: str) -> tuple[str, ...]:
    wanted = tuple(part.strip() for part in text.split(","))
    unknown = sorted(set(wanted) - set(PARTS))
    if unknown:
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(PARTS)}, got {', '.join(unknown)}")
    return wanted


def _sizes(text: str) -> tuple[float, ...]:
    found = tuple(float(size) for size in text.split(","))
    if min(found) <= 0:
        raise argparse.ArgumentTypeError(f"expected sizes above 0, got {text}")
    return found


def settings_of(args: argparse.Namespace, work: Path) -> Settings:
    """Sizes and limits for what was asked."""
    settings = Settings(work=work, data=args.data)
    if args.quick:
        settings = replace(
            settings, rows=20_000, features=20, repetitions=2, sizes=(0.004, 0.008), workers_gb=0.004, small_rows=500,
            small_features=3, max_scans=40, strategy_s=5, peer_s=3, real=("mnist",),
            flipped=(10,), soft=(), labelled=((5_000, 5),), pairs=("usps_zero_one",), campaigns=5,
            terabytes=(0.01,), taxi_rows=20_000, hashed=1 << 12, texts=500,
            slots=(6, 2, 40, 0.1),
        )  # fmt: skip
    if args.large:
        settings = replace(settings, labelled=(*settings.labelled, (10_000_000, 100)), large_rows=10_000_000)
    given = {"sizes": args.sizes, "repetitions": args.repetitions, "peer_s": args.limit}
    return replace(settings, **{name: value for name, value in given.items() if value is not None})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts and print the table; 1 when a part failed (the others are still shown)."""
    args = arguments(argv)
    facts, failed = machine.facts(), False
    groups: list[Group] = []
    with ExitStack() as stack:
        if args.work is None:
            args.work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coremargin-bench-")))
        args.work.mkdir(parents=True, exist_ok=True)
        settings = settings_of(args, args.work)
        for part in args.only:
            what, measure = PARTS[part]
            started = time.perf_counter()
            print(f"({part}) {what} ...", file=sys.stderr, flush=True)
            try:
                for group in measure(settings):
                    groups.append(group)
                    print(as_text([group], {}), file=sys.stderr, flush=True)
            except Exception as error:  # noqa: BLE001  an hour of other parts is worth keeping
                failed = True
                groups.append(Group(part, f"{what}: FAILED: {type(error).__name__}: {error}"))
            print(f"({part}) {time.perf_counter() - started:.0f} s, load {machine.load()}", file=sys.stderr, flush=True)
    facts["load average at the end"] = machine.load()
    print(as_text(groups, facts))
    if args.json:
        args.json.write_text(json.dumps(as_json(groups, facts), indent=1) + "\n", encoding="utf-8")
    if args.markdown:
        args.markdown.write_text(as_markdown(groups, facts), encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
