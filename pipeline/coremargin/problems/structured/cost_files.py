"""Costs as users give them: a table, a taxonomy, or the distances of labels that are numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coremargin.errors import DataError, LabelError
from coremargin.formats.structured import LARGEST_COST
from coremargin.maths.structures.costs import distances, tree_costs, zero_one

#: Files of costs are not longer than this.
MOST_BYTES = 64 << 20


def costs_of(
    classes: Sequence[Any], table: Path | None, taxonomy: Path | None, *, ordinal: bool
) -> NDArray[np.float64]:
    """The costs (K, K) of these classes, by at most one of three options. Raises DataError, LabelError."""
    if table is not None:
        return read_table(table, [str(label) for label in classes])
    if taxonomy is not None:
        return read_taxonomy(taxonomy, [str(label) for label in classes])
    if not ordinal:
        return zero_one(len(classes))
    wrong = [label for label in classes if isinstance(label, str | bool)]
    if wrong:
        raise LabelError(f"ordinal: expected labels that are numbers, found {wrong[0]!r}; give costs, a table of them")
    return _checked(distances(classes), "ordinal")


def read_table(path: Path, labels: Sequence[str]) -> NDArray[np.float64]:
    """A CSV table of costs: its first line has labels, each further line a true label and the cost of each of these."""
    lines = _lines(path)
    header = lines[0][1][1:]
    if len(set(header)) < len(header):
        raise DataError(f"{path}: line {lines[0][0]}: expected different labels, found one twice; leave one out")
    found: dict[str, dict[str, float]] = {}
    for number, (label, *cells) in lines[1:]:
        if len(cells) != len(header):
            raise DataError(
                f"{path}: line {number}: expected {len(header)} costs, as the first line has labels, found {len(cells)}"
            )
        if label in found:
            raise DataError(f"{path}: line {number}: {label!r} has a line already; leave one out")
        try:
            found[label] = dict(zip(header, map(float, cells), strict=True))
        except ValueError as error:
            raise DataError(f"{path}: line {number}: expected numbers, {error}") from error
    for label in labels:
        if label not in found or label not in header:
            where = "first line" if label in found else "lines"
            raise DataError(f"{path}: expected costs of all labels, the {where} lack {label!r}; add it")
    return _checked(np.array([[found[one][other] for other in labels] for one in labels]), str(path))


def read_taxonomy(path: Path, labels: Sequence[str]) -> NDArray[np.float64]:
    """The costs of a tree: a CSV file with a node and the node above it in each line."""
    parents: dict[str, str] = {}
    for number, cells in _lines(path):
        if len(cells) != 2:
            raise DataError(f"{path}: line {number}: expected a node and the node above it, found {len(cells)} cells")
        if cells[0] in parents:
            raise DataError(f"{path}: line {number}: {cells[0]!r} has a node above it already; leave one line out")
        parents[cells[0]] = cells[1]
    try:
        return tree_costs(labels, parents)
    except ValueError as error:
        raise DataError(f"{path}: expected a tree with all labels, but {error}; correct it") from error


def _checked(costs: NDArray[np.float64], place: str) -> NDArray[np.float64]:
    """Raises DataError unless these are costs."""
    wrong = ~((costs >= 0) & (costs <= LARGEST_COST)) | (np.eye(len(costs)) * costs != 0)
    if wrong.any():
        raise DataError(
            f"{place}: expected costs from 0 to {LARGEST_COST:g}, and 0 for the true label, found {costs[wrong][0]:g}"
        )
    if not costs.any():
        raise DataError(f"{place}: expected costs above 0, found none; nothing would be learned")
    return costs


def read_bytes(path: Path) -> bytes:
    """The content of a file. Raises DataError."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path}: expected a table of costs, found a file of more than {MOST_BYTES >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: expected a CSV file, it cannot be read ({error.strerror})") from error


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers. Raises DataError."""
    try:
        reader = csv.reader(io.StringIO(read_bytes(path).decode(), newline=""))
        found = [(reader.line_num, [cell.strip() for cell in line]) for line in reader if any(line)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: expected a CSV file in UTF-8, it cannot be read ({error})") from error
    if not found:
        raise DataError(f"{path}: expected a CSV file, found no line")
    return found
