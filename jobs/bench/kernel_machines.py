"""(p) Machines with kernels, from disk: what a certificate over all rows costs, and what LIBSVM takes for its own.

As a script, one method in a process of its own, which ends with a line of JSON::

    python jobs/bench/kernel_machines.py METHOD STORE TEST OPTIONS
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from measure import Sample, interleaved_within, median, run_process, script_command, spread
from table import Group, Row

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.task import high_water_bytes

if TYPE_CHECKING:
    from stores import Settings

#: By data: its title, what it is asked, the store that answers are judged by, and whether LIBSVM takes part.
DATA: dict[str, tuple[str, dict[str, Any], str, bool]] = {
    "mnist_all": ("MNIST, ten digits, each against the rest, rbf, hinge, C 5", {
        "loss": "hinge", "C": 5.0, "classes": "ovr", "memory": "3 GiB",
    }, "mnist_test", False),
    "a9a": ("a9a, rbf, hinge, C 1, gamma 1/123", {"loss": "hinge", "C": 1.0, "gamma": 1 / 123}, "", True),
    "kdd_rest": ("KDD, normal against the rest, rbf, hinge, C 1", {"loss": "hinge", "scaling": "standard"}, "", False),
    "ring": ("two rings, rbf, hinge, C 1", {"loss": "hinge"}, "", False),
}  # fmt: skip


def kernel_machines(settings: Settings) -> Iterator[Group]:
    """A group for each data set: MNIST, a9a, KDD where they are, and two rings."""
    for name, (title, asked, test, peers) in DATA.items():
        path = _ring(settings) if name == "ring" else settings.real_store(name)
        if path is None or (name != "ring" and settings.texts):  # quick: what is made alone
            continue
        judge = settings.real_store(test) if test else None
        yield _compare(title, path, judge, asked, peers, settings)


def _ring(settings: Settings) -> Path:
    """Two rings of radius 1 and 2, 0.12 wide."""
    path, rows, rng = settings.work / "ring.zarr", settings.rows, np.random.default_rng(0)
    if not path.exists():
        y = np.arange(rows) % 2
        radius, angle = 1.0 + y + 0.12 * rng.normal(size=rows), rng.uniform(0, 2 * np.pi, rows)
        with StoreWriter.create(path, features=2) as writer:
            X = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
            writer.write(X.astype(np.float32), y, origin="rings")
    return path


def _compare(
    title: str, path: Path, judge: Path | None, asked: dict[str, Any], peers: bool, settings: Settings
) -> Group:  # fmt: skip
    store = Store.open(path)
    group = Group("p", f"{title}, {store.rows:,} x {store.features:,}")
    methods = {"coremargin": "coremargin, certified"}
    if peers:
        methods["svc"] = "scikit-learn's SVC (LIBSVM)"
        methods |= {"thunder": "ThunderSVM on the processor"} if find_spec("thundersvm") else {}
    tasks = {name: partial(_run, name, path, judge, asked) for name in methods}
    samples = interleaved_within(tasks, min(3, settings.repetitions), 5 * settings.train_s)
    lower = samples["coremargin"][-1].answer["lower"]
    for name, what in methods.items():
        own = [Sample(sample.answer["seconds"], sample.answer) for sample in samples[name]]
        least, most = spread(own)
        answer = own[-1].answer
        cpu = np.median([sample.answer["cpu"] for sample in own])
        note = f"CPU {cpu:.1f} s, {answer['note']}"
        group.rows.append(Row(
            what, seconds=median(own), least=least, most=most, read=answer.get("read"), scans=answer.get("scans"),
            value=answer["value"] / lower, memory=answer["memory"], note=note,
        ))  # fmt: skip
    group.notes.append(
        f"each method in a process of its own, imports and the loading of rows into SVC not counted; value: over the "
        f"proven bound; median of {len(own)}"
    )
    return group


def _run(method: str, path: Path, judge: Path | None, asked: dict[str, Any]) -> Sample:
    return run_process(script_command("kernel_machines.py", method, path, judge or "-", json.dumps(asked)))


def measured(method: str, path: Path, judge: str, asked: dict[str, Any]) -> dict[str, Any]:
    """What one method takes, and what comes of it."""
    if method != "coremargin":
        return _peer(method, path, asked)
    import coremargin
    from coremargin.models.evaluate import evaluate

    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "rows.model"
        began, cpu = time.perf_counter(), time.process_time()
        model = coremargin.train(path, out=out, kernel="rbf", **asked)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        memory, run = high_water_bytes(os.getpid()), json.loads((out / "run.json").read_text())
        proven = coremargin.verify(out, path).ok
        error = 1 - evaluate(out, judge).accuracy if judge != "-" else None
    claims = model.certificate
    note = f"gap {1 - (claims.ratio or 0):.1e}, {'verified' if proven else 'NOT VERIFIED'}"
    note += f", {claims.coreset_rows:,} rows carry it" + (f", test error {error:.2%}" if error is not None else "")
    return {
        "seconds": seconds, "cpu": cpu, "memory": memory, "lower": claims.lower, "value": claims.upper,
        "read": run["bytes_read"] / run["store_bytes"], "scans": run["scans"], "note": note,
    }  # fmt: skip


def _peer(method: str, path: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """SVC, or ThunderSVM's, with its default tolerance, on all rows in memory, and the value of what it finds."""
    machine = _machine(method, C=asked["C"], gamma=asked["gamma"])
    store = Store.open(path)
    X, codes = store.rows_at(np.arange(store.rows))
    y = np.where(np.array(store.classes)[codes] == max(store.classes), 1.0, -1.0)
    began, cpu = time.perf_counter(), time.process_time()
    machine.fit(X, y)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    values, carry = np.ravel(machine.decision_function(X)), np.asarray(machine.support_).astype(int)
    sides = 1.0 if float(np.mean(values * y)) > 0 else -1.0  # the first class that ThunderSVM meets is positive
    values, offset = sides * values, sides * float(np.ravel(machine.intercept_)[0])
    weights = np.abs(np.ravel(_plain(machine.dual_coef_))) * y[carry]
    square = float(weights @ (values[carry] - offset))
    value = 0.5 * square + asked["C"] * float(np.maximum(0, 1 - y * values).sum())
    note = f"{len(carry):,} rows carry it, no proof"
    return {"seconds": seconds, "cpu": cpu, "memory": high_water_bytes(os.getpid()), "value": value, "note": note}


def _machine(method: str, **asked: float) -> Any:
    """The class is ThunderSVM's or scikit-learn's."""
    if method == "thunder":
        from thundersvm import SVC
    else:
        from sklearn.svm import SVC
    return SVC(kernel="rbf", **asked)


def _plain(rows: Any) -> Any:
    """A matrix, sparse or not, as an array."""
    return rows.toarray() if hasattr(rows, "toarray") else rows


def main(argv: Sequence[str]) -> None:
    """Print one line."""
    method, path, judge, asked = argv
    print(json.dumps(measured(method, Path(path), judge, json.loads(asked))))


if __name__ == "__main__":
    main(sys.argv[1:])
