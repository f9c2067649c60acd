"""A run of the nightly job: five steps, each of which sees by itself whether there is anything to do.

So the job may be started as often as one likes, and be killed at any moment: what a step has done stands in the store's
log or in the registry's, which is where the next run looks.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, to_builtins

from coremargin.errors import CoremarginError, ExpiryRefused, FilesQuarantined, GateRefused, UsageError
from coremargin.formats.chained import hash_of
from coremargin.formats.versions import CHAMPION, MOVES, Night
from coremargin.registry.registry import Registry
from coremargin.registry.running import running

if TYPE_CHECKING:
    from coremargin.formats.versions import Line
    from coremargin.registry.nightly import NightlyJob, PredictStep
    from coremargin.registry.registry import Standing


@dataclass
class Told:
    """What a step did, in words, and whether that was anything; exit_code: what it ends with by itself.

    lines: one for each thing that it did. figures: what the line of a night has of it. attention: errors that end the
    run once all steps are done.
    """

    lines: str | list[str]
    did: bool = False
    exit_code: int = 0
    figures: dict[str, int] = field(default_factory=dict)
    attention: list[CoremarginError] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All in one line."""
        return self.lines if isinstance(self.lines, str) else "; ".join(self.lines)


_NAMED = 3  # files that a message names

Tell = Callable[[str, Told], object]  #: called with the name of a step and what it did


def run_night(job: NightlyJob, *, only: str | None = None, tell: Tell = lambda *_: None) -> dict[str, Told]:
    """Do what is to be done, all of it or one step; what each step did.

    Raises Running (another run goes on), what the steps raise and, after all steps, GateRefused, FilesQuarantined or
    ExpiryRefused, the first of these with notes on the others.
    """
    if only is not None and only not in STEPS:
        raise UsageError(f"--step {only}: expected one of {', '.join(STEPS)}")
    registry, started, done = Registry.create(job.registry), time.monotonic(), dict[str, Told]()
    with running(registry.path):
        with registry.writing():  # finishes what a killed run has left: an alias behind its line in the log
            pass
        error: CoremarginError | None = None
        try:
            if only in {None, "gates"}:
                _can_be_judged(job)
            for name in STEPS if only is None else (only,):
                done[name] = STEPS[name](job, registry)
                tell(name, done[name])
        except CoremarginError as problem:
            error = problem
            raise
        finally:
            if only is None:
                _write_down(registry, done, error, time.monotonic() - started)
            elif error is not None:
                for other in _attention(registry, done, only):
                    error.add_note(str(other))
        attention = _attention(registry, done, only)
        if attention:
            for less in attention[1:]:
                attention[0].add_note(str(less))
            raise attention[0]
    return done


def _attention(registry: Registry, done: dict[str, Told], only: str | None) -> list[CoremarginError]:
    """What a person is to look at, the gravest first."""
    refused = done.get("gates")
    found = [one for told in done.values() for one in told.attention]
    if refused is not None and refused.exit_code and (refused.did or only):
        return [GateRefused(f"{registry.path}: {refused.text}"), *found]
    return found


def _can_be_judged(job: NightlyJob) -> None:
    """The held-out store is there: that is said before rows are taken in and a version is trained."""
    if job.gates.held_out is not None:
        from coremargin.data.store import Store

        Store.open(job.gates.held_out, map_bytes=0)


def _write_down(registry: Registry, done: dict[str, Told], error: CoremarginError | None, seconds: float) -> None:
    """A line in the log of a night in which something happened; the same failure is written down once."""
    codes = {name: told.exit_code for name, told in done.items() if told.exit_code and told.did}
    ingested = codes.pop("ingest", 0)
    code = next(iter(codes.values()), ingested)
    text = "; ".join(told.text for told in done.values() if told.did)
    if error is not None:
        code, text = error.exit_code, f"{text}; {error}".removeprefix("; ")
    if not text:
        return
    figures = dict.fromkeys(("rows", "files", "quarantined", "expired", "read"), 0)
    for told in done.values():
        figures |= told.figures
    night = Night(seconds=round(seconds, 3), exit_code=code, told=text[:4000], **figures)
    with registry.writing() as writing:
        last = next((line.night for line in reversed(writing.standing.lines) if line.night is not UNSET), None)
        if error is None or last is None or (last.told, last.exit_code) != (night.told, night.exit_code):
            writing.tell("night", None, night=to_builtins(night))


def ingest(job: NightlyJob, registry: Registry) -> Told:  # noqa: ARG001 - steps are called alike
    """Files of the inbox become rows, each once; rows that are too old go."""
    from coremargin.data.inbox import take_in
    from coremargin.report.text import count

    if job.ingest is None:
        return Told("nothing to take in: the job has no inbox")
    found = take_in(job.ingest.box, job.store, job.ingest.words(), new_labels=job.ingest.new_labels)
    rows, said, attention = sum(found.rows.values()), list[str](), list[CoremarginError]()
    if found.rows:
        said.append(f"{count(rows, 'row')} from {count(len(found.rows), 'file')}")
    said += [f"{name} was taken in before, by commit {commit}" for name, commit in found.known.items()]
    said += [f"{name} is in quarantine: {why}" for name, why in found.refused.items()]
    if found.refused:
        names = ", ".join(list(found.refused)[:_NAMED]) + ", ..." * (len(found.refused) > _NAMED)
        text = f"{job.ingest.box.quarantine}: {count(len(found.refused), 'file')} could not be ingested: {names}"
        attention.append(FilesQuarantined(f"{text}; the reasons lie beside them"))
    expired = 0
    if job.ingest.keep is not None and job.store.exists():
        from coremargin.data.expire import expire

        try:
            expired = expire(job.store, float(job.ingest.keep)).removed
            said += [f"{count(expired, 'row')} expired"] if expired else []
        except ExpiryRefused as refused:
            said.append(f"no rows expired: {refused}")
            attention.append(refused)
    said += [f"{count(len(found.waiting), 'file')} still being written"] if found.waiting else []
    said += [f"{name} is left in the inbox: {why}" for name, why in found.left.items()]
    figures = {"rows": rows, "files": len(found.rows), "quarantined": len(found.refused), "expired": expired}
    did = bool(found) or expired > 0
    code = attention[0].exit_code if attention else 0
    return Told(said or "nothing new", did, exit_code=code, figures=figures, attention=attention)


def retrain(job: NightlyJob, registry: Registry) -> Told:
    """The newest version goes on with what the store holds now, as another version."""
    from coremargin.data.store import Store

    if not job.store.exists():
        return Told("no store yet: no rows came")
    store, standing = Store.open(job.store, map_bytes=0), registry.standing()
    newest = standing.numbers[-1] if standing.numbers else None
    if newest is not None:
        record = registry.record(newest)
        if record.digest == store.digest and job.is_asked_of(record, epsilon=True):
            return Told(f"version {newest} is of these rows", exit_code=0 if record.status == "certified" else 4)
    from coremargin.registry.training import train_version

    number, run = train_version(job, registry, newest)
    record = registry.record(number)
    about = run.get("retrained")
    anew = f" from scratch: {about['from_nothing']}" if isinstance(about, dict) and "from_nothing" in about else ""
    text = f"version {number} is {record.status}, of {record.rows:,} rows{anew}"
    code = 0 if record.status == "certified" else 4
    return Told(text, did=True, exit_code=code, figures={"read": record.bytes_read})


def gates(job: NightlyJob, registry: Registry) -> Told:
    """The newest version is held against its gates, once for each champion that it would replace."""
    standing = registry.standing()
    newest = _open_version(standing)
    if newest is None:
        return Told("no version waits for its gates")
    decision = standing.decision(newest)
    did = decision is None or decision.was != _champion(standing)
    if decision is None or did:
        from coremargin.registry.gates import evaluate

        decision = evaluate(registry, newest, job.gates, job.store)
    if decision.did == "passed":
        return Told(f"version {newest} passed {_gates_in(decision)}", did)
    return Told(f"version {newest} was refused: {decision.why}", did, exit_code=GateRefused.exit_code)


def promote(job: NightlyJob, registry: Registry) -> Told:
    """A version that passed becomes the champion."""
    standing = registry.standing()
    newest = _open_version(standing)
    decision = None if newest is None else standing.decision(newest)
    if newest is None or decision is None or decision.did != "passed":
        champion = _champion(standing)
        return Told("no champion yet" if champion is None else f"version {champion} stays the champion")
    from coremargin.registry.aliases import collect
    from coremargin.registry.aliases import promote as move

    was = decision.was if isinstance(decision.was, int) else None
    move(registry, newest, expected=was, why="passed its gates")
    gone = collect(registry, keep=job.keep)
    more = f"; {len(gone)} old versions removed" if gone else ""
    return Told(
        f"version {newest} is the champion, {'no version' if was is None else f'version {was}'} before{more}", True
    )


def predict(job: NightlyJob, registry: Registry) -> Told:
    """The champion labels what is to be labelled, where it or the rows are others than last time."""
    standing = registry.standing()
    champion = _champion(standing)
    if champion is None or not job.predictions:
        return Told("no champion yet" if job.predictions else "nothing to label")
    said = [_predicted(registry, standing, champion, step) for step in job.predictions]
    lines = [told.text for told in said if told.did or len(said) == 1]
    return Told(lines or "all labels are there", any(told.did for told in said))


def _predicted(registry: Registry, standing: Standing, champion: int, step: PredictStep) -> Told:
    if not step.rows.exists() and not any(mark in step.rows.name for mark in "*?["):
        return Told(f"{step.rows} is not there: nothing to label")
    source = _source(step.rows, step.drop)
    if source is None:
        return Told(f"{step.rows} is the name of no file: nothing to label")
    last = next((line for line in reversed(standing.lines) if line.out == os.fspath(step.out)), None)
    if last is not None and (last.version, last.source) == (champion, source) and step.out.exists():
        return Told(f"{step.out} has the labels of version {champion}")
    from coremargin.models.predict import predict as run

    done = run(registry.folder(champion), step.rows, step.out, overwrite=True, drop=step.drop)
    with registry.writing() as writing:
        writing.tell("predicted", champion, source=source, out=os.fspath(step.out))
    return Told(f"{done.rows:,} rows labelled in {step.out} by version {champion}", did=True)


def _source(rows: Path, drop: list[str]) -> str | None:
    """What tells rows from others: the digest of a store, of files their names, sizes and times of change.

    drop: columns of files that count for nothing. None: a pattern that no file has the name of.
    """
    if (rows / "zarr.json").exists():
        from coremargin.data.store import Store

        return Store.open(rows, map_bytes=0).digest
    seen = list[tuple[str, int, int]]()
    for one in rows.rglob("*") if rows.is_dir() else map(Path, glob(os.fspath(rows))):
        with suppress(FileNotFoundError):  # it went meanwhile, or is a link to nothing
            found = one.stat()
            if stat.S_ISREG(found.st_mode):
                seen.append((os.fspath(one), found.st_size, found.st_mtime_ns))
    return f"files:{hash_of(repr([*sorted(seen), *sorted(set(drop))]).encode())}" if seen or rows.is_dir() else None


def _champion(standing: Standing) -> int | None:
    alias = standing.aliases.get(CHAMPION)
    return None if alias is None else alias.version


def _open_version(standing: Standing) -> int | None:
    """The newest version, if nothing was decided about it yet: one that was rolled back is not promoted again."""
    if not standing.numbers:
        return None
    newest = standing.numbers[-1]
    moved = any(line.did in MOVES and line.alias == CHAMPION for line in standing.of(newest))
    return None if moved else newest


def _gates_in(decision: Line) -> str:
    from coremargin.report.text import count

    return count(len(decision.gates) if isinstance(decision.gates, list) else 0, "gate")


STEPS: dict[str, Callable[[NightlyJob, Registry], Told]] = {
    "ingest": ingest,
    "retrain": retrain,
    "gates": gates,
    "promote": promote,
    "predict": predict,
}
