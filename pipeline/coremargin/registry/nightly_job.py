"""Run a nightly job: ingest, retrain, evaluate gates, promote, predict.

Each step finds out from the logs of the store and the registry whether there is anything to do. A run may be killed at
any moment and started again as often as you like.
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

from coremargin.data.storages import open_storage
from coremargin.errors import CoremarginError, ExpiryRefused, FilesQuarantined, GateRefused, UsageError
from coremargin.formats.chained import hash_of
from coremargin.formats.location import is_remote, last_name
from coremargin.formats.versions import CHAMPION, MOVES, ScheduledRun
from coremargin.registry.registry import Registry
from coremargin.registry.run_lock import run_lock

if TYPE_CHECKING:
    from coremargin.formats.location import Location
    from coremargin.registry.nightly import NightlyJob, PredictStep
    from coremargin.registry.registry import RegistryState


@dataclass
class StepResult:
    """What a step has done.

    lines: messages. changed: whether it did anything. exit_code: of the step alone. figures: for the log (fields of
    ``ScheduledRun``). errors: raised at the end of the run, after the other steps.
    """

    lines: list[str]
    changed: bool = False
    exit_code: int = 0
    figures: dict[str, int] = field(default_factory=dict)
    errors: list[CoremarginError] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All lines in one."""
        return "; ".join(self.lines)


Report = Callable[[str, StepResult], object]  #: called with the name of a step and its result

_LISTED = 3  # files that a message lists


def run_nightly_job(
    job: NightlyJob, *, only: str | None = None, report: Report = lambda *_: None
) -> dict[str, StepResult]:
    """Run all steps, or one of them, and return their results.

    Raises Running (another run is active), errors of the steps and, after all steps, GateRefused, FilesQuarantined or
    ExpiryRefused: the first of these, with the others as notes.
    """
    if only is not None and only not in STEPS:
        raise UsageError(f"--step {only}: expected one of {', '.join(STEPS)}")
    registry, started, results = Registry.create(job.registry), time.monotonic(), dict[str, StepResult]()
    with run_lock(registry.path):
        registry.complete()
        failure: CoremarginError | None = None
        try:
            if only in {None, "gates"} and job.gates.held_out is not None:  # fails before anything is ingested
                from coremargin.data.store import Store

                Store.open(job.gates.held_out, map_bytes=0)
            for name in STEPS if only is None else (only,):
                results[name] = STEPS[name](job, registry)
                report(name, results[name])
        except CoremarginError as error:
            failure = error
            raise
        finally:
            if only is None:
                _log_run(registry, results, failure, time.monotonic() - started)
            elif failure is not None:
                for other in _step_errors(registry, results, only):
                    failure.add_note(str(other))
        errors = _step_errors(registry, results, only)
        if errors:
            for other in errors[1:]:
                errors[0].add_note(str(other))
            raise errors[0]
    return results


def _step_errors(registry: Registry, results: dict[str, StepResult], only: str | None) -> list[CoremarginError]:
    """Errors of steps that did not end the run, the one with the lowest exit code first."""
    errors = [error for result in results.values() for error in result.errors]
    gates = results.get("gates")
    if gates is not None and gates.exit_code and (gates.changed or only):
        return [GateRefused(f"{registry.path}: {gates.text}"), *errors]
    return errors


def _log_run(
    registry: Registry, results: dict[str, StepResult], failure: CoremarginError | None, seconds: float
) -> None:
    """Log a run that changed anything or failed; a failure that recurs is logged once."""
    codes = {name: result.exit_code for name, result in results.items() if result.exit_code and result.changed}
    ingested = codes.pop("ingest", 0)
    code = next(iter(codes.values()), ingested)
    text = "; ".join(result.text for result in results.values() if result.changed)
    if failure is not None:
        code, text = failure.exit_code, f"{text}; {failure}".removeprefix("; ")
    if not text:
        return
    figures = dict.fromkeys(("rows", "files", "quarantined", "expired", "bytes_read"), 0)
    for result in results.values():
        figures |= result.figures
    run = ScheduledRun(seconds=round(seconds, 3), exit_code=code, text=text[:4000], **figures)
    last = next((line.run for line in reversed(registry.state().lines) if line.run is not UNSET), None)
    if failure is None or last is None or (last.text, last.exit_code) != (run.text, run.exit_code):
        registry.append("run", None, run=to_builtins(run))


def ingest(job: NightlyJob, registry: Registry) -> StepResult:  # noqa: ARG001 - all steps have the same signature
    """Ingest the files of the inbox, each once, and expire old rows."""
    from coremargin.data.inbox import take_in
    from coremargin.data.object_inbox import take_in_objects
    from coremargin.formats.location import is_remote
    from coremargin.report.text import count

    if job.ingest is None:
        return StepResult(["nothing to ingest: the job has no inbox"])
    remote, options = is_remote(job.ingest.inbox), job.ingest.ingest_options()
    if remote:
        files = take_in_objects(job.ingest.inbox, job.store, options, new_labels=job.ingest.new_labels)
    else:
        files = take_in(job.ingest.open_inbox(), job.store, options, new_labels=job.ingest.new_labels)
    rows, lines, errors = sum(files.rows.values()), list[str](), list[CoremarginError]()
    if files.rows:
        lines.append(f"{count(rows, 'row')} from {count(len(files.rows), 'file')}")
    lines += [f"{name} was ingested before, by commit {commit}" for name, commit in files.known.items()]
    where = "is refused" if remote else "is in quarantine"
    lines += [f"{name} {where}: {reason}" for name, reason in files.refused.items()]
    if files.refused:
        names = ", ".join(list(files.refused)[:_LISTED]) + ", ..." * (len(files.refused) > _LISTED)
        place = job.ingest.inbox if remote else job.ingest.open_inbox().quarantine
        advice = "replace or remove them" if remote else "the reasons are in NAME.why.txt"
        text = f"{place}: {count(len(files.refused), 'file')} could not be ingested: {names}"
        errors.append(FilesQuarantined(f"{text}; {advice}"))
    expired = 0
    if job.ingest.keep is not None and open_storage(job.store).exists():
        from coremargin.data.expire import expire

        try:
            expired = expire(job.store, float(job.ingest.keep)).removed
            lines += [f"{count(expired, 'row')} expired"] if expired else []
        except ExpiryRefused as refusal:
            lines.append(f"no rows expired: {refusal}")
            errors.append(refusal)
    lines += [f"{count(len(files.waiting), 'file')} still being written"] if files.waiting else []
    lines += [f"{name} stays in the inbox: {reason}" for name, reason in files.left.items()]
    figures = {"rows": rows, "files": len(files.rows), "quarantined": len(files.refused), "expired": expired}
    code = errors[0].exit_code if errors else 0
    return StepResult(lines or ["nothing new"], bool(files) or expired > 0, code, figures, errors)


def retrain(job: NightlyJob, registry: Registry) -> StepResult:
    """Train a version on the newest commit, unless the newest version is of this commit and these parameters."""
    from coremargin.data.store import Store

    if not open_storage(job.store).exists():
        return StepResult(["no store yet: no rows have been ingested"])
    store, newest = Store.open(job.store, map_bytes=0), registry.state().newest
    if newest is not None:
        record = registry.record(newest)
        if record.store_digest == store.digest and job.has_parameters_of(record, epsilon=True):
            code = 0 if record.status == "certified" else 4
            return StepResult([f"version {newest} is up to date"], exit_code=code)
    from coremargin.registry.training import train_version

    number, run = train_version(job, registry, newest)
    record = registry.record(number)
    retrained = run.get("retrained")
    scratch = isinstance(retrained, dict) and retrained.get("from_scratch")
    text = f"version {number} is {record.status}, of {record.rows:,} rows" + f" from scratch: {scratch}" * bool(scratch)
    code = 0 if record.status == "certified" else 4
    return StepResult([text], changed=True, exit_code=code, figures={"bytes_read": record.bytes_read})


def evaluate_gates(job: NightlyJob, registry: Registry) -> StepResult:
    """Compare the newest version with the champion, once for each champion that it would replace."""
    from coremargin.report.text import count

    state = registry.state()
    candidate = _promotable_version(state)
    if candidate is None:
        return StepResult(["no version to evaluate"])
    decision = state.decision(candidate)
    changed = decision is None or decision.previous != state.version_of(CHAMPION)
    if decision is None or changed:
        from coremargin.registry.gates import evaluate

        decision = evaluate(registry, candidate, job.gates, job.store)
    if decision.action == "passed":
        gates = len(decision.gates) if isinstance(decision.gates, list) else 0
        return StepResult([f"version {candidate} passed {count(gates, 'gate')}"], changed)
    return StepResult([f"version {candidate} was refused: {decision.comment}"], changed, GateRefused.exit_code)


def promote(job: NightlyJob, registry: Registry) -> StepResult:
    """Promote a version that passed its gates, and remove old versions."""
    from coremargin.registry.aliases import collect
    from coremargin.registry.aliases import promote as promote_version

    state = registry.state()
    candidate = _promotable_version(state)
    decision = None if candidate is None else state.decision(candidate)
    if candidate is None or decision is None or decision.action != "passed":
        champion = state.version_of(CHAMPION)
        return StepResult(["no champion yet" if champion is None else f"version {champion} stays the champion"])
    previous = decision.previous if isinstance(decision.previous, int) else None
    promote_version(registry, candidate, expected=previous, comment="passed its gates")
    removed = collect(registry, keep=job.keep)
    before = "no version" if previous is None else f"version {previous}"
    more = f"; {len(removed)} old versions removed" if removed else ""
    return StepResult([f"version {candidate} is the champion, {before} before{more}"], changed=True)


def predict(job: NightlyJob, registry: Registry) -> StepResult:
    """Label rows with the champion, if the champion or the rows have changed since the last run."""
    state = registry.state()
    champion = state.version_of(CHAMPION)
    if champion is None or not job.predictions:
        return StepResult(["no champion yet" if job.predictions else "no rows to label"])
    results = [_predict(registry, state, champion, step) for step in job.predictions]
    lines = [result.text for result in results if result.changed or len(results) == 1]
    return StepResult(lines or ["all labels are up to date"], any(result.changed for result in results))


def _predict(registry: Registry, state: RegistryState, champion: int, step: PredictStep) -> StepResult:
    if not open_storage(step.rows).exists() and not any(mark in last_name(step.rows) for mark in "*?["):
        return StepResult([f"{step.rows} does not exist: nothing to label"])
    from coremargin.models.output_file import is_written

    source = _digest_rows(step.rows, step.drop)
    if source is None:
        return StepResult([f"{step.rows} matches no file: nothing to label"])
    last = next((line for line in reversed(state.lines) if line.out == str(step.out)), None)
    if last is not None and (last.version, last.source) == (champion, source) and is_written(step.out):
        return StepResult([f"{step.out} has the labels of version {champion}"])
    from coremargin.models.predict import predict as predict_rows

    done = predict_rows(registry.folder(champion), step.rows, step.out, overwrite=True, drop=step.drop)
    registry.append("predicted", champion, source=source, out=str(step.out))
    return StepResult([f"{done.rows:,} rows labelled in {step.out} by version {champion}"], changed=True)


def _digest_rows(rows: Location, drop: list[str]) -> str | None:
    """The digest of a store; of files a hash of names, sizes, times of change and dropped columns.

    None: a pattern that matches no file.
    """
    if is_remote(rows) or Path(rows, "zarr.json").exists():
        from coremargin.data.store import Store

        return Store.open(rows, map_bytes=0).digest
    files, folder = list[tuple[str, int, int]](), Path(rows)
    for path in folder.rglob("*") if folder.is_dir() else map(Path, glob(rows)):
        with suppress(FileNotFoundError):  # removed meanwhile, or a broken link
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                files.append((os.fspath(path), status.st_size, status.st_mtime_ns))
    return f"files:{hash_of(repr([*sorted(files), *sorted(set(drop))]).encode())}" if files or folder.is_dir() else None


def _promotable_version(state: RegistryState) -> int | None:
    """The newest version, unless it is or was the champion: after a rollback it is not promoted again."""
    if state.newest is None:
        return None
    moves = (line for line in state.lines_about(state.newest) if line.action in MOVES and line.alias == CHAMPION)
    return None if any(moves) else state.newest


STEPS: dict[str, Callable[[NightlyJob, Registry], StepResult]] = {
    "ingest": ingest,
    "retrain": retrain,
    "gates": evaluate_gates,
    "promote": promote,
    "predict": predict,
}
