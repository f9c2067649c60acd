"""(s) Rows in a bucket: training against the same rows in files, with the latency of a service, and with its faults.

The service is the server of the tests, in a process of its own: 30 ms to the first byte, 90 MB/s per connection. With
faults, 5 % of its answers are 503, 5 % break off in the middle, and 2 % have a flipped bit.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from measure import Sample, coremargin_command, interleaved, paired_ratio, run_process
from table import Group
from training import trained_row

if TYPE_CHECKING:
    from stores import Settings

_SERVER = Path(__file__).resolve().parents[2] / "tests" / "cloud" / "cloud_kit.py"
_SPEED = ("--delay", "0.03", "--megabytes", "90")
_FAULTS = ("--busy", "0.05", "--reset", "0.05", "--flip", "0.02")
_CLUSTERS = {"threads": "2 threads", "embedded": "worker processes"}


@contextmanager
def served(folder: Path, *faults: str) -> Iterator[str]:
    """The endpoint of a server of the buckets in a folder."""
    words = [sys.executable, str(_SERVER), str(folder), *_SPEED, *faults]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip() if process.stdout else ""
        finally:
            process.kill()


def train_at(address: str, *words: str, out: Path, cluster: str, epsilon: float) -> Sample:
    """``coremargin train`` as a process; its answer also has the CPU seconds of all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    fixed = ("train", address, "--out", out, "--overwrite", "--restart", "--epsilon", epsilon, "--json", "-q")
    found = run_process(coremargin_command(*fixed, "--cluster", cluster, *words), allowed=(0, 4))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Sample(found.seconds, {**found.answer, "cpu": cpu, "bytes": (out / "arrays.npz").read_bytes()})


def buckets(settings: Settings) -> list[Group]:
    """Files, a bucket, and a bucket whose service fails, by threads and by worker processes."""
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_REGION": "us-east-1"}
    store = settings.synthetic(settings.rows, settings.features, "bucket")
    bucket = settings.work / "served" / "bench"
    bucket.mkdir(parents=True, exist_ok=True)
    if not (bucket / "rows.zarr").exists():
        (bucket / "rows.zarr").symlink_to(store.resolve())
    size = sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) / 1e9
    out, groups = settings.work / "bucket.model", list[Group]()
    with served(bucket.parent) as fine, served(bucket.parent, *_FAULTS) as failing:
        for cluster, title in _CLUSTERS.items():
            train = partial(train_at, out=out, cluster=cluster, epsilon=settings.epsilon)
            at = {"files": (str(store),)} | {
                name: ("s3://bench/rows.zarr", "--storage-option", f"endpoint={endpoint}")
                for name, endpoint in (("a bucket", fine), ("a bucket with faults", failing))
            }
            found = interleaved({name: partial(train, *words) for name, words in at.items()}, settings.repetitions)
            group = Group("s", f"training on {size:.2f} GB of files and of a bucket, {title}")
            for name, samples in found.items():
                pairs = zip(samples, found["files"], strict=True)
                more = statistics.median((one.answer["cpu"] - file.answer["cpu"]) / size for one, file in pairs)
                same = all(one.answer["bytes"] == found["files"][0].answer["bytes"] for one in samples)
                note = "" if name == "files" else f"{more:+.2f} CPU s per GB; {'same' if same else 'OTHER'} bits"
                group.rows.append(trained_row(name, samples, ratio=paired_ratio(samples, found["files"]), note=note))
            groups.append(group)
    return groups
