"""(n) Batches of hashed text: ``partial_fit`` and a proof about all rows at the end, against SGDClassifier's.

As a script, one method in a process of its own, which ends with a line of JSON::

    python jobs/bench/batches.py METHOD TEXTS LOSS BATCHES
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from measure import Sample, interleaved_within, median, paired_ratio, run_process, script_command, spread
from scipy.sparse import csr_array, load_npz, save_npz
from soft_peers import best_value
from table import Group, Row

from coremargin.engine.task import high_water_bytes, one_blas_thread
from coremargin.spec import format_size

if TYPE_CHECKING:
    from stores import Settings

BATCHES, RUNS = 100, 7
COST, EPSILON = 1.0, 1e-3
ARCHIVE = "20newsgroups/20news-bydate.tar.xz"
LOSSES = ("squared_hinge", "hinge")
METHODS = {
    "coremargin": "coremargin: partial_fit, then a look",
    "sgd": "SGDClassifier.partial_fit",
    "every": "coremargin: a look after every tenth batch",
}


@dataclass(frozen=True)
class Texts:
    """Rows (n, d) and labels (n,) that batches bring, and others (m, d), (m,) that answers are judged by."""

    X: Any
    y: np.ndarray
    held_X: Any
    held_y: np.ndarray

    def save(self, folder: Path) -> Path:
        """Into files of a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        save_npz(folder / "X.npz", self.X)
        save_npz(folder / "held_X.npz", self.held_X)
        np.savez(folder / "y.npz", y=self.y, held_y=self.held_y)
        return folder

    @classmethod
    def load(cls, folder: Path) -> Texts:
        """Inverse of ``save``."""
        with np.load(folder / "y.npz", allow_pickle=False) as labels:
            rows = [csr_array(load_npz(folder / f"{name}.npz")) for name in ("X", "held_X")]
            return cls(rows[0], labels["y"], rows[1], labels["held_y"])


def batches(settings: Settings) -> Iterator[Group]:
    """A group for each loss, with two classes and with all: 20 newsgroups, or generated text where it is absent."""
    title, texts = texts_of(settings)
    for classes in (2, len(np.unique(texts.y))):
        some = texts if classes > 2 else Texts(texts.X, texts.y < 5, texts.held_X, texts.held_y < 5)
        folder = some.save(settings.work / f"texts-{classes}")
        for loss in LOSSES:
            yield _compare(f"{loss}, {title}, {_shape(some)}, {classes} classes", folder, loss, settings)


def _shape(texts: Texts) -> str:
    rows, features = texts.X.shape
    return f"{rows:,} x {features:,}, {format_size(12 * texts.X.nnz)}"


def texts_of(settings: Settings) -> tuple[str, Texts]:
    """What the text is, and it."""
    archive = settings.data / ARCHIVE
    if settings.texts or not archive.is_file():
        return "generated text", generated(settings.texts or 10_000, settings.hashed)
    return "20 newsgroups", newsgroups(archive, settings.hashed)


def newsgroups(archive: Path, features: int) -> Texts:
    """The training messages with their headers, in random order, and the test messages, hashed word by word."""
    from sklearn.feature_extraction.text import HashingVectorizer

    found: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    with tarfile.open(archive) as files:
        for entry in files:
            content = files.extractfile(entry)
            if content is not None:
                part, group, _ = entry.name.split("/")
                found["train" in part].append((group, content.read().decode("latin1")))
    names = sorted({group for group, _ in found[True]})
    rng, parts = np.random.default_rng(0), []
    for own in (found[True], found[False]):
        turned = [own[k] for k in rng.permutation(len(own))]
        X = HashingVectorizer(n_features=features).transform([text for _, text in turned])
        parts += [csr_array(X), np.array([names.index(group) for group, _ in turned])]
    return Texts(*parts)


def generated(rows: int, features: int, classes: int = 20, words: int = 150) -> Texts:
    """Texts of words that are as frequent as their ranks say, a tenth of them from their class's own; rows of length 1.

    As many again are for judging.
    """
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, 2 * rows)
    ranks = rng.zipf(1.3, (2 * rows, words)) % 200_000
    own = rng.random((2 * rows, words)) < 0.1
    ranks = np.where(own, 200_000 + 300 * y[:, None] + ranks % 300, ranks)
    places = (ranks * 2_654_435_761) % (1 << 32) % features
    starts = np.arange(0, 2 * rows * words + 1, words, dtype=np.int32)
    X = csr_array((np.ones(places.size), places.ravel().astype(np.int32), starts), shape=(2 * rows, features))
    X.sum_duplicates()
    lengths = np.sqrt(X.multiply(X).sum(axis=1))
    X.data /= np.repeat(lengths, np.diff(X.indptr))
    return Texts(X[:rows], y[:rows], X[rows:], y[rows:])


def _compare(title: str, folder: Path, loss: str, settings: Settings) -> Group:
    group = Group("n", f"{BATCHES} batches, {title}")
    tasks = {name: partial(_run, name, folder, loss) for name in METHODS}
    samples = interleaved_within(tasks, min(RUNS, settings.repetitions), settings.train_s)
    reference = [_inner(sample) for sample in samples["sgd"]]
    lower = samples["coremargin"][-1].answer["lower"]
    for name, what in METHODS.items():
        own = [_inner(sample) for sample in samples[name]]
        least, most = spread(own)
        answer = own[-1].answer
        note = f"{answer['proof']}, accuracy {answer['accuracy']:.3f}, {_cpu(own, reference)}"
        times: dict[str, Any] = {"seconds": median(own), "least": least, "most": most}
        times["ratio"] = paired_ratio(own, reference)
        group.rows.append(Row(what, **times, value=answer["value"] / lower, memory=answer["memory"], note=note))
    group.notes.append(
        f"C = {COST:g}, alpha = 1 / (C n); seconds are those of the {BATCHES} calls and of the look at the certificate "
        f"after them, each method in a process of its own, start-up and data not counted; value: sum over the classes, "
        f"each with its best offset, over the proven bounds; accuracy on held-out texts; {len(own)} runs in turn"
    )
    return group


def _cpu(own: Sequence[Sample], reference: Sequence[Sample]) -> str:
    """CPU seconds, the least and the median of all runs, and both over those of the reference: the least is what the
    method takes, the median what it took beside whatever else the machine did.
    """
    mine, other = (np.array([sample.answer["cpu"] for sample in some]) for some in (own, reference))
    least, middle = mine.min() / other.min(), np.median(mine) / np.median(other)
    return f"CPU {mine.min():.2f} s, {least:.2f}x (median {np.median(mine):.2f} s, {middle:.2f}x)"


def _run(method: str, folder: Path, loss: str) -> Sample:
    return run_process(script_command("batches.py", method, folder, loss, BATCHES))


def _inner(sample: Sample) -> Sample:
    """Timed by the process itself, around what counts."""
    return Sample(sample.answer["seconds"], sample.answer)


def measured(method: str, texts: Texts, loss: str, count: int) -> dict[str, Any]:
    """What one method takes for all batches, and what comes of it."""
    _machine(method, loss, len(texts.y)).fit(texts.X, texts.y)  # what is imported or compiled once is not timed
    machine = _machine(method, loss, len(texts.y))
    runs, classes = np.array_split(np.arange(len(texts.y)), count), np.unique(texts.y)
    runs = [run for run in runs if len(run)]
    first = int(np.max([np.argmax(texts.y == label) for label in classes])) + 1  # ours begins with all classes
    runs = [np.arange(first), *(run[run >= first] for run in runs if run[-1] >= first)]
    began, cpu_began = time.perf_counter(), time.process_time()
    for number, run in enumerate(runs):
        machine.partial_fit(texts.X[run], texts.y[run], classes=classes)
        if method == "every" and number % 10 == 9:
            machine.certificate_  # noqa: B018 - a look
    proof = getattr(machine, "certificate_", None)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    memory = high_water_bytes(os.getpid())
    claims = [] if proof is None else proof if isinstance(proof, list) else [proof]
    return {
        "seconds": seconds, "cpu": cpu, "memory": memory, "value": _value(machine, texts, loss),
        "accuracy": float(machine.score(texts.held_X, texts.held_y)), "lower": sum(claim.lower for claim in claims),
        "proof": _checked(machine, texts) if claims else "no proof",
    }  # fmt: skip


def _machine(method: str, loss: str, rows: int) -> Any:
    if method == "sgd":
        from sklearn.linear_model import SGDClassifier

        return SGDClassifier(loss=loss, alpha=1.0 / (COST * rows), random_state=0)
    from coremargin.estimators import MarginCoresetClassifier

    return MarginCoresetClassifier(loss=loss, C=COST, epsilon=EPSILON)


def _value(machine: Any, texts: Texts, loss: str) -> float:
    """The sum over the classes of 1/2 ||w||^2 + C sum loss, each with its best offset."""
    total = 0.0
    for k, (w, b) in enumerate(zip(machine.coef_, machine.intercept_, strict=True)):
        positive = machine.classes_[k if len(machine.coef_) > 1 else 1]
        signs = np.where(texts.y == positive, 1.0, -1.0)
        total += best_value(texts.X @ w, signs, float(b), float(0.5 * w @ w), loss, COST)
    return total


def _checked(machine: Any, texts: Texts) -> str:
    """The status of the model, and what the verifier says of it on a store of the rows."""
    import coremargin

    with tempfile.TemporaryDirectory() as name:
        model, store = Path(name) / "rows.model", Path(name) / "rows.zarr"
        machine.model_.save(model)
        coremargin.ingest(texts.X, store, labels=texts.y, sparse=True, dtype="float64")
        proven = coremargin.verify(model, store).ok
    return f"{machine.model_.status}, {'verified' if proven else 'NOT VERIFIED'}"


def main(argv: Sequence[str]) -> None:
    """Print one line."""
    method, folder, loss, count = argv
    warnings.simplefilter("ignore")
    with one_blas_thread():  # others of BLAS wait in loops that count as CPU time, most of all on a busy machine
        print(json.dumps(measured(method, Texts.load(Path(folder)), loss, int(count))))


if __name__ == "__main__":
    main(sys.argv[1:])
