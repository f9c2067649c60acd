"""Pairs of classes from the real data beside the clone."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import scipy.io


def of_table(path: Path, negative: float, positive: float) -> tuple[np.ndarray, np.ndarray]:
    """Two classes of a tab-separated table with a column ``target``."""
    with gzip.open(path, "rt") as lines:
        header = lines.readline().strip().split("\t")
        table = np.loadtxt(lines, delimiter="\t")
    column = header.index("target")
    label = table[:, column]
    rows = (label == negative) | (label == positive)
    return np.delete(table, column, 1)[rows].astype(np.float32), np.where(label[rows] == positive, 1, -1)


def of_matlab(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The two classes of a file with X and Y."""
    found = scipy.io.loadmat(path)
    label = found["Y"].ravel().astype(int)
    return found["X"].astype(np.float32), np.where(label == label.max(), 1, -1)


def of_usps(path: Path, negative: int, positive: int) -> tuple[np.ndarray, np.ndarray]:
    """Two digits of USPS."""
    with np.load(path) as found:
        X, label = found["X_train"], found["y_train"]
    rows = (label == negative) | (label == positive)
    return X[rows].astype(np.float32), np.where(label[rows] == positive, 1, -1)


def of_mnist(folder: Path, negative: int, positive: int) -> tuple[np.ndarray, np.ndarray]:
    """Two digits of MNIST's training part."""
    images, labels = (
        np.frombuffer(gzip.decompress((folder / name).read_bytes()), np.uint8, offset=offset)
        for name, offset in (("train-images-idx3-ubyte.gz", 16), ("train-labels-idx1-ubyte.gz", 8))
    )
    rows = (labels == negative) | (labels == positive)
    return images.reshape(-1, 784)[rows].astype(np.float32), np.where(labels[rows] == positive, 1, -1)
