"""What all pages share: reading a folder, the template's words, and a page that appears whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from coremargin.data.files import sync_folder, write_whole
from coremargin.errors import DataError
from coremargin.formats.plain_file import read_plain
from coremargin.formats.strict_json import LARGEST, read_object
from coremargin.report import numbers
from coremargin.spec import format_seconds, format_size

ROUNDS_SHOWN = 120  #: rows of the table of rounds; beyond it the middle is left out

Json = Mapping[str, Any]


def written(folder: Path, text: str) -> Path:
    """Write ``report.html`` into a folder, whole or not at all; its path. Raises OutputError."""
    target = folder / "report.html"
    write_whole(target, [text.encode("utf-8", "backslashreplace")])  # half a character, as names of files may have
    sync_folder(folder)
    return target


def _read(path: Path) -> bytes:
    try:
        return read_plain(path, LARGEST)
    except (FileNotFoundError, NotADirectoryError) as error:
        text = f"expected a file of a model folder, got: {error.strerror}; is this a model's folder?"
        raise DataError(f"{path}: {text}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of a model's folder. Raises DataError."""
    return read_object(_read(path), str(path), names=True)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a file, one a line. Raises DataError."""
    lines = _read(path).splitlines()
    return [read_object(line, f"{path}, line {i}", names=True) for i, line in enumerate(lines, start=1) if line.strip()]


def moment(value: Any) -> str:
    """A time stamp for people; a dash for what is none."""
    try:
        then = datetime.fromisoformat(str(value))
        here = then if then.tzinfo is None else then.astimezone(UTC)
    except (ValueError, OverflowError):  # beyond the first or the last year in UTC
        return numbers.DASH
    return here.strftime("%Y-%m-%d %H:%M" if then.tzinfo is None else "%Y-%m-%d %H:%M UTC")


def round_rows(rounds: Sequence[Json]) -> list[Json | int]:
    """The rounds to show; a whole number stands for so many rounds left out."""
    if len(rounds) <= ROUNDS_SHOWN:
        return list(rounds)
    tail = ROUNDS_SHOWN * 2 // 3
    head = ROUNDS_SHOWN - tail
    return [*rounds[:head], len(rounds) - ROUNDS_SHOWN, *rounds[-tail:]]


def reading(run: Json, rounds: Sequence[Json]) -> dict[str, Any]:
    """Totals over all rounds: bytes against the store, chunks skipped in scans."""
    store, total = numbers.finite(run.get("store_bytes")), numbers.finite(run.get("bytes_read"))
    scans = [r for r in rounds if r.get("kind") != "sample"]
    return {
        "times": total / store if store and total is not None else None,
        "skipped": sum(int(numbers.finite(r.get("chunks_skipped")) or 0) for r in scans),
        "chunks": sum(int(numbers.finite(r.get("chunks")) or 0) for r in scans),
    }


def _size(value: Any) -> str:
    number = numbers.finite(value)
    return numbers.DASH if number is None else format_size(number).replace(" ", numbers.NO_BREAK)


def _seconds(value: Any) -> str:
    number = numbers.finite(value)
    return numbers.DASH if number is None else format_seconds(number).replace(" ", numbers.NO_BREAK)


@cache
def template(name: str) -> jinja2.Template:
    """A template, found beside this module also inside a zip or wheel."""
    folder = resources.files("coremargin.report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=jinja2.FunctionLoader(lambda part: folder.joinpath(part).read_text(encoding="utf-8")),
    )  # fmt: skip
    environment.filters.update(
        count=numbers.count,
        significant=numbers.significant,
        percent=numbers.percent_down,
        percent_up=numbers.percent_up,
        label=numbers.label_text,
        size=_size,
        seconds=_seconds,
        gap=numbers.relative_gap,
        bare=numbers.without_unit,
    )
    environment.globals.update(dash=numbers.DASH, nbsp=numbers.NO_BREAK)
    return environment.get_template(name)
