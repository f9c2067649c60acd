"""Texts as they were parsed when the columns were found out, kept on the disk until rows are written.

They are parsed once where the disk has room for them; else they are parsed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.data.tables.spill_file import SpilledTable, packed

if TYPE_CHECKING:
    from coremargin.data.tables.table import Table, TableBatch

_ROOM = 4  # times what is kept must stay free: the store itself is to find room, and others


class KeptBatches:
    """The batches of one table in the order of its rows, all of them or none; close it.

    folder: where they are kept; None: with temporary files.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._copy: SpilledTable | None = None

    def begin(self, table: Table, columns: Sequence[int]) -> None:
        """Keep these columns of the batches that are added from now on."""
        self.close()
        try:
            self._copy = SpilledTable(table, columns, self._folder)
        except OSError:  # no file can be made there
            self._copy = None

    def packed(self, batch: TableBatch) -> memoryview | None:
        """What ``add`` takes beside a batch; in any thread. None: it is not to be kept."""
        return packed(batch) if self._copy is not None and batch.counted else None

    def add(self, batch: TableBatch, data: memoryview | None) -> None:
        """Take the next batch; nothing is kept from the first one on that cannot be."""
        if self._copy is None:
            return
        try:
            if data is None or self._copy.room() < _ROOM * (self._copy.kept_bytes + len(data)):
                self.close()
            else:
                self._copy.add(batch, data, batch.done_bytes)
        except OSError:  # the disk is full, or the file may not become so large
            self.close()

    def table(self) -> Table | None:
        """All that was added since it began, as a table; None: not all could be kept."""
        return self._copy

    def close(self) -> None:
        """Throw away what was kept."""
        if self._copy is not None:
            self._copy.close()
            self._copy = None
