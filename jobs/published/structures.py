"""Structured output beside its peers: ``python jobs/published/structures.py DATA [--only ocr]``.

Sequences. OCR letters (Taskar, Guestrin and Koller 2003): a word is a sequence of letters of 16 x 8 pixels; CoNLL-2000
chunking (Tjong Kim Sang and Buchholz 2000): a sentence is a sequence of words with tags. Both train on the half of
the words or on the sections that the data has for training, and are tested on the other.

Peers, on the same features: CRFsuite's conditional random field by L-BFGS (python-crfsuite, if it is installed), and,
written down here, two ways to solve the problem of ``coremargin.train``: block-coordinate Frank-Wolfe (Lacoste-Julien,
Jaggi, Schmidt and Pletscher 2013) with exact steps, and cutting planes of each example (Tsochantaridis, Joachims,
Hofmann and Altun 2005), whose working set is solved by our own ascent. A pass over all examples is a read of theirs;
another one that finds the value is not counted.

Single rows. 20 newsgroups (bydate, tf-idf), with 0/1 loss and with half of the edges between groups in the tree of
their names as the loss, beside LIBLINEAR's Crammer-Singer machine.

CPU seconds are those of this process and its threads, without reading files and making features, without compiling.
``--check`` runs ``verify`` on each model.

DATA: the folder that holds ``ocr_letters/``, ``conll2000/`` and ``20newsgroups/``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, load_npz
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import confusion_matrix
from sklearn.svm import LinearSVC

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.data.writer import StoreWriter
from coremargin.maths.structures.chain import ChainAscent, losses_at
from coremargin.maths.structures.chain import Sequences as Examples
from coremargin.maths.structures.costs import tree_costs
from coremargin.maths.structures.labellings import Labellings
from coremargin.models.evaluate import evaluate
from coremargin.verify.examine import examine

Array = NDArray[np.float64]


class Rows(NamedTuple):
    """Rows (n, d), their labels (n,) and the number of the sequence of each (n,), None: each for itself."""

    X: Any
    y: NDArray[Any]
    groups: NDArray[np.int64] | None


class Task(NamedTuple):
    """Both parts of a set; attributes: of the rows of both parts, as CRFsuite has them."""

    train: Rows
    test: Rows
    attributes: tuple[list[list[str]], list[list[str]]]


@dataclass
class Line:
    """A line of the table: reads None for what has all in memory from the start; gap None for what proves nothing."""

    method: str
    reads: float | None
    gap: float | None
    seconds: float
    accuracy: float
    groups: float
    f1: float | None = None
    cost: float | None = None
    verified: bool | None = None


# Data


def read_ocr(data: Path) -> Task:
    """Words of letters; rows are the pixels that are set."""
    parts, attributes = [], []
    for part in ("train", "test"):
        with gzip.open(data / "ocr_letters" / f"{part}_struct.txt.gz") as file:
            X, y, groups = load_svmlight_file(file, n_features=128, query_id=True, dtype=np.float32)
        letters = np.array([chr(ord("a") + int(k) - 1) for k in y])
        parts.append(Rows(csr_array(X), letters, np.asarray(groups, np.int64)))
        attributes.append([[*map(str, X[i].indices), "1"] for i in range(X.shape[0])])
    return Task(*parts, (attributes[0], attributes[1]))


def read_conll(data: Path, least: int = 2) -> Task:
    """Sentences of words with tags: words and tags within two, pairs of words, pairs and triples of tags.

    Features that occur in fewer than ``least`` training rows are left out.
    """
    parts = [_sentences(data / "conll2000" / f"{part}.txt.gz") for part in ("train", "test")]
    features = [[_features(sentence, t) for sentence in part for t in range(len(sentence))] for part in parts]
    counts = Counter(name for row in features[0] for name in row)
    names = {name: j for j, name in enumerate(sorted(name for name, rows in counts.items() if rows >= least))}
    rows = []
    for part, found in zip(parts, features, strict=True):
        indices = [sorted(names[name] for name in row if name in names) for row in found]
        indptr = np.cumsum([0, *map(len, indices)])
        flat = np.concatenate([np.array(one, np.int32) for one in indices])
        X = csr_array((np.ones(len(flat), np.float32), flat, indptr), shape=(len(indices), len(names)))
        labels = np.array([word[2] for sentence in part for word in sentence])
        rows.append(Rows(X, labels, np.repeat(np.arange(len(part)), [len(sentence) for sentence in part])))
    return Task(rows[0], rows[1], (features[0], features[1]))


def _sentences(path: Path) -> list[list[list[str]]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        blocks = file.read().strip().split("\n\n")
    return [[line.split() for line in block.splitlines()] for block in blocks]


def _features(sentence: Sequence[Sequence[str]], t: int) -> list[str]:
    """The features of a word, each with its value 1."""

    def at(column: int, *places: int) -> str:
        around = [sentence[t + k][column].lower() if 0 <= t + k < len(sentence) else f"<{k}>" for k in places]
        return f"{'wp'[column]}{','.join(map(str, places))}={'|'.join(around)}"

    words = [(0,), (-1,), (-2,), (1,), (2,), (-1, 0), (0, 1)]
    tags = [(0,), (-1,), (-2,), (1,), (2,), (-2, -1), (-1, 0), (0, 1), (1, 2), (-2, -1, 0), (-1, 0, 1), (0, 1, 2)]
    return ["1", *(at(0, *places) for places in words), *(at(1, *places) for places in tags)]


def read_newsgroups(data: Path) -> tuple[Task, list[tuple[str, str]]]:
    """Messages as rows of length 1, and the tree of groups: each node with the one above it."""
    counts = load_npz(data / "20newsgroups" / "bydate_tf.npz").tocsr()
    meta = np.load(data / "20newsgroups" / "bydate_meta.npz")
    train, names = meta["is_train"].astype(bool), meta["label_names"].astype(str)
    labels = names[meta["label"] - meta["label"].min()]
    rows = TfidfTransformer(sublinear_tf=True).fit(counts[train]).transform(counts)
    parts = [Rows(csr_array(rows[some]), labels[some], None) for some in (train, ~train)]
    nodes = {".".join(name.split(".")[:k]) for name in names for k in range(1, name.count(".") + 2)}
    return Task(*parts, ([], [])), sorted((node, node.rpartition(".")[0] or "news") for node in nodes)


# Methods


def certified(
    task: Task,
    structure: str,
    C: float,
    epsilon: float,
    *,
    share: float | None = None,
    check: bool = False,
    judge: Array | None = None,
    **options: Any,
) -> Line:
    """``coremargin.train`` on a store; share: of the examples that memory keeps between segments, None: all fit.

    judge (K, K): costs by which the mean cost of a test row is found.
    """
    with TemporaryDirectory() as folder:
        store, out = Path(folder) / "rows.zarr", Path(folder) / "model"
        train, test = task.train, task.test
        features, grouped = train.X.shape[1], train.groups is not None
        form = {"sparse": issparse(train.X), "grouped": grouped, "chunk_rows": 2048}
        with StoreWriter.create(store, features=features, **form) as writer:
            writer.write(train.X, train.y, groups=train.groups)
        memory = None if share is None else memory_for(train, share)
        start = time.process_time()
        model = coremargin.train(
            store, structure=structure, loss="hinge", C=C, epsilon=epsilon, memory=memory, cluster="threads", out=out,
            **options,
        )  # fmt: skip
        seconds = time.process_time() - start
        run = json.loads((out / "run.json").read_text())
        verified = examine(out, store).ok if check else None
    found = evaluate(model, ArraySource(test.X, test.y, groups=test.groups))
    claims = model.certificate
    gap = None if claims.upper is None else 1.0 - claims.lower / claims.upper
    method = f"coremargin, C {C:g}" + ("" if share is None else f", {share:.0%} of the examples cached")
    groups = found.groups
    return Line(
        method,
        run["bytes_read"] / run["store_bytes"],
        gap,
        seconds,
        found.accuracy,
        found.accuracy if groups is None else groups.accuracy,
        groups.chunks[0].f1 if groups is not None and groups.chunks else None,
        None if judge is None else float((judge * found.confusion).sum() / found.rows),
        verified,
    )


def memory_for(rows: Rows, share: float) -> int:
    """Bytes that hold a share of the examples from one segment to the next: a third of the memory is for these."""
    X, width = rows.X, rows.X.shape[1]
    entries = X.nnz if issparse(X) else len(rows.y) * width
    return int(3 * share * (8 * entries + 40 * len(rows.y)))


def examples_of(rows: Rows, C: float) -> Examples:
    """The sequences as our solver has them in memory, with 0/1 costs, each row ending in a constant 1."""
    classes, codes = np.unique(rows.y, return_inverse=True)
    starts = first_rows(rows)
    offsets = np.append(starts, len(codes)).astype(np.int64)
    costs = np.ones((len(classes), len(classes))) - np.eye(len(classes))
    n = len(starts)
    return Examples(np.arange(n), rows.X, codes.astype(np.uint8), offsets, np.full(n, C), costs, 1.0, True)


def first_rows(rows: Rows) -> NDArray[np.int64]:
    """The first row of each sequence."""
    return np.arange(len(rows.y)) if rows.groups is None else np.flatnonzero(np.diff(rows.groups, prepend=-1))


def value(examples: Examples, w: Array) -> float:
    """P(w)."""
    return float(0.5 * w @ w + examples.c @ np.maximum(losses_at(examples, w).values, 0.0))


def nslack(examples: Examples, most: int) -> Iterator[tuple[Array, float]]:
    """Cutting planes of each example: w and the gap after each read.

    All argmaxes at one w join; then the working set is solved until five rounds gain less than 2e-5 of the value.
    """
    ascent, w, best = ChainAscent(examples, Labellings.nothing(len(examples.costs))), np.zeros(examples.size), np.inf
    rng, every = np.random.default_rng(0), np.arange(len(examples))
    for _ in range(most):
        ascent.visit(every, w, search=True, steps=0)
        best = min(best, value(examples, w))
        yield w, 1.0 - (ascent.dual_loss - 0.5 * float(w @ w)) / best
        last = -np.inf
        while (dual := ascent.dual_loss - 0.5 * float(w @ w)) - last > 2e-5 * best:
            last = dual
            for _ in range(5):
                ascent.visit(rng.permutation(len(examples)), w, search=False)


def bcfw(examples: Examples, most: int) -> Iterator[tuple[Array, float]]:
    """Block-coordinate Frank-Wolfe: w and the gap after each pass; D vectors of all examples are in memory."""
    n, rng, best = len(examples), np.random.default_rng(0), np.inf
    own, losses, w = np.zeros((n, examples.size)), np.zeros(n), np.zeros(examples.size)
    for _ in range(most):
        for i in rng.permutation(n).tolist():
            one = examples.take(np.array([i]))
            argmax = losses_at(one, w).argmax
            corner, loss = psi(one, argmax), float(one.costs[one.labels, argmax].sum())
            move, gain = one.c[0] * corner - own[i], one.c[0] * loss - losses[i]
            square = float(move @ move)
            step = min(1.0, max(0.0, (gain - float(move @ w)) / square)) if square else 0.0
            own[i] += step * move
            w += step * move
            losses[i] += step * gain
        best = min(best, value(examples, w))
        yield w, 1.0 - (losses.sum() - 0.5 * float(w @ w)) / best


def psi(one: Examples, labels: NDArray[Any]) -> Array:
    """Phi(x, y) - Phi(x, y') of an example and another labelling."""
    classes = len(one.costs)
    table, into = np.zeros((one.rows.shape[1] + 1, classes)), np.zeros((classes, classes))
    true, other = one.labels.astype(np.intp), labels.astype(np.intp)
    for path, sign in ((true, 1.0), (other, -1.0)):
        counts = np.diff(one.rows.indptr)
        np.add.at(table, (one.rows.indices, np.repeat(path, counts)), sign * one.rows.data)
        np.add.at(table[-1], path, sign * one.constant)
        np.add.at(into, (path[1:], path[:-1]), sign)
    return np.concatenate([table.ravel(), into.ravel()])


def peer(name: str, method: Callable[..., Iterator[tuple[Array, float]]], task: Task, C: float, most: int) -> Line:
    """A method for the same problem until its gap is 1e-3, or ``most`` reads."""
    examples, start = examples_of(task.train, C), time.process_time()
    w, gap, reads = np.zeros(examples.size), 1.0, 0
    for found, proven in method(examples, most):
        w, gap, reads = found, proven, reads + 1
        if gap <= 1e-3:
            break
    seconds = time.process_time() - start
    test = examples_of(task.test, C)
    right = losses_at(test, w, augmented=False).argmax == test.labels
    return Line(
        f"{name}, C {C:g}", reads, gap, seconds, float(right.mean()),
        float(np.logical_and.reduceat(right, test.offsets[:-1]).mean()),
    )  # fmt: skip


def crfsuite(task: Task, c2: float, iterations: int) -> Line:
    """CRFsuite with L-BFGS and c2 ||w||^2. Raises ImportError."""
    import pycrfsuite

    with TemporaryDirectory() as folder:
        trainer = pycrfsuite.Trainer(verbose=False)
        for rows, labels in _by_group(task.train, task.attributes[0]):
            trainer.append(rows, labels)
        trainer.set_params({"c1": 0, "c2": c2, "max_iterations": iterations, "feature.possible_transitions": True})
        start = time.process_time()
        trainer.train(f"{folder}/model")
        seconds = time.process_time() - start
        tagger = pycrfsuite.Tagger()
        tagger.open(f"{folder}/model")
        pairs = [(labels, tagger.tag(rows)) for rows, labels in _by_group(task.test, task.attributes[1])]
    right = [[a == b for a, b in zip(*pair, strict=True)] for pair in pairs]
    return Line(
        f"CRFsuite, c2 {c2:g}, {iterations} iterations", None, None, seconds,
        float(np.mean([one for group in right for one in group])), float(np.mean([all(group) for group in right])),
        chunk_f1(pairs),
    )  # fmt: skip


def chunk_f1(pairs: Sequence[tuple[list[str], list[str]]]) -> float | None:
    """F1 of chunks by the package's counting; None for other labels."""
    from coremargin.models.chunk_scores import ChunkLabels, chunk_scores

    labels = sorted({label for pair in pairs for part in pair for label in part})
    found = ChunkLabels.from_labels(labels)
    if found is None:
        return None
    codes = {label: k for k, label in enumerate(labels)}
    true, predicted = (np.array([codes[label] for pair in pairs for label in pair[k]]) for k in (0, 1))
    first = np.zeros(len(true), bool)
    first[np.cumsum([0, *(len(pair[0]) for pair in pairs)])[:-1]] = True
    return chunk_scores(found, found.count(true, predicted, first))[0].f1


def _by_group(rows: Rows, attributes: list[list[str]]) -> Iterator[tuple[list[list[str]], list[str]]]:
    starts = first_rows(rows).tolist()
    for start, stop in zip(starts, [*starts[1:], len(attributes)], strict=True):
        yield attributes[start:stop], rows.y[start:stop].tolist()


# Experiments


def ocr(data: Path, *, check: bool) -> Iterator[Line]:
    """OCR letters."""
    task = read_ocr(data)
    for C in (0.02, 0.1, 0.5):
        yield certified(task, "chain", C, 1e-3, check=check)
    for share in (0.5, 0.25):
        yield certified(task, "chain", 0.1, 1e-3, share=share, check=check)
    alone = Task(task.train._replace(groups=None), task.test._replace(groups=None), ([], []))
    yield replace(certified(alone, "outputs", 0.1, 1e-3, check=check), method="coremargin, letter by letter, C 0.1")
    yield peer("n-slack cutting planes", nslack, task, 0.1, 40)
    yield peer("BCFW", bcfw, task, 0.1, 40)
    yield crfsuite(task, 1.0, 100)


def conll(data: Path, *, check: bool) -> Iterator[Line]:
    """CoNLL-2000 chunking."""
    task = read_conll(data)
    yield certified(task, "chain", 0.1, 1e-3, check=check)
    for iterations in (30, 100):
        yield crfsuite(task, 1.0, iterations)


def newsgroups(data: Path, *, check: bool) -> Iterator[Line]:
    """20 newsgroups."""
    task, tree = read_newsgroups(data)
    judge = tree_costs(np.unique(task.train.y).tolist(), dict(tree))
    for C in (0.2, 1.0):
        yield certified(task, "outputs", C, 1e-3, check=check, judge=judge)
        with TemporaryDirectory() as folder:
            (taxonomy := Path(folder) / "tree.csv").write_text("".join(f"{node},{above}\n" for node, above in tree))
            scaled = C * float(judge.max())  # the same problem as with costs of at most 1
            line = certified(task, "outputs", scaled, 1e-3, check=check, judge=judge, taxonomy=str(taxonomy))
            yield replace(line, method=f"{line.method}, tree loss")
    machine, start = LinearSVC(C=1.0, multi_class="crammer_singer"), time.process_time()
    machine.fit(task.train.X, task.train.y)
    seconds, found = time.process_time() - start, machine.predict(task.test.X)
    right, confusion = float(np.mean(found == task.test.y)), confusion_matrix(task.test.y, found)
    cost = float((judge * confusion).sum() / len(found))
    yield Line("LinearSVC, crammer_singer, C 1", None, None, seconds, right, right, cost=cost)


EXPERIMENTS: dict[str, Callable[..., Iterator[Line]]] = {"ocr": ocr, "conll": conll, "newsgroups": newsgroups}


def compile_first() -> None:
    """Compile, or load what was compiled, before anything is timed."""
    rows = Rows(csr_array(np.eye(4, 2, dtype=np.float32)), np.array(["a", "b", "a", "b"]), np.array([0, 0, 1, 1]))
    certified(Task(rows, rows, ([], [])), "chain", 1.0, 1e-2)


def main() -> None:
    """Print the table of each experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(EXPERIMENTS), default=list(EXPERIMENTS))
    parser.add_argument("--check", action="store_true", help="run `verify` on each model")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    args = parser.parse_args()
    lines: dict[str, list[dict[str, Any]]] = {}
    compile_first()
    for name in args.only:
        print(f"\n{name}\n{'method':48} reads      gap   CPU s     rows   groups       F1   cost verified")
        lines[name] = []
        for line in EXPERIMENTS[name](args.data, check=args.check):
            lines[name].append(asdict(line))
            print(describe(line), flush=True)
    if args.json:
        args.json.write_text(json.dumps(lines, indent=1) + "\n")


def describe(line: Line) -> str:
    """The line as text."""
    numbers = [
        "" if line.reads is None else f"{line.reads:.2f}",
        "" if line.gap is None else f"{line.gap:.1e}",
        f"{line.seconds:.1f}",
        f"{line.accuracy:.2%}",
        f"{line.groups:.2%}",
        "" if line.f1 is None else f"{line.f1:.2%}",
        "" if line.cost is None else f"{line.cost:.4f}",
    ]
    widths = (5, 8, 7, 8, 8, 8, 6)
    cells = " ".join(number.rjust(width) for number, width in zip(numbers, widths, strict=True))
    return f"{line.method:48} {cells} {'' if line.verified is None else line.verified}"


if __name__ == "__main__":
    main()
