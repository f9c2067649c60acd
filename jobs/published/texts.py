"""Figure 4 of Louche and Ralaivola 2015 on texts: `python jobs/published/texts.py DATA [--of newsgroups] [--runs 3]`.

DATA: the folder that holds ``reuters21578/modapte_tf.npz`` and ``modapte_meta.npz``, or ``20newsgroups/bydate_tf.npz``
and ``bydate_meta.npz``. Documents as tf-idf, of length 1; the ten topics, or groups, with the most documents of the
training part, each against the rest. A pool is drawn from the training
part, with two rows labelled to start, one of each class; all are asked about by one method and classified by its
hypothesis, on the whole test part. Besides accuracy, which most documents being negative flatters: F1, and the
break-even point of precision and recall (as many documents called positive as there are, of the highest values).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from curves import Panel, draw
from numpy.typing import NDArray

from coremargin.maths.active.centres import centre_of
from coremargin.maths.active.cutting_planes import active_cutting_planes
from coremargin.maths.hard_margin import solve_hard_margin

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows

#: Questions after which all is measured.
AFTER = (0, 2, 5, 10, 20, 30, 50)
TOPICS = 10


@dataclass
class Texts:
    """Documents (n, d) of the training and the test part, and which of the topics each has (n, topics)."""

    train: sp.csr_array
    test: sp.csr_array
    train_topics: NDArray[np.bool_]
    test_topics: NDArray[np.bool_]
    names: list[str]


def reuters(folder: Path) -> tuple[sp.csr_array, NDArray[np.bool_], NDArray[np.bool_], list[str]]:
    """Counts of terms (n, d), which rows are of the training part, which topics each has (n, topics), their names."""
    counts = sp.csr_array(sp.load_npz(folder / "reuters21578" / "modapte_tf.npz"))
    with np.load(folder / "reuters21578" / "modapte_meta.npz") as meta:
        train, names = meta["is_train"], meta["topic_names"]
        indices, indptr = meta["topics_indices"], meta["topics_indptr"]
        topics = sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(len(train), len(names)))
    return counts, train, topics.toarray() > 0, [str(name) for name in names]


def newsgroups(folder: Path) -> tuple[sp.csr_array, NDArray[np.bool_], NDArray[np.bool_], list[str]]:
    """As ``reuters``; each document is of one group."""
    counts = sp.csr_array(sp.load_npz(folder / "20newsgroups" / "bydate_tf.npz"))
    with np.load(folder / "20newsgroups" / "bydate_meta.npz") as meta:
        train, labels, names = meta["is_train"], meta["label"], meta["label_names"]
    return counts, train, labels[:, None] == np.arange(len(names)), [str(name) for name in names]


SETS = {"reuters": reuters, "newsgroups": newsgroups}


def read(folder: Path, name: str) -> Texts:
    """The documents as tf-idf: (1 + ln tf) ln(n / df), df of the training part, length 1; none without words."""
    counts, train, topics, names = SETS[name](folder)
    counts = counts.astype(np.float64)
    counts.data = 1.0 + np.log(counts.data)
    seen = np.maximum((counts[train] > 0).sum(axis=0), 1)
    rows = sp.csr_array(counts * np.log(train.sum() / seen)[None, :])
    lengths = np.sqrt(rows.power(2).sum(axis=1))
    some = lengths > 0
    rows = sp.csr_array(sp.diags_array(1.0 / lengths[some]) @ rows[some])
    has, train = topics[some], train[some]
    most = np.argsort(-has[train].sum(axis=0), kind="stable")[:TOPICS]
    return Texts(rows[train], rows[~train], has[train][:, most], has[~train][:, most], [names[k] for k in most])


def with_intercept(rows: Rows, signs: NDArray[np.int8]) -> tuple[Array, float]:
    """The hyperplane of the largest margin."""
    found = solve_hard_margin(rows, signs, intercept=True)
    return found.w, found.b


def hypotheses(
    method: str, pool: sp.csr_array, signs: NDArray[np.int8], first: NDArray[np.intp], seed: int
) -> Iterator[Any]:
    """(w, b) before question 1, 2, ..."""
    if method == "random, intercept":
        rest = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(len(signs)), first))
        order = np.concatenate([first, rest])
        for count in range(2, len(order)):
            known = np.sort(order[:count])
            yield with_intercept(pool[known], signs[known])
        return
    centre = {
        "Active-BPM (EP)": lambda rows, y: centre_of("ep", rows, y),
        "Active-BPM, intercept": lambda rows, y: centre_of("ep", rows, y, constant=1.0),
        "Active-SVM": lambda rows, y: centre_of("chebyshev", rows, y),
        "Active-SVM, intercept": with_intercept,
    }[method]
    for asked in active_cutting_planes(pool, lambda row: int(signs[row]), centre, first):
        yield asked.w, asked.b


METHODS = ("Active-BPM (EP)", "Active-SVM", "Active-BPM, intercept", "Active-SVM, intercept", "random, intercept")


def judged(values: Array, truth: NDArray[np.bool_]) -> tuple[float, float, float]:
    """Accuracy, F1, and the break-even point."""
    called = values > 0
    hits = int((called & truth).sum())
    f1 = 2 * hits / max(1, int(called.sum()) + int(truth.sum()))
    highest = np.argsort(-values, kind="stable")[: int(truth.sum())]
    return float((called == truth).mean()), f1, float(truth[highest].mean())


def measure(
    texts: Texts, method: str, topic: int, working_set_rows: int, seed: int
) -> list[tuple[float, float, float]]:
    """After so many questions each, in one run: the same pool and start for all methods."""
    rng = np.random.default_rng([seed, topic])
    has = texts.train_topics[:, topic]
    start = [int(rng.choice(np.flatnonzero(has))), int(rng.choice(np.flatnonzero(~has)))]
    others = rng.permutation(np.setdiff1d(np.arange(len(has)), start))[: working_set_rows - 2]
    chosen = np.concatenate([start, others])
    signs = np.where(has[chosen], 1, -1).astype(np.int8)
    told = hypotheses(method, texts.train[chosen], signs, np.array([0, 1]), seed)
    return [
        judged(texts.test @ w + b, texts.test_topics[:, topic])
        for asked, (w, b) in enumerate(islice(told, AFTER[-1] + 1))
        if asked in AFTER
    ]


def show(method: str, runs: Array, beyond: Array) -> None:
    """Means over all runs (n, after, 3), and of what they are beyond those of the first method with its errors."""
    errors = beyond.std(axis=0, ddof=1) / np.sqrt(len(beyond))
    for k, name in enumerate(("accuracy", "F1", "break-even")):
        print(f"{method:24} {name:10} " + " ".join(f"{value:.3f}" for value in runs.mean(axis=0)[:, k]), flush=True)
        if beyond.any():
            told = (
                f"{value:+.3f}({error:.3f})"
                for value, error in zip(beyond.mean(axis=0)[:, k], errors[:, k], strict=True)
            )
            print(f"{'':24} {'difference':10} " + " ".join(told), flush=True)


def plot(means: dict[str, list[list[float]]], file: Path, name: str, runs: str) -> None:
    """All methods by what they are judged by, on the texts of this name."""
    panels = [
        Panel(
            f"Figure 4: {name.capitalize()}, {what}", "questions",
            {method: [(x, row[k]) for x, row in zip(AFTER, rows, strict=True)] for method, rows in means.items()},
            ((10, 0.9),) if k == 0 else (), 0.5 if k == 0 else 0.0, 1.0,
        )
        for k, what in enumerate(("accuracy", "F1", "break-even"))
    ]  # fmt: skip
    draw(file, panels, f"{runs}; circle: published, an accuracy of 0.9 after about ten questions")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--of", choices=SETS, default="reuters")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--pool", type=int, default=500)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="SVG")
    options = parser.parse_args()
    texts = read(options.data, options.of)
    print(f"{len(texts.train_topics):,} + {len(texts.test_topics):,} documents, {texts.names}")
    means: dict[str, list[list[float]]] = {}
    first = None
    for method in METHODS:
        which = [(topic, seed) for topic in range(TOPICS) for seed in range(options.runs)]
        runs = np.array([measure(texts, method, topic, options.pool, seed) for topic, seed in which])
        first = runs if first is None else first
        means[method] = runs.mean(axis=0).tolist()
        show(method, runs, runs - first)
    said = f"pool {options.pool}, {options.runs} {'run' if options.runs == 1 else 'runs'} a topic"
    print(f"after {AFTER} questions; {said}")
    if options.plot:
        plot(means, options.plot, options.of, said)
    if options.json:
        told = {"after": AFTER, "pool": options.pool, "runs": options.runs, "mean": means}
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
