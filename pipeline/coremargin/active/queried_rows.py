"""The rows that a campaign has queried (``asked.json``): written before a question is shown."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, json

from coremargin.data.files import sync_folder, write_whole
from coremargin.errors import DataError, UsageError
from coremargin.formats.choices import Why
from coremargin.formats.model_record import Count, Strict, Word
from coremargin.formats.plain_file import read_plain
from coremargin.formats.strict_json import LARGEST, read_object, typed

if TYPE_CHECKING:
    from coremargin.active.log import Log


FILE = "asked.json"


@dataclass(frozen=True)
class Question:
    """A row whose label is queried.

    Parameters
    ----------
    row : int
        Its number in the store.
    why : {"start", "query", "draw", "example"}
        Before two classes have answers, near a hyperplane, drawn to test it, or given as an example.
    attempt : int or None
        The attempt of a draw.
    fetch : callable
        Reads the row.
    """

    row: int
    why: Why
    attempt: int | None
    fetch: Callable[[int], Any] = field(repr=False, compare=False)

    @property
    def features(self) -> Any:
        """The row's features as stored, read now: (d,), or (1, d) if rows are sparse."""
        return self.fetch(self.row)


class AskedRow(Strict, frozen=True, kw_only=True):
    """A queried row. at: in seconds since 1970; lines: number of lines of the log at that time."""

    row: Count
    why: Why
    attempt: Annotated[int, Meta(ge=1)] | None
    who: Word
    at: float
    lines: Count


class _File(Strict, frozen=True, kw_only=True):
    format: Literal["coremargin-asked"]
    version: Literal[1]
    asked: list[AskedRow]


def read_asked(path: Path) -> dict[int, AskedRow]:
    """Queried rows, in order; none if there is no file. Raises DataError."""
    try:
        content = read_object(read_plain(path, LARGEST), str(path))
    except FileNotFoundError:
        return {}
    except NotADirectoryError:
        raise DataError(f"{path}: expected a campaign's folder, found a file; give the folder") from None
    found: _File = typed(_File, content, str(path))
    return {one.row: one for one in found.asked}


def write_asked(path: Path, asked: Iterable[AskedRow]) -> None:
    """Replace the file, durably. Raises OutputError, and UsageError for more than ``read_asked`` reads."""
    data = json.encode(_File(format="coremargin-asked", version=1, asked=list(asked)))
    if len(data) > LARGEST:
        raise UsageError(f"{path}: expected questions of at most {LARGEST:,} bytes, found {len(data):,}; ask fewer")
    write_whole(path, [data])
    sync_folder(path.parent)  # people may have seen these questions before a power cut


def still_open(
    asked: Mapping[int, AskedRow], log: Log, drawn: Container[int], expires: float | None, now: float
) -> list[AskedRow]:
    """Open questions: not answered, not skipped since they were asked, not expired.

    drawn: rows of the current attempt; draws of earlier attempts are no longer open.
    """
    skipped, undone = log.current.skipped, log.current.undone
    done = log.current.labels.keys() | (log.current.unsure - set(undone))
    return [
        one
        for one in asked.values()
        if one.row not in done
        and skipped.get(one.row, 0) <= one.lines
        and (expires is None or now - one.at < expires)
        and (one.why != "draw" or one.row in drawn)
    ]
