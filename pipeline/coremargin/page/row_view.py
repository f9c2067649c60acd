"""What people see of a row: its text, its image, its features as an image, or as a table."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.view import columns_of
from coremargin.errors import DataError, UsageError
from coremargin.formats.local_path import local_path
from coremargin.page.pictures import Picture, drawn, read_picture
from coremargin.page.sidecar import Column, Lines, values_of

if TYPE_CHECKING:
    from coremargin.data.store import Store

FEATURES_SHOWN = 24
LONGEST_TEXT = 20_000  #: characters; of a longer text the rest is left out, which is said
ROW = "{row}"

Content = dict[str, Any]


class Shown:
    """How the rows of a store are shown; by nothing else, as a table of their features.

    text: FILE, one line a row, or FILE:COLUMN. image: a path with ``{row}`` in it, or FILE:COLUMN of paths that begin
    where the file lies. pixels: HEIGHTxWIDTH, or HEIGHTxWIDTHx3. Raises UsageError, DataError. The attribute ``parts``
    has the names of what is shown: "image", "text", or else "features"; ``store`` may be set to a later commit.
    """

    def __init__(
        self, store: Store, *, text: str | None = None, image: str | None = None, pixels: str | None = None
    ) -> None:
        self.store = store
        self._texts = None if text is None else values_of(text, store.rows, "--text")
        self._images = None if image is None else _images(image, store.rows)
        self._shape = None if pixels is None else _shape(pixels, store.features)
        there = {"image": self._images or self._shape, "text": self._texts}
        self.parts = [name for name, one in there.items() if one is not None] or ["features"]
        columns = columns_of(store)
        self._names = None if columns is None else [name for column in columns.columns for name in column.features]

    def content(self, row: int) -> Content:
        """What a browser is told of a row: "text", "image", "features" of (name, value), "more" left out, "missing"."""
        found: Content = {"row": row, "missing": []}
        if self._texts is not None:
            text = self._texts.get(row)
            if text is None:
                found["missing"].append(f"expected a text for row {row:,}, found none")
            else:
                found["text"], found["cut"] = text[:LONGEST_TEXT], len(text) > LONGEST_TEXT
        if self._images is not None or self._shape is not None:
            try:
                self.picture(row)
                found["image"] = f"image/{row}"
                found["pixels"] = self._images is None
            except DataError as error:
                found["missing"].append(str(error))
        if not {"text", "image"} & set(found):
            found |= self._table(row)
        return found

    def picture(self, row: int) -> Picture:
        """The image of a row. Raises DataError, also for a row beyond the store."""
        if not 0 <= row < self.store.rows:
            raise DataError(f"row {row:,}: expected one below {self.store.rows:,}: the store has no other")
        if self._images is not None:
            return read_picture(self._images.path(row))
        if self._shape is None:
            raise DataError(f"row {row:,}: expected an image, found a campaign that shows none")
        return drawn(self._values(row), self._shape)

    def _values(self, row: int) -> np.ndarray:
        found = self.store.rows_at(np.array([row], np.int64))[0]
        return np.asarray(found.toarray() if hasattr(found, "toarray") else found, np.float64).reshape(-1)

    def _table(self, row: int) -> Content:
        """The first features that are not zero or, where there are few, all of them."""
        values = self._values(row)
        places = np.arange(len(values)) if len(values) <= FEATURES_SHOWN else np.flatnonzero(values)
        shown = [(self._name(int(place)), f"{values[place]:.6g}") for place in places[:FEATURES_SHOWN]]
        zeros = len(values) - len(places)
        return {"features": shown, "more": len(places) - len(shown), "zeros": zeros}

    def _name(self, place: int) -> str:
        return f"feature {place}" if self._names is None else self._names[place]


class _Pattern:
    """Paths with the number of the row in them."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def path(self, row: int) -> Path:
        return Path(self._pattern.replace(ROW, str(row)))


class _Paths:
    """Paths in a column, below the folder of its file: a table that others made names no file elsewhere."""

    def __init__(self, values: Lines | Column, folder: Path) -> None:
        self._values, self._folder = values, folder.resolve()

    def path(self, row: int) -> Path:
        text = self._values.get(row)
        if not text:
            raise DataError(f"expected the path of an image for row {row:,}, found none")
        if "\0" in text:
            raise DataError(f"row {row:,}: expected the path of an image, found one that no file has")
        found = Path(os.path.realpath(self._folder / text))
        if not found.is_relative_to(self._folder):
            raise DataError(f"row {row:,}: expected an image below {self._folder}, found a path to elsewhere")
        return found


def _images(image: str, rows: int) -> _Pattern | _Paths:
    if ROW in image:
        return _Pattern(str(local_path(image)))
    values = values_of(image, rows, "--image")
    path = local_path(image)
    path = path if path.exists() else local_path(image.rpartition(":")[0])
    return _Paths(values, path.parent)


def _shape(pixels: str, features: int) -> tuple[int, ...]:
    found = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})(x3)?", pixels)
    if found is None:
        raise UsageError(f"--pixels: expected HEIGHTxWIDTH or HEIGHTxWIDTHx3, found {pixels!r}; for example 28x28")
    shape = (int(found[1]), int(found[2]), *((3,) if found[3] else ()))
    if int(np.prod(shape)) != features:
        raise UsageError(f"--pixels: expected as many as the {features:,} features, found {int(np.prod(shape)):,}")
    return shape
