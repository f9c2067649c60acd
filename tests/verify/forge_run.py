"""Thousands of mutations against the verifier, and what must never come of one.

A mutation is a function of kind and number alone; forge_repeat.py repeats one. It is judged like this:

- The verifier raises nothing but its own errors, ends within ``SECONDS``, and takes no more memory than ``BYTES``.
- What it accepts differs from the honest model only in places that forge_rules.py lists, and a judge of our own finds
  nothing false in it.
- What it accepts can be loaded and shown, or is refused with an error of our own; loaded, it has the same numbers.
- Loading what it refuses crashes no more than verifying.
"""

from __future__ import annotations

import json
import resource
import signal
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import threadpoolctl
from click.testing import CliRunner

import forge_arrays
import forge_json
import forge_plans
import forge_rules
from coremargin.cli import main
from coremargin.errors import CoremarginError
from coremargin.models.fleet import FleetModel
from coremargin.models.registry import load
from coremargin.problems.outliers.outlier_table import outlier_table
from coremargin.verify.examine import examine
from forge_judge import scaled
from forge_judges import Bench
from forge_specimens import KINDS, Arrays, Record, Specimen, Specimens

SEED = 20261122
SECONDS = 20.0  # no verification of a few dozen rows takes as long
BYTES = 512 << 20  # nor as much memory, whatever a file promises
_ROOM = 6 << 30  # of address space, so that what asks for all of it harms nobody


class Hang(BaseException):
    """A call did not end in time. Not an Exception: nobody who is attacked shall catch it."""


class Guard:
    """Ends calls that take too long by a signal of its own to the main thread, and measures memory."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._over = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[Guard]:
        """While this is open, ``call`` is watched."""

        def hang(number: int, frame: Any) -> None:
            raise Hang(f"no answer after {SECONDS:g} s")

        before = signal.signal(signal.SIGUSR2, hang)
        limits = resource.getrlimit(resource.RLIMIT_AS)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + _ROOM, limits[1]))
        watch = threading.Thread(target=self._watch, daemon=True)
        watch.start()
        try:
            with threadpoolctl.threadpool_limits(1, user_api="blas"):
                yield self
        finally:
            self._over.set()
            watch.join()
            resource.setrlimit(resource.RLIMIT_AS, limits)
            signal.signal(signal.SIGUSR2, before)

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            if self._began is not None and time.monotonic() - self._began > SECONDS:
                self._began = None
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)

    @contextmanager
    def call(self) -> Iterator[None]:
        """One call; warnings are errors in it."""
        self._began = time.monotonic()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                yield
        finally:
            self._began = None


class Peak:
    """How much memory is taken while this is open: ``grown`` bytes beyond what there was."""

    def __enter__(self) -> Self:
        with suppress(OSError):  # where that may not be written only what exceeds all before is seen
            Path("/proc/self/clear_refs").write_text("5")  # the highest so far is forgotten
        self._before, self.grown = self._highest(), 0
        return self

    def __exit__(self, *of: object) -> None:
        self.grown = self._highest() - self._before

    @staticmethod
    def _highest() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status[status.index("VmHWM:") :].split()[1]) << 10


@dataclass
class Work:
    """A copy of a model whose files are exchanged for one call, and put back."""

    specimen: Specimen
    path: Path
    now: dict[str, bytes | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.specimen.files:
            self.write(name, self.specimen.files[name])

    def write(self, name: str, content: bytes | None) -> None:
        """Put a file there, or take it away."""
        place = self.path / name
        if content is None:
            place.unlink(missing_ok=True)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    @contextmanager
    def changed(self, files: dict[str, bytes | None]) -> Iterator[None]:
        """These files are others."""
        self.now = files
        for name, content in files.items():
            self.write(name, content)
        try:
            yield
        finally:
            for name in files:
                self.write(name, self.specimen.files.get(name))

    @property
    def record(self) -> Record:
        """What ``model.json`` or ``fleet.json`` says now."""
        return dict(json.loads((self.path / ("fleet.json" if self.specimen.fleet else "model.json")).read_bytes()))

    def arrays(self, below: str = "") -> Arrays:
        """What an ``arrays.npz`` holds now."""
        return dict(forge_rules.arrays_in((self.path / below / "arrays.npz").read_bytes()))

    def member(self, name: str) -> Record:
        """What a member's ``model.json`` says now."""
        return dict(json.loads((self.path / "members" / name / "model.json").read_bytes()))

    @property
    def changes(self) -> Iterator[forge_rules.Change]:
        """How it differs from the honest model."""
        return forge_rules.changes(dict(self.specimen.files), self.now)


@dataclass(frozen=True)
class Outcome:
    """What became of a mutation; ``wrong``: what must not be, empty when all is well."""

    answer: str  #: "accepted", "refuted", the name of an error, or "crash"
    wrong: str = ""


def asked(guard: Guard, model: Path, store: Path) -> Outcome:
    """What the verifier answers."""
    peak = Peak()
    try:
        with peak, guard.call():
            result = examine(model, store, threads=1)
            answer = "accepted" if result.ok else "refuted"
    except CoremarginError as error:
        answer = type(error).__name__
    except (Exception, Hang) as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return Outcome("crash", f"verify raised {type(error).__name__}: {str(error)[:200]}")
    return Outcome(answer, f"verify took {peak.grown:,} bytes" if peak.grown > BYTES else "")


def loaded(guard: Guard, model: Path, *, show: bool) -> tuple[Any, str]:
    """The model as everybody else gets it, None where it is refused; and what is wrong with that."""
    try:
        with guard.call():
            found = load(model)
    except CoremarginError:
        return None, ""
    except (Exception, Hang) as error:  # noqa: BLE001 - as above
        return None, f"loading raised {type(error).__name__}: {str(error)[:200]}"
    if show:
        with guard.call():
            result = CliRunner().invoke(main, ["show", str(model)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            return found, f"show raised {type(result.exception).__name__}: {str(result.exception)[:200]}"
    return found, ""


def _other_numbers(work: Work, model: Any) -> Iterator[str]:
    """Whether whoever loads the model gets the arrays that the judge saw."""
    parts = (
        {f"members/{name}/": one for name, one in model.members.items()}
        if isinstance(model, FleetModel)
        else {"": model}
    )
    for below, one in parts.items():
        ours, theirs = work.arrays(below), one.arrays()
        for name, values in theirs.items():
            if not np.array_equal(values, ours[name], equal_nan=True):
                yield f"{below}{name} is loaded as other numbers than numpy reads"


def other_decisions(work: Work, model: FleetModel) -> Iterator[str]:
    """Whether a fleet predicts something else than its tables say."""
    rows, labels = work.specimen.rows, model.record["classes"]
    known = np.flatnonzero(rows.weighed > 0)
    truth = np.array([labels.index(rows.labels[row]) for row in known])
    for entry in model.record["evaluations"] or ():
        if entry["fold"] is None:
            found = model if entry["C"] is None else model.at(entry["C"])
            given = np.array([labels.index(label) for label in found.predict(rows.X[known]).tolist()])
            matrix = np.zeros((len(labels), len(labels)), dtype=int)
            np.add.at(matrix, (truth, given), 1)
            if np.abs(matrix - np.array(entry["confusion"])).sum() > 2 * (1 + len(known) // 20):
                yield f"C {entry['C']}: predicts {matrix.tolist()}, its table says {entry['confusion']}"


def _impossible(work: Work, bench: Bench, model: Any) -> Iterator[str]:
    """Whether `coremargin outliers` calls a number of outliers hopeless that is not."""
    judge, record, arrays = bench.single, work.record, work.arrays()
    X, side = scaled(work.specimen.rows, record, arrays), judge.sides(record)
    for step in outlier_table(model).steps:
        best = judge.best(step.k, X, side, intercept=record["parameters"]["intercept"])
        if step.impossible and best > 1e-12 * float(np.linalg.norm(X, axis=1).max()):
            yield f"{step.k} outliers are called not enough, {best} can be reached"


def accepted(work: Work, bench: Bench, model: Any) -> str:
    """What is wrong with an acceptance."""
    found: list[str] = []
    try:
        found += forge_rules.unallowed(work.changes, forge_rules.MODELS)
        found += bench.lies(work)
        if model is not None:
            found += _other_numbers(work, model)
            if isinstance(model, FleetModel):
                found += other_decisions(work, model)
            if work.record.get("problem") == "outliers":
                found += _impossible(work, bench, model)
    except Exception as error:  # noqa: BLE001 - what cannot even be read should not have been accepted
        found.append(f"unreadable: {type(error).__name__}: {str(error)[:200]}")
    return f"accepted, but {'; '.join(found)[:600]}" if found else ""


class Campaign(ABC):
    """Mutations of one kind, by number."""

    def __init__(self, kind: str, specimens: Specimens, folder: Path) -> None:
        self.kind, self.specimens, self.folder = kind, specimens, folder
        self.counts: Counter[str] = Counter()

    @abstractmethod
    def one(self, number: int, guard: Guard, *, thorough: bool = False) -> tuple[Outcome, str]:
        """Try a mutation; returns what became of it, and what it was. thorough: load and show it whatever happens."""

    @abstractmethod
    def leave(self, number: int) -> str:
        """Write the mutated files once more, to be looked at; says where."""

    def run(self, numbers: range, most: int = 12) -> list[str]:
        """What must not be, of these mutations, with what repeats it; it ends after ``most``."""
        wrong: list[str] = []
        guard = Guard()
        with guard.watching(), quick():
            for number in numbers:
                outcome, told = self.one(number, guard)
                self.counts[outcome.answer] += 1
                if outcome.wrong:
                    wrong.append(f"forge_repeat.py {self.kind} {number} ({told[:300]}): {outcome.wrong}")
                if len(wrong) >= most:
                    break
        return wrong


class Attack(Campaign):
    """Mutations of the models of one kind."""

    def __init__(self, kind: str, specimens: Specimens, folder: Path) -> None:
        super().__init__(kind, specimens, folder)
        self.names = KINDS[kind]
        self._work: dict[str, Work] = {}
        self._bench: dict[str, Bench] = {}

    def work(self, name: str) -> Work:
        """The copy of a specimen that is mutated."""
        if name not in self._work:
            self._work[name] = Work(self.specimens[name], self.folder / f"work-{name}")
        return self._work[name]

    def bench(self, name: str) -> Bench:
        """The judge of a specimen."""
        if name not in self._bench:
            self._bench[name] = Bench(self.specimens[name])
        return self._bench[name]

    def mutation(self, number: int) -> tuple[Work, str, dict[str, bytes | None]]:
        """A mutation: of what, what is done, and the files that are others."""
        rng = np.random.default_rng([SEED, sorted(KINDS).index(self.kind), number])
        specimen = self.specimens[self.names[number % len(self.names)]]
        every = [name for names in KINDS.values() for name in names]
        other = self.specimens[every[rng.integers(len(every))]]
        kind = rng.random()
        if kind < 0.25:
            told, files = forge_plans.drawn(rng, specimen, other)
            return self.work(specimen.name), told, files
        names = sorted(specimen.files)
        texts, packed = [n for n in names if n.endswith(".json")], [n for n in names if n.endswith(".npz")]
        if kind < 0.65:
            name = "fleet.json" if specimen.fleet and rng.random() < 0.6 else texts[rng.integers(len(texts))]
            told, content = forge_json.mutated(rng, specimen.files[name])
        else:
            name = packed[rng.integers(len(packed))]
            below = name.removesuffix("arrays.npz")
            strange = other.arrays("" if not other.fleet else f"members/{other.record['members'][0]['name']}/")
            told, content = forge_arrays.mutated(rng, specimen.arrays(below), strange)
        return self.work(specimen.name), f"{name}: {told}", {name: content}

    def one(self, number: int, guard: Guard, *, thorough: bool = False) -> tuple[Outcome, str]:
        """Try a mutation."""
        work, told, files = self.mutation(number)
        bench = self.bench(work.specimen.name)
        with work.changed(files):
            outcome = asked(guard, work.path, work.specimen.store)
            model, wrong, good = None, "", outcome.answer == "accepted"
            if good or thorough or number % 3 == 0:
                model, wrong = loaded(guard, work.path, show=thorough or number % (4 if good else 15) == 0)
            if good and not outcome.wrong:
                wrong = wrong or accepted(work, bench, model)
        return Outcome(outcome.answer, outcome.wrong or wrong), f"{work.specimen.name}, {told}"

    def leave(self, number: int) -> str:
        """The model is left mutated."""
        work, _, files = self.mutation(number)
        for name, content in files.items():
            work.write(name, content)
        return f"model {work.path}\nstore {work.specimen.store}"


@contextmanager
def quick() -> Iterator[None]:
    """BLAS has one thread for the whole run: to look for its libraries takes a fifth of the time of a verification."""
    before = threadpoolctl.threadpool_limits
    threadpoolctl.threadpool_limits = lambda *args, **kwargs: nullcontext()
    try:
        yield
    finally:
        threadpoolctl.threadpool_limits = before
