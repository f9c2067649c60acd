"""SHA-256 of a store's content, from its rows in order: formats/store_record.py has the definition.

It depends on how many rows a chunk has. A model names this number, so its claim can be checked with any store of the
same rows, in whatever chunks: where the store's are others, rows are hashed in runs as long as the model's chunks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

PARTS = ("x", "y", "indices", "lengths", "weights")
LABELS = ("y", "weights")  #: parts that later commits may change
GROUP_PARTS = ("groups", "group_ids")  #: of rows in groups


def bytes_of(values: np.ndarray) -> Any:
    """The little-endian bytes of an array: a buffer without a copy."""
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8)


def hashes_of(parts: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """SHA-256 of each part of a chunk."""
    return {name: hashlib.sha256(bytes_of(values)).digest() for name, values in parts.items()}


class ContentHash:
    """SHA-256 of the content of ``rows`` rows in runs of ``chunk_rows``, from pieces of them in order."""

    def __init__(self, rows: int, chunk_rows: int, *, grouped: bool) -> None:
        self.chunk_rows, self._grouped = chunk_rows, grouped
        self._rows, self._done = rows, 0
        parts = PARTS + GROUP_PARTS * grouped
        self._content: dict[str, Any] = {name: hashlib.sha256() for name in parts}  # of the hashes of all runs so far
        self._run: dict[str, Any] = {}  # of the run that has begun

    def run_left(self) -> int:
        """Rows until the next run begins."""
        return self.chunk_rows - self._done % self.chunk_rows

    def add_rows(self, parts: Mapping[str, np.ndarray], rows: int) -> None:
        """Add rows that reach at most to the end of a run."""
        for name, values in parts.items():
            self._run.setdefault(name, hashlib.sha256()).update(bytes_of(values))
        self._done += rows
        if self._done % self.chunk_rows == 0 or self._done == self._rows:
            self._add({name: found.digest() for name, found in self._run.items()})
            self._run = {}

    def add_run(self, hashes: Mapping[str, bytes], rows: int) -> None:
        """Add a whole run, by the hashes of its parts."""
        self._add(hashes)
        self._done += rows

    def _add(self, hashes: Mapping[str, bytes]) -> None:
        for name, content in self._content.items():
            content.update(hashes.get(name, bytes(32)))

    def beginning(self, rows: int) -> ContentHash:
        """A copy that goes on to so many rows only, of which the first have been added."""
        found = ContentHash(rows, self.chunk_rows, grouped=self._grouped)
        found._done = self._done
        found._content = {name: state.copy() for name, state in self._content.items()}
        found._run = {name: state.copy() for name, state in self._run.items()}
        return found

    def with_labels(self, other: ContentHash) -> ContentHash:
        """A copy with the labels and weights of another one."""
        found = self.beginning(self._rows)
        found._content |= {name: state.copy() for name, state in other._content.items() if name in LABELS}  # noqa: SLF001
        return found

    def digest(self, facts: Mapping[str, Any]) -> str:
        """That of all rows; facts: what else the content consists of."""
        parts = {name: found.hexdigest() for name, found in self._content.items()}
        return content_digest({**facts, "chunk_rows": self.chunk_rows}, parts)


def content_digest(facts: Mapping[str, Any], parts: Mapping[str, str]) -> str:
    """SHA-256 of a content, "sha256:...", from that of the hashes of each part's chunks, in hexadecimal digits."""
    return "sha256:" + hashlib.sha256(json.dumps({**facts, **parts}, sort_keys=True).encode()).hexdigest()
