"""(i) Few labels: questions, draws, scans and waits of a campaign; random labels; how often its claim is false.

Rows are those of ``coremargin synth`` with a margin of 0.5, seed 1; their own labels answer, one question at a time.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from table import Group, Row

from coremargin.active import ActiveLearner, Campaign
from coremargin.data.store import Store
from coremargin.engine.loop import Callbacks
from coremargin.maths.pool import solve_pool

if TYPE_CHECKING:
    from stores import Settings

#: Of the campaigns that are simulated: a claim of 5 % that may be false in one of ten.
ERROR, CONFIDENCE = 0.05, 0.9


@dataclass
class Course:
    """A campaign that has ended; waits: seconds from an answer to the next question, where no scan lay between."""

    status: dict[str, Any]
    seconds: float
    waits: list[float] = field(default_factory=list)


def few_labels(settings: Settings) -> Iterator[Group]:
    """All groups of part (i)."""
    for rows, features in settings.labelled:
        yield _on_store(settings, rows, features)
    yield coverage(settings.campaigns)


def _on_store(settings: Settings, rows: int, features: int) -> Group:
    store = Store.open(settings.synthetic(rows, features, f"labels-{rows}-{features}"))
    group = Group("i", f"a campaign on {rows:,} rows of {features} features, margin 0.5, to 0.9 of the best margin")
    with tempfile.TemporaryDirectory(dir=settings.work) as folder:
        found = played(store, Path(folder) / "rows.campaign")
    status = found.status
    queries = status["labels_asked"] - status["draws"]
    group.rows.append(
        Row(
            f"campaign, {queries:,} questions and {status['draws']:,} draws",
            found.seconds,
            read=status["bytes_read"] / status["store_bytes"],
            scans=status["scans"],
            margin=status["ratio"],
            memory=status["peak_rss_bytes"],
            note=f"{status['status']}; {_told(found.waits)}",
        )
    )
    for labels, margin in by_random_labels(store, queries, status["upper"]):
        share = f"{queries / labels:.1%} of these were asked above"
        group.rows.append(Row(f"{labels:,} random labels", margin=margin, note=share))
    group.notes.append("margin/bound: on all rows, over the campaign's upper bound; random labels double until 0.9")
    return group


def _told(waits: list[float]) -> str:
    return f"from an answer to the next question {statistics.median(waits):.3f} s, at most {max(waits):.3f} s"


def played(store: Store, out: Path) -> Course:
    """A campaign whose questions the store's own labels answer, to its end."""
    scans: list[int] = []
    started, waits = time.perf_counter(), []
    watch = Callbacks(on_scan=lambda number, _: scans.append(number))
    with Campaign.create(out, store.path, classes=store.classes, seed=1, watch=watch) as campaign:
        questions = campaign.ask()
        while questions:
            row = questions[0].row
            label, before = store.classes[int(store.rows_at(np.array([row]))[1][0])], len(scans)
            asked = time.perf_counter()
            campaign.tell([row], [label])
            questions = campaign.ask()
            if len(scans) == before:
                waits.append(time.perf_counter() - asked)
        campaign.stop()
        return Course(campaign.status, time.perf_counter() - started, waits)


def by_random_labels(store: Store, first: int, best: float) -> Iterator[tuple[int, float]]:
    """Of so many random labels, twice as many each time, the margin of their best hyperplane on all rows, over best."""
    order, labels = np.random.default_rng(1).permutation(store.rows), first
    while True:
        ids = np.sort(order[:labels])
        X, codes = store.rows_at(ids)[:2]
        found = solve_pool(np.asarray(X, np.float64), np.where(codes == 0, -1, 1).astype(np.int8), intercept=True)
        share = _smallest(store, found.w, found.b) / best
        yield len(ids), share
        if share >= 0.9 or labels >= store.rows:
            return
        labels *= 2


def _smallest(store: Store, w: np.ndarray, b: float) -> float:
    margins = []
    for chunk in range(store.chunks):
        X, codes = store.read(chunk)[:2]
        margins.append(float((np.where(codes == 0, -1, 1) * (np.asarray(X, np.float64) @ w + b)).min()))
    return min(margins) / float(np.linalg.norm(w))


def coverage(campaigns: int) -> Group:
    """How many of so many campaigns claim fewer wrong rows than there are: a far cluster that only draws can find."""
    false = wrong = 0
    started = time.perf_counter()
    for seed in range(campaigns):
        X, signs = hidden_cluster(seed)
        learner = ActiveLearner(X, classes=[-1, 1], error=ERROR, confidence=CONFIDENCE, seed=seed)
        answered = 0
        while len(rows := learner.query()[0]):
            learner.teach(rows, signs[rows])
            answered += len(rows)
        mistakes = int((learner.predict(X) != signs).sum())
        evidence = learner.evidence
        wrong += mistakes > 0
        false += evidence is not None and mistakes > ERROR * (len(X) - answered)
    group = Group("i", f"{campaigns:,} campaigns: at most {ERROR:.0%} wrong, with confidence {CONFIDENCE:.0%}")
    note = f"{false:,} claims false, where {(1 - CONFIDENCE) * campaigns:,.0f} may be; {wrong:,} with a row wrong"
    group.rows.append(
        Row("1,500 rows, 12 % of them far along the hyperplane, half of these on its wrong side at first", note=note)
    )
    group.notes.append(f"{time.perf_counter() - started:.0f} s for all of them")
    return group


def hidden_cluster(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (1500, 2) and signs; 12 in 100 lie far along the hyperplane, where the slab is empty whatever they are.

    One that leans a little has half of these wrong, more than may be: a claim that misses them all is false.
    """
    rng = np.random.default_rng(seed)
    near = np.stack([rng.choice([-1, 1], 1320) * rng.uniform(0.3, 2.0, 1320), rng.uniform(-1.0, 1.0, 1320)], axis=1)
    far = np.stack([np.tile([5.0, -5.0], 90), np.full(180, 2000.0)], axis=1) + rng.standard_normal((180, 2)) * 0.1
    X = np.concatenate([near, far])
    return X.astype(np.float32), np.where(X[:, 0] > 0, 1, -1)
