"""(f) With a loss, against other tools at the value that each reaches: in memory, streaming, and from disk."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from against_peers import answers_within
from measure import interleaved_within, median, script_command
from soft_formats import CONVERTED
from stores import TITLES
from table import Group, Row
from training import model_of, timing, train_process

from coremargin.data.store import Store
from coremargin.spec import format_size
from coremargin.verify.examine import examine

if TYPE_CHECKING:
    from pathlib import Path

    from measure import Sample
    from stores import Settings

BOTH = ("hinge", "squared_hinge")
C = 1.0


@dataclass(frozen=True)
class Peer:
    """Another tool: its name, the losses that it has, whether it takes sparse rows here, and what it needs."""

    name: str
    losses: tuple[str, ...] = BOTH
    sparse: bool = True
    module: str = "sklearn"
    command: str = sys.executable

    @property
    def missing(self) -> str | None:
        """The package or command that is not installed."""
        if shutil.which(self.command) is None:
            return self.command
        return None if find_spec(self.module) else self.module


PEERS = {
    "linear_svc": Peer("LinearSVC, in memory"),
    "sgd": Peer("SGDClassifier.partial_fit"),
    "liblinear": Peer("LIBLINEAR's command", command="liblinear-train"),
    "vw": Peer("Vowpal Wabbit", losses=("hinge",), module="vowpalwabbit"),
    "spark": Peer("Spark MLlib LinearSVC, local[2]", losses=("hinge",), sparse=False, module="pyspark", command="java"),
    "dask_ml": Peer("dask-ml Incremental(SGDClassifier)", sparse=False, module="dask_ml"),
}


def against_soft_peers(settings: Settings) -> Iterator[Group]:
    """A group for each dataset and loss; those whose files are absent are named."""
    for percent in settings.flipped:
        store = settings.noisy(percent)
        for loss in BOTH:
            yield _compare(f"{percent:g} % of the labels flipped", store, loss, settings)
    for name in settings.soft:
        real = settings.real_store(name)
        if real is None:
            yield Group("f", f"{TITLES[name]}: skipped, its file is not in the data folder")
        else:
            for loss in BOTH:
                yield _compare(TITLES[name], real, loss, settings)


def _compare(title: str, path: Path, loss: str, settings: Settings) -> Group:
    store = Store.open(path)
    group = Group("f", f"{loss}, C = {C:g}, {title}, {store.rows:,} x {store.features:,}, {format_size(store.nbytes)}")
    words = ("--loss", loss, "--C", C)
    samples = interleaved_within(
        {"whole": lambda: train_process(path, *words, epsilon=settings.epsilon, watch=True)},
        min(3, settings.repetitions), settings.train_s / 4,
    )["whole"]  # fmt: skip
    bound = samples[-1].answer["lower"]
    group.rows.append(_own_row(path, samples))
    place = path.with_suffix(f".{CONVERTED}")
    place.mkdir(exist_ok=True)
    for method, peer in PEERS.items():
        if loss not in peer.losses or (store.sparse and not peer.sparse):
            continue
        if peer.missing:
            group.rows.append(Row(peer.name, note=f"skipped: {peer.missing} is not installed"))
            continue
        answers = answers_within(script_command("soft_peers.py", method, path, loss, C, place), settings.peer_s)
        group.rows.append(_peer_row(peer.name, answers, median(samples), bound, settings))
    group.notes.append(
        f"coremargin: median of {len(samples)} whole commands, start-up, model and report included. Others: a process "
        f"each, settings from cheap to dear for {settings.peer_s:g} s in all, conversion and evaluation between them "
        f"included; shown is the fastest setting within {settings.epsilon:g} of the proven bound, else the one of the "
        f"lowest value; `seconds` is fitting, with reading for those that read from disk; none of them proves anything"
    )
    return group


def _own_row(path: Path, samples: list[Sample]) -> Row:
    answer = samples[-1].answer
    proven = examine(model_of(path), path).ok
    return Row(
        "coremargin train", **timing(samples), ratio=1.0, read=answer["bytes_read"] / answer["store_bytes"],
        scans=answer["scans"], value=answer["upper"] / answer["lower"], memory=samples[-1].tree_bytes,
        note=f"{answer['status']}, {'verified' if proven else 'NOT VERIFIED'}",
    )  # fmt: skip


def _peer_row(what: str, answers: list[dict[str, Any]], reference_s: float, bound: float, settings: Settings) -> Row:
    if not answers:
        return Row(what, note=f"no setting finished within {settings.peer_s:g} s")
    enough = [answer for answer in answers if bound >= (1 - settings.epsilon) * answer["value"]]
    best = min(enough, key=lambda a: a["seconds"]) if enough else min(answers, key=lambda a: a["value"])
    return Row(
        what, best["seconds"], ratio=best["seconds"] / reference_s, whole=best["seconds"] + best["load_seconds"],
        read=best.get("scans"), scans=best.get("scans"), value=best["value"] / bound, memory=best["peak_rss_bytes"],
        note=best["setting"],
    )  # fmt: skip
