"""Write the real data that scikit-learn bundles as files for `make demo`: `python jobs/demo_data.py FOLDER`.

With --forget behind it, remove what the tour left there.

Stores and models that an earlier tour left in the folder are removed, and the campaign that it played, unless people
have answered in it; whatever else is there stays.

digits.X.npy, digits.y.npy   8 x 8 pixel images of handwritten digits, values 0 to 16, and the digits
zeros.txt                    which of them are zeros: "zero" or "other", one a line; README's oracle for few labels
cancer.csv                   30 measurements of cell nuclei, in standard deviations from their mean, and the diagnosis
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from coremargin.data.owned import STORE
from coremargin.engine.checkpoint import CHECKPOINT, folder_of
from coremargin.models.files import MODEL


def forget(folder: Path) -> None:
    """Remove what an earlier tour made, and nothing else; the folder too, if that was all."""
    for name in ("digits", "cancer", "zeros"):
        STORE.remove(folder / f"{name}.zarr")
        MODEL.remove(folder / f"{name}.model")
        CHECKPOINT.remove(folder_of(folder / f"{name}.model"))
    forget_campaign(folder / "zeros.campaign")
    for name in ("digits.X.npy", "digits.y.npy", "zeros.txt", "cancer.csv"):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # something else is in it
        folder.rmdir()


def forget_campaign(folder: Path) -> None:
    """Remove a campaign whose answers all come from a file; keep any other."""
    with suppress(FileNotFoundError, NotADirectoryError):
        lines = [json.loads(line) for line in (folder / "answers.jsonl").read_text(encoding="utf-8").splitlines()]
        if all(line["who"] == "file zeros.txt" for line in lines):
            shutil.rmtree(folder)


def write_digits(folder: Path) -> None:
    """All images and their digits, as NumPy files, and which are zeros."""
    X, y = load_digits(return_X_y=True)
    np.save(folder / "digits.X.npy", X)
    np.save(folder / "digits.y.npy", y)
    words = "".join("zero\n" if digit == 0 else "other\n" for digit in y)
    (folder / "zeros.txt").write_text(words, encoding="utf-8")


def write_cancer(folder: Path) -> None:
    """All rows, as CSV with a header; labels are words."""
    bunch = load_breast_cancer()
    X = (bunch.data - bunch.data.mean(axis=0)) / bunch.data.std(axis=0)
    with (folder / "cancer.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(name.replace(" ", "_") for name in bunch.feature_names), "diagnosis"])
        for row, code in zip(X.tolist(), bunch.target, strict=True):
            writer.writerow([*row, bunch.target_names[code]])


if __name__ == "__main__":
    target = Path(sys.argv[1])
    forget(target)
    if "--forget" not in sys.argv:
        target.mkdir(parents=True, exist_ok=True)
        write_digits(target)
        write_cancer(target)
