"""(g) Ten values of C: one fleet by the same scans, against one run after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from against_peers import answers_within
from against_soft_peers import PEERS
from measure import interleaved_within, median, script_command
from soft_formats import CONVERTED
from stores import TITLES
from table import Group, Row
from training import model_of, timing, train_process

from coremargin.data.store import Store
from coremargin.models.fleet import FleetModel
from coremargin.spec import format_size
from coremargin.verify.examine import examine

if TYPE_CHECKING:
    from pathlib import Path

    from stores import Settings

COSTS = tuple(float(f"{cost:.3g}") for cost in np.geomspace(0.01, 10, 10))
METHODS = ("linear_svc", "liblinear")


def against_grid(settings: Settings) -> Iterator[Group]:
    """A group for each dataset and loss."""
    for name in settings.soft:
        path = settings.real_store(name)
        if path is None:
            yield Group("g", f"{TITLES[name]}: skipped, its file is not in the data folder")
        else:
            yield _compare(TITLES[name], path, "hinge", settings)


def _compare(title: str, path: Path, loss: str, settings: Settings) -> Group:
    store = Store.open(path)
    group = Group("g", f"{loss}, ten values of C from {COSTS[0]:g} to {COSTS[-1]:g}, {title}, {store.rows:,} rows")
    words = ("--loss", loss, "--C", ",".join(map(str, COSTS)))
    runs = {
        "one": lambda: train_process(path, "--loss", loss, "--C", 1, epsilon=settings.epsilon),
        "ten": lambda: train_process(path, *words, epsilon=settings.epsilon, watch=True),
    }
    samples = interleaved_within(runs, min(3, settings.repetitions), settings.train_s / 4)
    one, ten = samples["one"][-1].answer, samples["ten"][-1]
    fleet = FleetModel.load(model_of(path))
    bounds = {entry["C"]: entry["lower"] for entry in fleet.record["members"]}
    proven = examine(model_of(path), path).ok
    group.rows += [
        Row(
            "coremargin train, one C", **timing(samples["one"]), read=one["bytes_read"] / one["store_bytes"],
            scans=one["scans"],
        ),
        Row(
            "coremargin train, ten", **timing(samples["ten"]), ratio=1.0, scans=ten.answer["scans"],
            read=ten.answer["bytes_read"] / ten.answer["store_bytes"], memory=ten.tree_bytes,
            note=f"{ten.answer['status']}, {'verified' if proven else 'NOT VERIFIED'}",
        ),
    ]  # fmt: skip
    place = path.with_suffix(f".{CONVERTED}")
    place.mkdir(exist_ok=True)
    for method in METHODS:
        if PEERS[method].missing:
            group.rows.append(Row(PEERS[method].name, note=f"skipped: {PEERS[method].missing} is not installed"))
            continue
        found = [_fastest(method, path, loss, cost, place, bounds[cost], settings) for cost in COSTS]
        group.rows.append(_sum_row(f"{PEERS[method].name}, ten runs", found, median(samples["ten"])))
    group.notes.append(
        f"{format_size(store.nbytes)}; others: for each C the fastest setting within {settings.epsilon:g} of the "
        f"proven bound counts, summed up; where none is, the lowest value"
    )
    return group


def _fastest(
    method: str, path: Path, loss: str, cost: float, place: Path, bound: float, settings: Settings
) -> dict[str, Any] | None:
    command = script_command("soft_peers.py", method, path, loss, cost, place)
    answers = [
        {**answer, "value": answer["value"] / bound} for answer in answers_within(command, settings.peer_s)
    ]  # fmt: skip
    enough = [answer for answer in answers if answer["value"] <= 1 / (1 - settings.epsilon)]
    if enough:
        return min(enough, key=lambda a: float(a["seconds"]))
    return min(answers, key=lambda a: float(a["value"]), default=None)


def _sum_row(what: str, found: list[dict[str, Any] | None], reference_s: float) -> Row:
    told = [answer for answer in found if answer is not None]
    if len(told) < len(found):
        return Row(what, note=f"{len(found) - len(told)} values of C not within the limit")
    seconds = sum(answer["seconds"] for answer in told)
    load = max(answer["load_seconds"] for answer in told)
    return Row(
        what, seconds, ratio=seconds / reference_s, whole=seconds + load, value=max(a["value"] for a in told),
        memory=max(a["peak_rss_bytes"] for a in told), note="value/bound: the largest of ten",
    )  # fmt: skip
