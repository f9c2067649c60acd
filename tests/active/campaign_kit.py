"""Small stores without labels, people who know them, and the state of a campaign to the bit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from coremargin.active import Campaign
from coremargin.data.writer import StoreWriter

CLASSES = ("ham", "spam")


def rows_and_labels(rows: int = 600, features: int = 4, margin: float = 0.3, seed: int = 5) -> tuple[Any, list[str]]:
    """Normal rows (n, d) float32 pushed apart by a plane, and the label of each."""
    rng = np.random.default_rng(seed)
    plane = rng.standard_normal(features)
    plane /= np.linalg.norm(plane)
    X = rng.standard_normal((rows, features))
    side = X @ plane >= 0
    X += margin * np.where(side, 1, -1)[:, None] * plane
    return X.astype(np.float32), [CLASSES[int(one)] for one in side]


def three_classes(rows: int = 600, seed: int = 7) -> tuple[Any, list[str]]:
    """Rows (n, 4) float32 of three clouds, each of which a hyperplane tells from the rest, and the label of each."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, rows)
    X = rng.uniform(-0.9, 0.9, (rows, 4)) + 3 * np.eye(3, 4)[codes]
    return X.astype(np.float32), ["abc"[code] for code in codes]


def rings(rows: int = 500, seed: int = 0) -> tuple[Any, list[str]]:
    """Rows (n, 2) float32 in a disc and a ring around it, which no line tells apart, and where each lies."""
    rng = np.random.default_rng(seed)
    inside, angle = rng.integers(0, 2, rows), rng.uniform(0, 2 * np.pi, rows)
    radius = np.where(inside, rng.uniform(0, 1, rows), rng.uniform(1.6, 2, rows))
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    return X.astype(np.float32), [CLASSES[one] for one in inside]


def noisy_labels(labels: list[str], share: float, seed: int = 9) -> list[str]:
    """The same labels, a share of them the other one."""
    turned = np.random.default_rng(seed).random(len(labels)) < share
    return [CLASSES[1 - CLASSES.index(label)] if turn else label for label, turn in zip(labels, turned, strict=True)]


def unlabelled(path: Path, X: Any, labels: Any = None, weights: Any = None, *, chunk_rows: int = 64) -> Path:
    """A store of these rows; labels that it has are none of the campaign's business."""
    size = chunk_rows * X.shape[1] * 4
    with StoreWriter.create(
        path, features=X.shape[1], dtype="float32", chunk_bytes=size, weighted=weights is not None
    ) as writer:
        writer.write(X, labels, weights, origin="test")
    return path


def forgotten(campaign: Campaign, keep: Path) -> Campaign:
    """The same campaign as its log alone tells it: a copy without the state; a scan after the last line is repeated."""
    shutil.copytree(campaign.path, keep, ignore=shutil.ignore_patterns("state", "model", ".*"))
    copy = Campaign(keep)
    while copy._state.state.round < campaign._state.state.round:
        copy._state.scan()
    return copy


def state_of(campaign: Campaign) -> dict[str, Any]:
    """All that a campaign knows between two questions, as plain arrays."""
    return campaign._state.state.to_arrays()


def same_state(first: Campaign, second: Campaign) -> bool:
    """Whether two campaigns know the same to the bit."""
    one, other = state_of(first), state_of(second)
    return set(one) == set(other) and all(
        one[name].dtype == other[name].dtype and one[name].tobytes() == other[name].tobytes() for name in one
    )
