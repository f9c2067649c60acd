"""Specs: strict, immutable objects that are read from TOML files.

A spec is a subclass of :class:`Spec`. Unknown keys, wrong types and values out of range raise errors with the file, the
table, the key, what was expected and what was found. Sizes and durations have units (:class:`Size`, :class:`Seconds`);
relative paths (``pathlib.Path``) are relative to the folder of the file. ``load(path, T)`` reads a spec, ``dump(spec)``
writes TOML that gives the same spec again.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import tomli_w
from msgspec import inspect

from coremargin.errors import SpecError, UsageError, raise_if_limit
from coremargin.formats.local_path import local_path
from coremargin.formats.location import Location, is_remote, location
from coremargin.formats.strict_json import LARGEST, cut, deeper
from coremargin.units import exact_size, parse_seconds, parse_size, parse_size_with_unit

T = TypeVar("T")

_DEEPEST = 100  # levels of tables and lists
_MOST_PARTS = 32  # of a key with dots
_MOST_DIGITS = 300  # of a number
#: Strings and comments of TOML, up to the end of the line or the file if they are not terminated.
_TEXT = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]++|\\[^\n])*+"?+'
    r"|'[^'\n]*+'?+"
    r"|#[^\n]*+",
    re.DOTALL,
)
#: A key with too many parts, after strings were removed.
_DEEP_KEY = re.compile(rf'(?<![\w-])(?:(?:[\w-]++|"")[ \t]*+\.[ \t]*+){{{_MOST_PARTS}}}')
_LONG_NUMBER = re.compile(rf"(?<![\w-])[+-]?[0-9][\w]{{{_MOST_DIGITS},}}")


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all specs. Subclass it as ``class Job(Spec, frozen=True, kw_only=True)``."""

    @property
    def meaningless(self) -> frozenset[str]:
        """Fields without meaning for the values of the others; they have their defaults, and ``dump`` omits them."""
        return frozenset()


class Size(int):
    """Bytes; in files an integer or text with a unit: ``"2 GiB"``, ``"500 MB"``."""


class SizeWithUnit(Size):
    """Bytes for which text with a unit is required in files: a bare 4 is more likely 4 GiB than 4 bytes."""


class Seconds(float):
    """A duration; in files a number of seconds, as such or as text, or text with units: ``"90s"``, ``"1 h 30 min"``."""


def format_size(size: float) -> str:
    """Bytes for people, in binary units: ``"1.5 GiB"``."""
    value, unit = float(size), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(value) < 1023.95:
            break
        value, unit = value / 1024, bigger
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"


def format_seconds(seconds: float) -> str:
    """A duration for people: ``"0.42 s"``, ``"12 s"``, ``"3 min 05 s"``, ``"2 h 10 min"``, ``"3 d 4 h"``."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def load(path: str | os.PathLike[str], kind: type[T]) -> T:
    """The spec in the TOML file ``path``: an instance of ``kind``, a Spec class (or a tagged union of them).

    Raises SpecError for a missing file, text that is not UTF-8 or not TOML, and everything ``convert`` refuses.
    """
    return convert(read_toml(path), kind, where=str(path), base=Path(path).parent)


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A TOML file as plain values. Raises SpecError."""
    where = Path(path)
    try:
        with open(where, "rb") as file:  # works with pipes, too
            text = file.read(LARGEST + 1).decode("utf-8-sig")
    except OSError as error:
        raise_if_limit(error, where)
        raise SpecError(f"{where}: cannot be read: {error.strerror}; give the path of a TOML file") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{where}: not UTF-8 at byte {error.start}; a spec is a text file in UTF-8") from error
    return parse_toml(text, where=str(where))


def parse_toml(text: str, *, where: str = "spec") -> dict[str, Any]:
    """TOML text as plain values, in linear time. Raises SpecError."""
    if len(text) > LARGEST:
        raise SpecError(f"{where}: expected at most {LARGEST:,} characters of TOML, found {len(text):,}")
    bare = _TEXT.sub('""', text)
    if _DEEP_KEY.search(bare):  # tomllib takes quadratic time for them
        raise SpecError(f"{where}: not valid TOML: expected keys of at most {_MOST_PARTS} parts, found a longer one")
    if _LONG_NUMBER.search(bare):  # Python may refuse to print them
        raise SpecError(
            f"{where}: not valid TOML: expected numbers of at most {_MOST_DIGITS} digits, found a longer one"
        )
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: a number with thousands of digits
        raise SpecError(f"{where}: not valid TOML: {cut(str(error))}") from error
    if deeper(found, _DEEPEST):
        raise SpecError(f"{where}: expected at most {_DEEPEST} levels of tables and lists, found more")
    return found


def parse(text: str, kind: type[T], *, where: str = "spec", base: Path | None = None) -> T:
    """As ``load``, from TOML text; where: name for errors; base: of relative paths (default: the working directory)."""
    return convert(parse_toml(text, where=where), kind, where=where, base=base)


def convert(
    data: Mapping[str, Any],
    kind: type[T],
    *,
    where: str = "spec",
    base: Path | None = None,
    private: Collection[str] = (),
) -> T:
    """As ``load``, from plain dicts, lists and values; private: keys whose values do not appear in messages."""
    folder = Path.cwd() if base is None else base

    def decode(wanted: type[Any], value: Any) -> Any:
        if wanted is Size:
            return Size(parse_size(value))
        if wanted is SizeWithUnit:
            return SizeWithUnit(parse_size_with_unit(value))
        if wanted is Seconds:
            return Seconds(parse_seconds(value))
        if wanted is Path:
            return resolve_path(value, folder)
        if hasattr(wanted, "from_text"):
            if not isinstance(value, str):
                raise SpecError(f"expected text, found {value!r}")
            return wanted.from_text(value, folder)
        if wanted is Location:
            try:
                return _location(value, folder)
            except UsageError as error:
                raise _Refused(f"{_key_of(value, data)}: {error}") from None
        raise NotImplementedError(f"no reader for {wanted}")

    try:
        return msgspec.convert(data, kind, dec_hook=decode)
    except _Refused as error:  # without the value, which may be a secret that was taken for an option
        raise SpecError(f"{where}: {error}") from None
    except msgspec.ValidationError as error:
        info = inspect.type_info(kind)  # takes longer than the conversion
        _check_keys(data, info, where, ())
        raise SpecError(_explain(str(error), data, where, info, private)) from error


def dump(spec: Any) -> str:
    """TOML text from which ``load`` makes an equal spec; None is omitted, sizes have a unit if it is exact."""
    return tomli_w.dumps(_plain(spec))


def resolve_path(value: Any, folder: Path) -> Path:
    """The path that a spec means; folder: of relative ones. Raises UsageError."""
    if not isinstance(value, str):
        raise SpecError(f"not a path: {value!r}")
    path = local_path(value)
    if value.startswith("./") and path.is_absolute():  # without the ./ it would be absolute
        path = Path(os.path.abspath(folder / value))
    return Path(os.path.normpath(folder / path))


def _key_of(value: Any, data: Mapping[str, Any]) -> str | None:
    """The key of a value, with those of the tables that it is in."""
    for name, given in data.items():
        if given is value:
            return name
        tables = given if isinstance(given, list) else [given]
        found = next((key for one in tables if isinstance(one, Mapping) and (key := _key_of(value, one))), None)
        if found is not None:
            return f"{name}.{found}"
    return None


class _Refused(Exception):
    """A location that is refused; msgspec passes what is no ValueError."""


def _location(value: Any, folder: Path) -> Location:
    """A path, an address, or a table with ``address`` and options of it."""
    options = dict(value) if isinstance(value, Mapping) else {}
    given = options.pop("address", None) if isinstance(value, Mapping) else value
    if isinstance(given, str) and is_remote(given):
        return location(given, options)
    if isinstance(value, Mapping):
        raise SpecError(f'not an address: {given!r}; expected address = "s3://bucket/rows.zarr" and options of it')
    return Location(str(resolve_path(given, folder)))


def _place(where: str, path: Sequence[str]) -> str:
    return f"{where}, [{'.'.join(path).replace('.#', ' #')}]" if path else where


def _check_keys(data: Any, info: Any, where: str, path: tuple[str, ...]) -> None:
    """Raise SpecError for unknown keys, with the most similar known one."""
    if isinstance(info, inspect.UnionType):
        info = _member(data, info, where, path)
    if isinstance(info, inspect.StructType) and isinstance(data, Mapping):
        fields = {field.encode_name: field.type for field in info.fields}
        tag = {info.tag_field} if info.tag_field else set()
        for key, value in data.items():
            if key not in fields and key not in tag:
                raise unknown_key(_place(where, path), key, sorted({*fields, *tag}))
            if key in fields:
                _check_keys(value, fields[key], where, (*path, key))
    elif isinstance(info, inspect.DictType) and isinstance(data, Mapping):
        for key, value in data.items():
            _check_keys(value, info.value_type, where, (*path, key))
    elif isinstance(info, inspect.ListType | inspect.VarTupleType) and isinstance(data, list):
        for index, value in enumerate(data):
            _check_keys(value, info.item_type, where, (*path, f"#{index + 1}"))


def _member(data: Any, union: inspect.UnionType, where: str, path: tuple[str, ...]) -> Any:
    """The struct of a union that ``data`` is for, by its tag; the union itself if there is none."""
    structs = [member for member in union.types if isinstance(member, inspect.StructType)]
    if not structs or not isinstance(data, Mapping):
        containers = (inspect.DictType, inspect.ListType, inspect.VarTupleType)
        return next((member for member in union.types if isinstance(member, containers)), union)
    if len(structs) == 1 or structs[0].tag_field is None:
        return structs[0]
    field, tags = structs[0].tag_field, [str(struct.tag) for struct in structs]
    if field not in data:
        raise SpecError(f"{_place(where, path)}: key {field!r} is missing; expected one of {', '.join(tags)}")
    if data[field] not in tags:
        raise unknown_word(_place(where, path), field, data[field], tags)
    return structs[tags.index(data[field])]


def unknown_key(where: str, key: str, known: Sequence[str]) -> SpecError:
    """The error for an unknown key, with the most similar known one."""
    return SpecError(f"{where}: unknown key {cut(repr(key))}{nearest(key, known)}known: {', '.join(known)}")


def unknown_word(where: str, key: str, word: object, known: Sequence[str]) -> SpecError:
    """The error for an unknown value, with the most similar known one."""
    return SpecError(
        f"{where}: {key} = {cut(repr(word))} is not known{nearest(str(word), known)}known: {', '.join(known)}"
    )


def nearest(word: str, known: Iterable[Any]) -> str:
    """The most similar known word as a question, for the middle of a message: "; did you mean ...? " or "; "."""
    close = difflib.get_close_matches(word, [str(one) for one in known], n=1)
    return f"; did you mean {close[0]!r}? " if close else "; "


def _explain(message: str, data: Any, where: str, info: Any, private: Collection[str]) -> str:
    """msgspec's message with file, table, key, the value found and the allowed ones."""
    text, _, at = message.removesuffix("`").partition(" - at `")
    if text.startswith("Object missing required field"):
        table = at.removeprefix("$").removeprefix(".")
        return f"{_place(where, [table] if table else [])}: required key {text.split('`')[1]!r} is missing"
    if not at or at == "$":
        return f"{where}: {text}"
    keys = re.findall(r"\.([^.\[\]]+)|\[([0-9]+)\]", at)
    names = [name or f"#{int(index) + 1}" for name, index in keys]
    place = f"{_place(where, names[:-1])}: {names[-1]}"
    found, choices = _look_up(data, names), choices_of(info, names)
    if text.startswith("Invalid enum value") and choices:
        text += nearest(text.partition("'")[2].rstrip("'"), choices)
        text += f"expected {either(choices, number=takes_number(info, names))}"
    if " matching regex " in text:
        struct = _member(data, info, where, ()) if isinstance(info, inspect.UnionType) else info
        value = ["..."] * at.endswith("[...]")  # of a table, whose key msgspec does not name
        description = _description_at(struct, [*names, *value])
        text = text if description is None else f"expected {description}"
    text = text[0].lower() + text[1:]
    for word, replacement in (("`object`", "a table"), ("`array`", "a list"), ("`", ""), (" | null", "")):
        text = text.replace(word, replacement)
    if found is None or repr(found) in text:
        return f"{place}: {text}"
    shown = "a value that is not shown, as it may be a secret" if names[0] in private else cut(repr(found))
    return f"{place}: {text}; found {shown}"


def _description_at(info: Any, names: Sequence[str]) -> str | None:
    """The description of the text at the end of a path, or of the keys of the table there."""
    if isinstance(info, inspect.Metadata):
        found = None if names else (info.extra_json_schema or {}).get("description")
        return found or _description_at(info.type, names)
    if isinstance(info, inspect.UnionType):
        return next(filter(None, (_description_at(kind, names) for kind in info.types)), None)
    if isinstance(info, inspect.StructType) and names:
        fields = {field.encode_name: field.type for field in info.fields}
        return _description_at(fields[names[0]], names[1:]) if names[0] in fields else None
    if isinstance(info, inspect.ListType | inspect.VarTupleType) and names:
        return _description_at(info.item_type, names[1:])
    if isinstance(info, inspect.DictType):
        return _description_at(info.value_type, names[1:]) if names else _description_at(info.key_type, ())
    return None


def _look_up(data: Any, names: Sequence[str]) -> Any:
    for name in names:
        if isinstance(data, Mapping) and name in data:
            data = data[name]
        elif isinstance(data, list) and name.startswith("#"):
            data = data[int(name[1:]) - 1]
        else:
            return None
    return data


def choices_of(info: Any, names: Sequence[str]) -> list[Any]:
    """The words that the value at the end of a path may be; info: as ``msgspec.inspect`` gives it."""
    return next((list(kind.values) for kind in _kinds_at(info, names) if isinstance(kind, inspect.LiteralType)), [])


def takes_number(info: Any, names: Sequence[str]) -> bool:
    """Whether the value at the end of a path may be a number, too."""
    return any(isinstance(kind, inspect.FloatType | inspect.IntType) for kind in _kinds_at(info, names))


def either(choices: Iterable[Any], *, number: bool) -> str:
    """The choices for a message, and "a number" if numbers are allowed."""
    return " or ".join([*map(repr, choices), *["a number"] * number])


def _kinds_at(info: Any, names: Sequence[str]) -> list[Any]:
    """The kinds that the value at the end of a path may be of."""
    if not names:
        return _parts(info)
    for kind in _parts(info):
        if isinstance(kind, inspect.StructType):
            found = next((field.type for field in kind.fields if field.encode_name == names[0]), None)
            return [] if found is None else _kinds_at(found, names[1:])
    return []


def _parts(info: Any) -> list[Any]:
    """The kinds of a union, or the only one."""
    if isinstance(info, inspect.Metadata):
        return _parts(info.type)
    return [part for kind in info.types for part in _parts(kind)] if isinstance(info, inspect.UnionType) else [info]


def _plain(value: Any) -> Any:
    """Dicts, lists and TOML scalars for a spec; raises SpecError for what TOML cannot say."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field else {}
        items = {
            field.encode_name: SizeWithUnit(item) if field.type is SizeWithUnit else item  # also for a plain int
            for field in msgspec.structs.fields(value)
            for item in [getattr(value, field.name)]
        }
        silent = value.meaningless if isinstance(value, Spec) else frozenset()
        return tag | {key: _plain(item) for key, item in items.items() if item is not None and key not in silent}
    if isinstance(value, Size):
        size = exact_size(value)
        return f"{size} B" if isinstance(value, SizeWithUnit) and isinstance(size, int) else size
    if isinstance(value, Seconds):
        return f"{int(value)} s" if value.is_integer() else float(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, Location):
        return {"address": str(value), **value.options} if value.options else str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, str | bool | int | float):
        return value
    raise SpecError(f"a spec cannot hold {value!r}: expected text, a number, true or false, a list or a table of these")
