"""The golden set: numbers and verdicts of jobs of every kind, so that code may be moved freely and compared afterwards.

::

    python tests/golden/record.py OUT.json                  record, with the coremargin that can be imported; goes on
                                                            with OUT.part where an earlier recording was ended
    python tests/golden/record.py OUT.json --only 'hinge*'  some jobs, by a pattern of their names
    python tests/golden/record.py compare OLD NEW           what differs, by job and key; exit code 1 if anything does
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from golden_compare import compare
from golden_data import DATA
from golden_others import OTHERS
from golden_recorder import Record
from golden_table import Job, table

#: Of jobs that do not say theirs: the default is what the machine has to spare.
MEMORY = "1GiB"
MANNERS = {"": "threads", "c": "cluster", "s": "stopped", "k": "killed"}
#: Moves of files after which a run is killed: late ones first, for runs that have so many.
KILLED_AFTER = (25, 9, 3)
DAY = 86400.0
HERE = Path(__file__).parent


@contextmanager
def day(number: int) -> Iterator[None]:
    """Commits are made on that day: rows expire by when they came."""
    with mock.patch("time.time", return_value=1.7e9 + number * DAY):
        yield


def changes(store: Path, rows: int, classes: list[Any]) -> dict[str, tuple[int, list[Any]]]:
    """The ways in which a store changes, as days and commands; relabelling comes last, for margins end with it."""
    some = np.random.default_rng(8).permutation(np.arange(rows // 4, rows))[:6].tolist()
    folder = store.parent
    weights = [f"{row},{weight}\n" for row, weight in zip(some[:3], (0, 0.5, 2), strict=True)]
    (folder / "weights.csv").write_text("".join(["row,weight\n", *weights]))
    (folder / "labels.csv").write_text("".join(["row,label\n", *(f"{row},{classes[row % 2]}\n" for row in some[3:])]))
    gone = [row for row in range(rows // 4, rows) if row not in some][:: max(1, rows // 8)]
    return {
        "append": (100, []),
        "remove": (101, ["remove", store, *gone]),
        "reweigh": (102, ["reweigh", store, folder / "weights.csv"]),
        "expire": (103, ["expire", store, "--older-than", "90 days", "--force"]),
        "relabel": (104, ["relabel", store, folder / "labels.csv"]),
    }


class Golden:
    """Records jobs; what they leave lies in a folder, which each job finds empty but for stores.

    part: a file to which each record is appended as it is made; the jobs that it has already are not done again.
    """

    def __init__(self, folder: Path, pattern: str = "*", part: Path | None = None) -> None:
        self.folder, self.pattern, self._part = folder, pattern, part
        lines = part.read_text().splitlines() if part is not None and part.exists() else []
        self.records: dict[str, dict[str, Any]] = dict(map(json.loads, lines))
        self._kept, self._cluster = ExitStack(), ""
        self._stores, self._appended = dict[str, Path](), dict[str, list[str]]()

    def close(self) -> None:
        """End the cluster."""
        self._kept.close()

    def add(self, name: str, job: Callable[[Record], None]) -> None:
        """Record one job, if it is wanted and not there."""
        if name in self.records or not fnmatch.fnmatch(name, self.pattern):
            return
        started, record = time.process_time(), Record(self.folder / "job")
        try:
            job(record)
        except Exception as error:
            if self._part is None:
                raise
            record["broken"] = f"{type(error).__name__}: {error}"
        shutil.rmtree(record.folder)
        self._put(name, record)
        if self._part is not None:
            told = record.get("broken", f"{len(record)} values, {time.process_time() - started:.1f} s")
            sys.stderr.write(f"{name}: {told}\n")

    def _put(self, name: str, record: Record) -> None:
        self.records[name] = record
        if self._part is not None:
            with self._part.open("a") as file:
                file.write(json.dumps([name, record], sort_keys=True) + "\n")

    def store(self, name: str) -> Path:
        """The store of some rows, of two commits; files of the rows that are appended later lie beside it."""
        if name not in self._stores:
            self._stores[name] = path = self.folder / f"{name}.zarr"
            rows, record = DATA[name](), Record(self.folder / name)
            for part, (when, words) in enumerate([(0, ["--chunk-size", f"{rows.chunk}B"]), (60, ["--append"])]):
                source, *beside = rows.write(record.folder, name, part)
                with day(when):
                    record.run(f"ingest-{part}", "ingest", source, path, *beside, *words)
            self._appended[name] = rows.write(record.folder, name, 2)
            record.store("store", path)
            self._put(f"store {name}", record)
        return self._stores[name]

    @property
    def cluster(self) -> str:
        """The address of a cluster of two worker processes, which is started when it is first wanted."""
        if not self._cluster:
            from distributed import LocalCluster

            started = self._kept.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None))
            file = self.folder / "cluster.toml"
            file.write_text(f'kind = "address"\naddress = "{started.scheduler_address}"\ninsecure = true\n')
            self._cluster = str(file)
        return self._cluster

    @property
    def embedded(self) -> str:
        """The file of a cluster that a job starts for itself."""
        file = self.folder / "embedded.toml"
        file.write_text('kind = "embedded"\nworkers = 2\nthreads = 1\n')
        return str(file)

    def perform(self, record: Record, step: str, manner: str, words: list[Any]) -> None:
        """Run a command that trains: in one go, stopped after a scan and resumed, or killed and resumed."""
        words = [*words, "--cluster", self.cluster if manner == "cluster" else "threads", "--json"]
        out = Path(words[words.index("--out") + 1])
        if manner == "stopped":
            record.run(f"{step}/stopped", *words, "--max-scans", 1)
            if record[f"{step}/stopped/exit"] == 0:
                return
            words.append("--resume")
        for after in KILLED_AFTER if manner == "killed" else ():
            command = [sys.executable, HERE / "killed.py", str(after), *words]
            done = subprocess.run(list(map(str, command)), capture_output=True, check=False)
            if done.returncode < 0:
                words.append("--resume")
                break
            shutil.rmtree(out, ignore_errors=True)  # it came to its end before
        record.run(step, *words)

    def train(self, job: Job, manner: str, record: Record) -> None:
        """Train, verify, and retrain after each change of the store."""
        store, model = self.store(job.data), record.folder / "model"
        own = ["--kernel", job.options[1]] if ":" in " ".join(job.options) else []
        words = ["train", store, "--out", model, *job.options]
        self.perform(record, "train", manner, words if "--memory" in words else [*words, "--memory", MEMORY])
        if not model.exists():
            return
        record.run("verify", "verify", model, store, "--json", *own)
        record.model("model", model)
        if manner == "threads" and "u" in job.how:
            record.run("predict", "predict", model, store, record.folder / "labels.zarr", "--json", *own)
            if record["predict/exit"] == 0:  # of several models none may be chosen
                record.arrays("predict", record.folder / "labels.zarr")
            record.run("evaluate", "evaluate", model, store, "--json", *own)
            record.run("show", "show", model, "--json")
            record.run("coefficients", "coefficients", model, "--json")
            record.run("outliers", "outliers", model, "--json")
        if manner == "threads" and "m" in job.how:
            record.mutations("forged", model, store, *own)
        if "r" in job.how:
            self.retrain(record, job, manner, model, own)

    def retrain(self, record: Record, job: Job, manner: str, model: Path, own: list[str]) -> None:
        """Retrain after each change of a copy of the store."""
        store = record.folder / "changed.zarr"
        shutil.copytree(self.store(job.data), store)
        known = json.loads((store / "zarr.json").read_text())["attributes"]
        few = manner != "threads" or job.data.startswith("big")
        memory = job.options[job.options.index("--memory") + 1] if "--memory" in job.options else MEMORY
        for number, (name, (when, command)) in enumerate(changes(store, known["rows"], known["classes"]).items()):
            if few and number > 1:
                break
            if name == "append":
                source, *beside = self._appended[job.data]
                command = ["ingest", source, store, *beside, "--append"]
            with day(when):
                record.run(f"{name}/change", *command)
            record.run(f"{name}/info", "info", store, "--json")
            new = record.folder / f"model-{name}"
            self.perform(record, name, manner, ["retrain", model, store, "--out", new, "--memory", memory, *own])
            if new.exists():
                record.run(f"{name}/verify", "verify", new, store, "--json", *own)
                record.model(f"{name}/model", new)
                model = new


def recorded(folder: Path, pattern: str = "*", part: Path | None = None) -> dict[str, dict[str, Any]]:
    """All jobs whose names have the pattern: in one go by threads first, then in every other manner that they have."""
    golden = Golden(folder, pattern, part)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for letter, manner in MANNERS.items():
                for job in table():
                    if letter in job.how:
                        golden.add(f"{job.name} {manner}", partial(golden.train, job, manner))
                if manner == "threads":
                    for name, other in OTHERS.items():
                        golden.add(name, partial(other, golden))
    finally:
        golden.close()
    return golden.records


def main() -> int:
    """Record, or compare."""
    if sys.argv[1:2] == ["compare"]:
        parser = argparse.ArgumentParser(prog="record.py compare")
        parser.add_argument("files", nargs=2, type=Path)
        parser.add_argument("--only", default="*", metavar="PATTERN", help="jobs by their names")
        parser.add_argument("--ignore", metavar="REGEX", help="keys to leave out")
        parser.add_argument("--all", action="store_true", help="every key that differs")
        args = parser.parse_args(sys.argv[2:])
        return compare(args.files, only=args.only, ignore=args.ignore, everything=args.all)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="jobs by their names, such as 'hinge*'")
    args = parser.parse_args()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="golden-", dir=memory if os.access(memory, os.W_OK) else None) as folder:
        part = args.out.with_suffix(".part")
        records = recorded(Path(folder), args.only, part)
    args.out.write_text(json.dumps(records, indent=0, sort_keys=True) + "\n")
    part.unlink()
    return 0


if __name__ == "__main__":
    if "OPENBLAS_NUM_THREADS" not in os.environ:  # before NumPy is loaded: the same sums on any number of cores
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"OPENBLAS_NUM_THREADS": "1"})  # noqa: S606
    sys.exit(main())
