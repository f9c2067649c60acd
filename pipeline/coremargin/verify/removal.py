"""Claims about all rows but k: which rows are left out, and the tree that proves a bound for every choice of k.

A certificate is a few rows with dual weights that allow no better model than a bound; a better choice of k rows would
have to leave out a row of each. The proof is a tree: each node removes a row, or keeps it. Its leaves must cover every
choice, and a leaf names certificates without removed rows, so many that the rows which may still be removed cannot meet
all of them. What certificates prove is up to the kind of claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coremargin.formats.outliers import outlier_counts
from coremargin.verify.checks import Check

#: Rows that all leaves of a proof may name, those of each certificate whenever it is named.
MOST_WORK = 10**8

_PARTS = ("rows", "weights", "paths", "numbers")


def stored_proof(arrays: Mapping[str, np.ndarray]) -> dict[str, list[np.ndarray]]:
    """Rows, weights, paths and numbers of the proof in a model's arrays; empty if it stores none."""
    return {name: lists(arrays, f"proof_{name}") for name in _PARTS if f"proof_{name}" in arrays}


def most_left_out(asked: Any, rows: int) -> int:
    """How many of the rows that count may be left out. Raises ValueError for several numbers."""
    found = outlier_counts(asked, lambda: rows)
    if len(found) != 1:
        raise ValueError(f"expected one number of outliers, found {asked!r}")
    return found[0]


def check_left_out(asked: Any, ids: np.ndarray, counting: int, rows: int, what: str) -> Check:
    """Whether the rows that are left out count, each once, and are no more than asked for.

    counting: how many of them count; rows: how many do in all; what: they may do.
    """
    try:
        most = most_left_out(asked, rows)
    except ValueError as error:
        return Check("outliers", ok=False, text=str(error))
    if len(ids) <= most < rows and len(np.unique(ids)) == len(ids) == counting:
        return Check("outliers", ok=True, text=f"{len(ids):,} rows, at most {most:,}, {what}")
    text = f"expected at most {most:,} of the {rows:,} rows that count, each once, and a row that stays; found "
    text += f"{len(ids):,}, {counting:,} of which count"
    return Check("outliers", ok=False, text=text)


def proving_certificates(proof: Mapping[str, list[np.ndarray]], ids: np.ndarray, k: int) -> list[int]:
    """Numbers of the certificates that a bound for every choice of k rows rests on; ids (m,): of the coreset.

    Raises ValueError if the tree is no proof.
    """
    m = len(ids)
    if not proof or not proof["paths"]:
        raise ValueError("the model holds no proof of this bound")
    if len(np.unique(ids)) < m:
        raise ValueError("the coreset has a row twice, which would count as two")
    sets = []
    for places, weights in zip(proof["rows"], proof["weights"], strict=True):
        if not len(places) or len(places) != len(weights) or not ((places >= 0) & (places < m)).all():
            raise ValueError("a certificate names rows that are not there, or has not a weight for each")
        if len(np.unique(places)) < len(places):
            raise ValueError("a certificate names a row twice")
        sets.append(frozenset(places.tolist()))
    work, leaves, used = 0, list[tuple[int, ...]](), set[int]()
    for path, numbers in zip(proof["paths"], proof["numbers"], strict=True):
        steps = tuple(path.tolist())
        if any(not -m <= step < m for step in steps):
            raise ValueError("a leaf names a row that is not there")
        if not len(numbers) or numbers.min() < 0 or numbers.max() >= len(sets):
            raise ValueError("a leaf names no certificate, or one that is not there")
        work += sum(len(sets[number]) for number in numbers.tolist())
        if work > MOST_WORK:
            raise ValueError(f"leaves name over {MOST_WORK:,} rows in all, too many to check")
        check_leaf(steps, [(sets[number], 1) for number in numbers.tolist()], k)
        leaves.append(steps)
        used.update(numbers.tolist())
    check_cover(sorted(leaves))
    return sorted(used)


def check_leaf(path: tuple[int, ...], named: Sequence[tuple[frozenset[int], int]], k: int) -> None:
    """Raises ValueError if k removed rows can meet all certificates that a leaf names; named: each, and how often."""
    removed, kept = {step for step in path if step >= 0}, {~step for step in path if step < 0}
    if len(removed) + len(kept) < len(path) or removed & kept:
        raise ValueError("a path decides about a row twice")
    if any(rows & removed for rows, _ in named):
        raise ValueError("a certificate at a leaf has a removed row")
    if any(rows <= kept for rows, _ in named):
        return
    times = Counter[int]()
    for rows, often in named:
        times.update(dict.fromkeys(rows - kept, often))
    count, met = sum(often for _, often in named), max(times.values()) * (k - len(removed))
    if len(removed) <= k and count <= met:
        raise ValueError(
            f"{count:,} certificates at a leaf, where the {k - len(removed):,} rows that may still be removed can meet "
            f"{met:,}, as often as they are named"
        )


def check_cover(paths: list[tuple[int, ...]]) -> None:
    """Raises ValueError unless the leaves are those of one tree, each of whose nodes has both children."""
    waiting: list[tuple[list[tuple[int, ...]], int]] = [(paths, 0)]
    while waiting:
        here, depth = waiting.pop()
        if any(len(path) == depth for path in here):
            if len(here) > 1:
                raise ValueError("a leaf lies below another one")
            continue
        steps = {path[depth] for path in here}
        if len(steps) != 2 or sum(steps) != -1:
            raise ValueError("a node has not both children: a choice is not covered")
        waiting += [([path for path in here if path[depth] == step], depth + 1) for step in steps]


def lists(arrays: Mapping[str, np.ndarray], name: str) -> list[np.ndarray]:
    """The lists that an array and their ends hold."""
    ends = arrays[f"{name}_ends"]
    return np.split(arrays[name], ends)[:-1] if len(ends) else []
