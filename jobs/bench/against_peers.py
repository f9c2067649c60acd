"""(c) Against scikit-learn: LinearSVC in memory and SGDClassifier streaming, at the margin that each reaches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from against_pass import threads
from measure import Sample, child_environment, interleaved_within, median, script_command
from stores import TITLES
from table import Group, Row
from training import model_of, train_here, train_process, trained_row

from coremargin.data.store import Store
from coremargin.spec import format_size
from coremargin.verify.examine import examine

if TYPE_CHECKING:
    from pathlib import Path

    from stores import Settings

PEERS = {
    "squared_hinge": "LinearSVC, squared hinge",
    "hinge": "LinearSVC, hinge",
    "sgd": "SGDClassifier.partial_fit",
}


def against_peers(settings: Settings) -> Iterator[Group]:
    """A group for each dataset; those whose files are absent are named."""
    yield _compare("synthetic", settings.million(), settings)
    for name in settings.real:
        store = settings.real_store(name)
        if store is None:
            yield Group("c", f"{TITLES[name]}: skipped, its file is not in the data folder")
        else:
            yield _compare(TITLES[name], store, settings)


def _compare(title: str, store: Path, settings: Settings) -> Group:
    source = Store.open(store)
    size = f"{source.rows:,} x {source.features:,} float32, {format_size(source.nbytes)}"
    group = Group("c", f"scikit-learn, {title}, {size}")
    limit = f"{settings.train_s:g} s"
    samples = interleaved_within(
        {
            "here": lambda: train_here(store, threads(), epsilon=settings.epsilon, time_limit=limit),
            "process": lambda: train_process(store, "--time-limit", limit, epsilon=settings.epsilon),
        },
        min(3, settings.repetitions),
        settings.train_s / 4,
    )
    group.rows.append(_own_row(store, samples))
    bound = samples["here"][-1].answer["upper"]
    for kind, what in PEERS.items():
        answers = answers_within(script_command("peers.py", kind, store), settings.peer_s)
        group.rows.append(_peer_row(what, answers, median(samples["here"]), bound, settings))
    group.notes.append(
        f"coremargin: median of {len(samples['here'])} runs in process, `with load` is the whole command; it would be "
        f"stopped after {settings.train_s:g} s, with what it proved until then. "
        f"scikit-learn: a process of its own per method, settings from cheap to dear for {settings.peer_s:g} s in all; "
        f"shown is the fastest setting within {settings.epsilon:g} of the bound, else the one with the largest margin; "
        f"fitting alone is counted, and the best offset is given for nothing; none of them proves anything"
    )
    return group


def _own_row(store: Path, samples: dict[str, list[Sample]]) -> Row:
    answer = samples["here"][-1].answer
    proven = examine(model_of(store), store).ok
    note = f"{answer['status']}, {'verified' if proven else 'NOT VERIFIED'}"
    return trained_row(
        "coremargin train", samples["here"], ratio=1.0, whole=median(samples["process"]), note=note,
        memory=samples["process"][-1].answer["peak_rss_bytes"],
    )  # fmt: skip


def answers_within(command: Sequence[str], limit_s: float) -> list[dict[str, Any]]:
    """The answers that a method's process gave within the limit; it and what it started are stopped there."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=child_environment(),
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        else:
            if process.returncode:
                raise RuntimeError(f"{' '.join(command)}: {err.strip()[-300:]}")
    # a line that was cut by the end of the process has no newline
    return [json.loads(line) for line in out.splitlines(keepends=True) if line.endswith("\n")]


def _peer_row(what: str, answers: list[dict[str, Any]], reference_s: float, bound: float, settings: Settings) -> Row:
    if not answers:
        return Row(what, note=f"no setting finished within {settings.peer_s:g} s")
    enough = [answer for answer in answers if answer["margin"] >= (1 - settings.epsilon) * bound]
    best = min(enough, key=lambda a: a["seconds"]) if enough else max(answers, key=lambda a: a["margin"])
    return Row(
        what, best["seconds"], ratio=best["seconds"] / reference_s, whole=best["seconds"] + best["load_seconds"],
        read=best.get("scans"), scans=best.get("scans"), margin=best["margin"] / bound, memory=best["peak_rss_bytes"],
        note=best["setting"],
    )  # fmt: skip
