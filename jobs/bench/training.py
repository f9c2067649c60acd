"""Training and pure passes as the bench runs them: in this process, or as the whole processes that people start."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Sample, coremargin_command, median, run_process, script_command, spread, timed
from pure_pass import one_pass
from table import Row

from coremargin.data.store import Store
from coremargin.engine.executors import InProcess
from coremargin.learn.record import summary_of
from coremargin.learn.train import train_job
from coremargin.problems.registry import new_job, write_report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.source import Source
    from coremargin.engine.protocols import Executor


def model_of(store: Path) -> Path:
    """Where the model of a store goes."""
    return store.with_suffix(".model")


def train_with(source: Source, executor: Executor, store: Path, **options: Any) -> dict[str, Any]:
    """``coremargin train`` as a call, model and report written; its JSON summary and its rounds."""
    job = new_job(store=store, out=model_of(store), **options)
    report = partial(write_report, name=Path(job.out).name)
    outcome = train_job(job, source, executor, begin="restart", overwrite=True, report=report)
    return {**summary_of(outcome), "rounds": outcome.rounds}


def train_here(store: Path, threads: int, **options: Any) -> Sample:
    """Open the store, train in this process, write model and report."""
    return timed(lambda: train_with(Store.open(store), InProcess(threads), store, **options))


def pass_here(store: Path, threads: int) -> Sample:
    """Open the store and pass over it: maps are made and checksums verified, as in a new process."""
    return timed(lambda: vars(one_pass(Store.open(store), InProcess(threads))))


def train_process(store: Path, *words: object, epsilon: float, watch: bool = False) -> Sample:
    """``coremargin train`` as a process."""
    fixed = ("train", store, "--out", model_of(store), "--overwrite", "--restart", "--epsilon", epsilon)
    return run_process(coremargin_command(*fixed, "--json", "-q", *words), watch=watch, allowed=(0, 4))


def pass_process(store: Path, *words: object, watch: bool = False) -> Sample:
    """The pure pass as a process."""
    return run_process(script_command("pure_pass.py", store, *words), watch=watch)


def timing(samples: Sequence[Sample]) -> dict[str, Any]:
    """The times of a row."""
    least, most = spread(samples)
    return {"seconds": median(samples), "least": least, "most": most}


def trained_row(what: str, samples: Sequence[Sample], **more: Any) -> Row:
    """A row about training: what the last run read, scanned and proved (all runs do the same to the bit)."""
    answer = samples[-1].answer
    certified = answer["status"] == "certified"
    note = "" if certified else str(answer["status"])
    found = {
        **timing(samples), "read": answer["bytes_read"] / answer["store_bytes"], "scans": answer["scans"],
        "margin": answer["ratio"], "note": note,
    }  # fmt: skip
    return Row(what, **{**found, **more})
