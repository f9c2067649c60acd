"""Streams through a pipe: peak memory of a long one next to a short one, and kills that change nothing.

    python jobs/bench/streams.py [--rows 2000000] [--features 50] [--kills 50] [--folder FOLDER]

A producer writes an Arrow stream of labelled rows into a pipe, and `coremargin active stream - --label label` reads it.
The error is so small that no run of rows is long enough for a trial: every row is read. First a stream of 20,000 rows,
then the long one without a kill, then the same one killed at moments drawn by lot and continued with --from-start.
Prints the peaks of resident memory, and whether the results are the same to the byte, but for times.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

SHORT, PART = 20_000, 10_000
ERROR = "1e-7"


def produce(rows: int, features: int) -> None:
    """Write the stream to standard output until nobody reads it."""
    plane = np.random.default_rng(0).normal(size=features)
    plane /= np.linalg.norm(plane)
    names = [f"f{k}" for k in range(features)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("label", pa.int8())])
    with pa.ipc.new_stream(sys.stdout.buffer, schema) as writer:
        for first in range(0, rows, PART):
            X = np.random.default_rng([1, first]).normal(size=(min(PART, rows - first), features))
            side = np.where(X @ plane > 0, 1, -1)
            X += 0.3 * side[:, None] * plane
            columns = [pa.array(X[:, k].astype(np.float32)) for k in range(features)]
            writer.write_batch(pa.record_batch([*columns, pa.array(side.astype(np.int8))], schema=schema))


def stream(rows: int, features: int, out: Path, kill_after: float | None = None) -> tuple[int, float]:
    """Peak KiB and seconds of a process that reads the stream; the peak is 0 if it was killed."""
    words = [sys.executable, __file__, "--produce", "--rows", str(rows), "--features", str(features)]
    read = [sys.executable, "-m", "coremargin", "active", "stream", "-", "--label", "label", "--out", str(out)]
    read += ["--error", ERROR, "--from-start", "--quiet"]
    began = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as producer:
        with subprocess.Popen(read, stdin=producer.stdout, stdout=subprocess.DEVNULL) as reader:
            producer.stdout.close()  # type: ignore[union-attr]
            if kill_after is not None:
                try:
                    reader.wait(kill_after)
                except subprocess.TimeoutExpired:
                    reader.kill()
            _, status, usage = os.wait4(reader.pid, 0) if reader.returncode is None else (0, 0, None)
            reader.returncode = reader.returncode if usage is None else os.waitstatus_to_exitcode(status)
            if usage is not None and reader.returncode not in (0, 4, -9):
                raise SystemExit(f"the stream ended with exit code {reader.returncode}")
            ended = usage is not None and reader.returncode != -9
        producer.kill()
    return (usage.ru_maxrss if ended and usage is not None else 0), time.monotonic() - began


def content(out: Path) -> dict[str, bytes]:
    """The files of a result, but for those that say when its store was made."""
    result = out / "result"
    files = [path for path in result.rglob("*") if path.is_file() and path.name not in ("log.jsonl", "zarr.json")]
    return {str(path.relative_to(result)): path.read_bytes() for path in files}


def main() -> None:
    """Run the three streams."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--produce", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.produce:
        produce(asked.rows, asked.features)
        return
    folder = asked.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    short, _ = stream(SHORT, asked.features, folder / "short")
    whole, seconds = stream(asked.rows, asked.features, folder / "whole")
    print(f"{SHORT:,} rows: {short / 1024:.1f} MiB; {asked.rows:,} rows: {whole / 1024:.1f} MiB in {seconds:.0f} s")
    print(f"more: {(whole - short) / 1024:.1f} MiB", flush=True)
    rng, kills = np.random.default_rng(0), 0
    while kills < asked.kills:
        peak, _ = stream(asked.rows, asked.features, folder / "killed", rng.uniform(1.0, seconds))
        if peak:
            shutil.rmtree(folder / "killed")  # it came to its end before: begin again
        kills += not peak
    stream(asked.rows, asked.features, folder / "killed")
    same = content(folder / "killed") == content(folder / "whole")
    print(f"killed {kills} times: {'the same bytes' if same else 'ANOTHER RESULT'}")
    if not asked.folder:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
