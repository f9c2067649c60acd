"""Part (i): how many labels it takes until a hyperplane has 0.9 of the best margin on all rows, whoever chooses them.

A campaign asks one question at a time; random ones are the first rows of a random order; and there is one who knows all
labels and takes the row that the hyperplane so far has worst (Figure 1 of Har-Peled, Roth, Zimak 2006): where that one
needs many, no way to ask needs few.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from play import Course, played
from stores import GB, TITLES
from table import Group, Row

import coremargin
from coremargin.data.store import Store

if TYPE_CHECKING:
    from stores import Settings

#: The share of the best margin that is to be reached, and the labels that may be asked for, as a share of random ones.
ENOUGH, TARGET = 0.9, 0.03
#: Orders of random labels; the number of labels is known to this share; tried first.
ORDERS, FINE, FIRST = 3, 0.05, 50


@dataclass(frozen=True)
class Judge:
    """All rows of a store with their true labels, and the largest margin that any hyperplane has on them."""

    store: Store
    best: float

    @classmethod
    def of(cls, store: Store) -> Judge:
        """As ``train`` proves it: the upper bound."""
        return cls(store, float(coremargin.train(store).certificate.upper))

    def _chunks(self) -> Iterator[tuple[Any, np.ndarray]]:
        return (self.store.read(chunk)[:2] for chunk in range(self.store.chunks))

    def share(self, w: np.ndarray, b: float, least: float = -np.inf) -> float:
        """Of the best margin, what a hyperplane has on all rows; at most 0 while one is wrong.

        Where it turns out to be below ``least`` no further rows are looked at.
        """
        found, length = np.inf, float(np.linalg.norm(w)) * self.best
        if not length:
            return 0.0
        for X, codes in self._chunks():
            found = min(found, float((np.where(codes == 0, -1, 1) * (X @ w + b)).min()) / length)
            if found < least:
                break
        return found

    def wrong(self, w: np.ndarray, b: float) -> int:
        """How many rows a hyperplane has on the wrong side."""
        return sum(int(((codes == 0) == (X @ w + b >= 0)).sum()) for X, codes in self._chunks())

    def worst(self, w: np.ndarray, b: float) -> tuple[float, int]:
        """The share of the best margin on all rows, and the row that has it."""
        found = []
        for chunk, (X, codes) in enumerate(self._chunks()):
            margins = np.where(codes == 0, -1, 1) * (X @ w + b)
            found.append((float(margins.min()), int(margins.argmin()) + self.store.span(chunk)[0]))
        margin, row = min(found)
        return margin / (float(np.linalg.norm(w)) * self.best), row

    def of_rows(self, ids: np.ndarray) -> tuple[np.ndarray, float] | None:
        """The hyperplane of the largest margin on some rows; None where these are of one class."""
        X, codes = self.store.rows_at(np.sort(ids))[:2]
        if len(np.unique(codes)) < 2:
            return None
        found = coremargin.train(X, codes)
        return np.asarray(found.w), float(found.b)


def by_random_labels(judge: Judge, seed: int) -> tuple[int, float]:
    """How many labels in a random order reach ENOUGH, up to the share FINE of them, and what these reach.

    Numbers double until one is enough, and are halved in between: as if what more labels reach were never less.
    """
    order = np.random.default_rng(seed).permutation(judge.store.rows)

    def reached(labels: int) -> float:
        plane = judge.of_rows(order[:labels])
        return 0.0 if plane is None else judge.share(*plane, least=ENOUGH)

    return _least(reached, judge.store.rows)


def _least(reached: Callable[[int], float], rows: int) -> tuple[int, float]:
    few, many = 0, min(FIRST, rows)
    while (share := reached(many)) < ENOUGH and many < rows:
        few, many = many, min(2 * many, rows)
    while many - few > max(1, FINE * many):
        middle = (few + many) // 2
        found = reached(middle)
        if found >= ENOUGH:
            many, share = middle, found
        else:
            few = middle
    return many, share


def by_known_labels(judge: Judge) -> tuple[int, float]:
    """How many rows reach ENOUGH that one takes who knows all labels: the worst row of all, again and again."""
    codes = judge.store.read(0)[1]
    chosen = [int(np.flatnonzero(codes == code)[0]) for code in np.unique(codes)]
    share = 0.0
    while share < ENOUGH:
        plane = judge.of_rows(np.array(chosen))
        if plane is None:
            raise ValueError(f"{judge.store.name}: expected rows of two classes in the first chunk")
        share, row = judge.worst(*plane)
        chosen.append(row)
    return len(chosen) - 1, share


def labels_needed(settings: Settings, store: Store, title: str) -> Group:
    """A table of who needs how many labels on one store."""
    judge = Judge.of(store)
    group = Group("i", f"labels until {ENOUGH} of the best margin: {title}, {store.rows:,} x {store.features:,}")
    with tempfile.TemporaryDirectory(dir=settings.work) as folder:
        campaign = played(store, Path(folder) / "rows.campaign", lambda w, b: judge.share(w, b, ENOUGH) >= ENOUGH)
    random = sorted(by_random_labels(judge, seed) for seed in range(ORDERS))
    group.rows += _rows(judge, campaign, random)
    if store.nbytes < GB:  # one pass for each row that it takes
        known, share = by_known_labels(judge)
        group.rows.append(Row("all labels known, the worst row again and again", labels=known, margin=share))
    group.notes += _verdict(campaign, [labels for labels, _ in random], store.rows)
    return group


def _rows(judge: Judge, campaign: Course, random: list[tuple[int, float]]) -> Iterator[Row]:
    status, (w, b) = campaign.status, campaign.plane
    wrong = judge.wrong(w, b)
    yield Row(
        f"a campaign, until it has {ENOUGH}", labels=campaign.enough,
        note="" if campaign.enough else f"not reached: {wrong:,} rows are labelled wrongly at its end",
    )  # fmt: skip
    yield Row(
        "at its end", labels=status["labels_asked"], scans=status["scans"], margin=judge.share(w, b),
        note=f"{status['status']}; {campaign.queries:,} questions, {status['draws']:,} draws",
    )  # fmt: skip
    for labels, share in random:
        yield Row("random labels", labels=labels, margin=share)


def _verdict(campaign: Course, random: list[int], rows: int) -> Iterator[str]:
    """Whether the target is met, and what 3 % are."""
    median = sorted(random)[len(random) // 2]
    at_most = f"{TARGET:.0%} of the random labels (median of {len(random)} orders)"
    if campaign.enough is None:
        yield f"target, at most {at_most}: missed, the campaign ends before"
    else:
        share = campaign.enough / median
        yield f"target, at most {at_most}: {'met' if share <= TARGET else 'missed'}, {share:.1%}"
    yield f"{TARGET:.0%} are {int(TARGET * median):,} labels; random ones are {median / rows:.1%} of all rows"


def on_real_rows(settings: Settings) -> Iterator[Group]:
    """The same on real pairs that a hyperplane separates."""
    for name in settings.pairs:
        path = settings.real_store(name)
        if path is None:
            yield Group("i", f"labels until {ENOUGH} of the best margin: {TITLES[name]}: skipped, its file is absent")
        else:
            yield labels_needed(settings, Store.open(path), TITLES[name])
