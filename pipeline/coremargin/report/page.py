"""Shared parts of all pages: reading a model folder, templates, and atomic writes."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import resources
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from coremargin.data.files import sync_folder, write_whole
from coremargin.errors import DataError
from coremargin.formats.plain_file import read_plain
from coremargin.formats.strict_json import LARGEST, read_object
from coremargin.report import numbers, text

if TYPE_CHECKING:
    from jinja2.bccache import Bucket

Json = Mapping[str, Any]


def write_report_page(folder: Path, text: str) -> Path:
    """Write ``report.html`` into a folder atomically; returns its path. Raises OutputError."""
    target = folder / "report.html"
    write_whole(target, [text.encode("utf-8", "backslashreplace")])  # file names may not be valid UTF-8
    sync_folder(folder)
    return target


def _read(path: Path) -> bytes:
    try:
        return read_plain(path, LARGEST)
    except (FileNotFoundError, NotADirectoryError) as error:
        text = f"expected a file of a model folder, got: {error.strerror}; is this a model's folder?"
        raise DataError(f"{path}: {text}") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of a model folder. Raises DataError."""
    return read_object(_read(path), str(path), names=True)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """A file with a JSON object per line. Raises DataError."""
    lines = _read(path).splitlines()
    return [read_object(line, f"{path}, line {i}", names=True) for i, line in enumerate(lines, start=1) if line.strip()]


def read_folder(folder: Path, file: str) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Record of the model, its run and its rounds. Raises DataError."""
    return read_json(folder / file), read_json(folder / "run.json"), read_lines(folder / "rounds.jsonl")


def template(name: str) -> jinja2.Template:
    """A template by its path in the package, or "package:path"."""
    return _environment().get_template(name)


def _text(name: str) -> str:
    package, _, place = name.rpartition(":")
    return resources.files(package or "coremargin").joinpath(*place.split("/")).read_text(encoding="utf-8")


class _TemplateCache(jinja2.BytecodeCache):
    """Compiled templates in ``__pycache__``, next to compiled modules: compiling takes a fifth of a small job.

    Jinja checks the hash of the source and the versions of Python and Jinja. Without write access nothing is cached.
    """

    def __init__(self) -> None:
        self._folder = Path(cache_from_source(__file__)).parent

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError), open(self._folder / f"{bucket.key}.jinja", "rb") as file:
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        temporary = self._folder / f"{bucket.key}.{secrets.token_hex(8)}"
        with suppress(OSError):
            try:
                temporary.write_bytes(bucket.bytecode_to_string())
                os.replace(temporary, self._folder / f"{bucket.key}.jinja")
            finally:
                temporary.unlink(missing_ok=True)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        autoescape=True,
        bytecode_cache=_TemplateCache(),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_text),
    )
    environment.filters.update(
        count=numbers.count,
        significant=numbers.significant,
        percent=numbers.percent_down,
        percent_up=numbers.percent_up,
        label=numbers.label_text,
        size=numbers.size,
        seconds=numbers.seconds,
        gap=numbers.relative_gap,
    )
    environment.globals.update(dash=numbers.DASH, nbsp=numbers.NO_BREAK, glossary=text.GLOSSARY)
    return environment
