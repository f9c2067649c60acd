"""Mutations of stores: of metadata, of chunks and their checksums, of statistics; and rows that were ingested anew.

What a store says about itself is mutated file by file, and must be refused unless it says nothing about rows. Other
rows are written with all checksums right and the model made to name the new store: then the judge learns the new rows,
and what the model says about them is either true or refuted.
"""

from __future__ import annotations

import copy
import json
import math
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
from numcodecs import blosc

import forge_json
import forge_rules
from coremargin.data.check import check_store
from coremargin.data.store import Store
from coremargin.errors import CoremarginError, DataError
from forge_judges import Bench
from forge_run import SEED, Campaign, Guard, Hang, Outcome, Work, asked
from forge_specimens import STORES, Record, Rows, Specimen, Specimens, write_store

Files = dict[str, bytes | None]

_PROMISE = b"\x02\x01\x21\x01" + struct.pack("<III", 2**31 - 1, 2**18, 24)  # a blosc header
_INGESTED = 0.15  # share of the mutations that are other rows, written with every checksum right


def with_checksum(data: bytes) -> bytes:
    """A chunk's file: bytes, and their checksum."""
    return data + struct.pack("<I", crc32c.crc32c(data))


def _array(files: dict[str, bytes], name: str) -> Any:
    """What ``zarr.json`` says of the array that a chunk's file is of."""
    return json.loads(files[f"{name.rpartition('/')[0]}/zarr.json"])


def _entries(about: Any) -> tuple[int, int]:
    """Entries of a whole chunk of an array, and bytes of each."""
    step = about["chunk_grid"]["configuration"]["chunk_shape"]
    return step[0], int(np.dtype(about["data_type"]).itemsize * np.prod(step[1:], dtype=int))


def _packed(about: Any) -> bool:
    return any(codec["name"] == "blosc" for codec in about["codecs"])


@lru_cache(maxsize=64)
def _zeros(size: int) -> bytes:
    """A chunk's file that inflates to so many zeros."""
    return with_checksum(blosc.Blosc(cname="zstd", clevel=1).encode(np.zeros(size, np.uint8)))


def _chunk(rng: np.random.Generator, name: str, files: dict[str, bytes]) -> tuple[str, Files]:
    """Another content of one file of a chunk."""
    data = files[name]
    same = [
        other for other in files if other.rsplit("/", 1)[0] == name.rsplit("/", 1)[0] and not other.endswith(".json")
    ]
    other = files[same[rng.integers(len(same))]]
    place = int(rng.integers(max(1, len(data) - 4)))
    flipped = data[:place] + bytes([data[place] ^ 1 << int(rng.integers(8))]) + data[place + 1 :]
    in_array = name.rpartition("/")[2].startswith("c") and f"{name.rpartition('/')[0]}/zarr.json" in files
    whole = math.prod(_entries(_array(files, name))) if in_array else 8
    kinds: tuple[tuple[str, Callable[[], bytes | None]], ...] = (
        ("missing", lambda: None),
        ("empty", lambda: b""),
        ("cut", lambda: data[:place]),
        ("cut, checksum right", lambda: with_checksum(data[:place])),
        ("longer", lambda: data + b"\0" * 8),
        ("longer, checksum right", lambda: with_checksum(data[:-4] + b"\0" * 8)),
        ("a bit turned", lambda: flipped),
        ("a bit turned, checksum right", lambda: with_checksum(flipped[:-4])),
        ("zeros, checksum right", lambda: with_checksum(bytes(len(data) - 4))),
        ("ones, checksum right", lambda: with_checksum(b"\xff" * (len(data) - 4))),
        ("of another chunk", lambda: other),
        ("of a blosc header that promises 2 GiB", lambda: _PROMISE + data),
        ("of a blosc header that promises 2 GiB, checksum right", lambda: with_checksum(_PROMISE + data[:-4])),
        ("zeros, packed", lambda: _zeros(whole)),
        ("too many zeros, packed", lambda: _zeros((64 << 20) + whole)),
    )
    what, make = kinds[rng.integers(len(kinds))]
    return f"{name} {what} ({place})", {name: make()}


def _files_of(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}


def _elsewhere(rng: np.random.Generator, files: dict[str, bytes]) -> tuple[str, Files]:
    """Files more, folders missing, metadata of another array."""
    texts = [name for name in files if name.endswith("zarr.json")]
    one, two = texts[rng.integers(len(texts))], texts[rng.integers(len(texts))]
    kind = rng.integers(4)
    if kind == 0:
        root = json.loads(files["zarr.json"])
        inside = {name.removesuffix("/zarr.json"): json.loads(files[name]) for name in texts if name != "zarr.json"}
        changed = list(inside)[rng.integers(len(inside))]
        inside[changed] = [{}, None, inside["y"], inside[changed]][rng.integers(4)]
        root["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": inside}
        return f"consolidated metadata, another of {changed}", {"zarr.json": json.dumps(root).encode()}
    if kind == 1:
        return f"{one} is {two}", {one: files[two]}
    if kind == 2:
        return f"{one} missing", {one: None}
    folder = one.rsplit("/", 1)[0]
    return f"all files below {folder} missing", {name: None for name in files if name.startswith(f"{folder}/")}


def codecs(rng: np.random.Generator, files: dict[str, bytes]) -> tuple[str, Files]:
    """Other codecs for an array."""
    texts = [name for name in files if name.endswith("/zarr.json") and b"codecs" in files[name]]
    name = texts[rng.integers(len(texts))]
    record = json.loads(files[name])
    inner = copy.deepcopy(record["codecs"])
    more: Any = [
        {"name": "gzip", "configuration": {"level": 1}},
        {"name": "zstd", "configuration": {"level": 1, "checksum": False}},
        {"name": "transpose", "configuration": {"order": [1, 0]}},
        {"name": "numcodecs.pickle"},
        {"name": 5},
        {},
        7,
        None,
        "crc32c",
        {"name": "bytes", "configuration": {"endian": "big"}},
        {"name": "crc32c"},
        {"name": "blosc", "configuration": {}},
        {"name": "x" * 300},
        {"name": "\ud800"},
        {"name": ["bytes"]},
        {"name": "sharding_indexed", "configuration": {"chunk_shape": [1], "codecs": inner, "index_codecs": inner}},
    ][rng.integers(16)]
    place = int(rng.integers(len(record["codecs"]) + 1))
    if rng.integers(2):
        record["codecs"].insert(place, more)
    else:
        record["codecs"] = [more]
    return f"{name}: codec {ascii(more)[:60]} at {place}", {name: json.dumps(record).encode()}


#: Sizes that no honest store has: near the limits of what may be padding, of a chunk, and of numbers.
_SIZES = (
    0,
    -1,
    1,
    2,
    1 << 20,
    1 << 22,
    5_592_405,
    8 << 20,
    16 << 20,
    50_000_000,
    80_000_000,
    1 << 27,
    200_000_000,
    1 << 30,
    1 << 31,
    1 << 53,
)


def _resized(files: dict[str, bytes], key: str, names: list[str], size: int, *, zeros: bool) -> Files:
    """The root says another size of chunks or files, and these arrays say the same; zeros: and inflate to as much."""
    root = json.loads(files["zarr.json"])
    facts = root["attributes"]
    facts[key] = size
    if key == "chunk_rows" and size > 0:
        facts["commits"][-1]["last"] = -(-facts["rows"] // size)
    changed: Files = {"zarr.json": json.dumps(root).encode()}
    for name in names:
        about = json.loads(files[f"{name}/zarr.json"])
        about["chunk_grid"]["configuration"]["chunk_shape"][0] = size
        changed[f"{name}/zarr.json"] = json.dumps(about).encode()
        whole = math.prod(_entries(about))
        if zeros and _packed(about) and 0 < whole <= 1 << 30:
            changed |= {file: _zeros(whole) for file in files if file.startswith(f"{name}/c.")}
    return changed


def _stored(rng: np.random.Generator, files: dict[str, bytes]) -> tuple[str, Files]:
    """Other numbers of stored values, with the checksum of their file; the arrays are as long in half of the cases."""
    name = next(name for name in files if re.fullmatch(r"blocks/\d+/nonzeros/c\.0", name))
    counts = np.frombuffer(files[name][:-4], "<i8").copy()
    facts = json.loads(files["zarr.json"])["attributes"]
    chunk, most = int(rng.integers(len(counts))), facts["chunk_rows"] * facts["features"]
    sizes = (*_SIZES, int(counts[chunk]) - 1, int(counts[chunk]) + 1, most, most + 1, -(2**63), 2**62, 2**63 - 1)
    counts[chunk] = size = sizes[rng.integers(len(sizes))]
    if len(counts) > 1 and rng.integers(2):  # what one chunk gets another loses
        with np.errstate(over="ignore"):
            counts[chunk - 1] -= counts[chunk] - np.frombuffer(files[name][:-4], "<i8")[chunk]
    changed: Files = {name: with_checksum(counts.tobytes())}
    if rng.integers(2):
        for array in ("X/data", "X/indices"):
            about = json.loads(files[f"{array}/zarr.json"])
            about["shape"][0] = max(about["shape"][0], min(size, 1 << 53))
            changed[f"{array}/zarr.json"] = json.dumps(about).encode()
    return f"chunk {chunk} stores {size} values, {counts.tolist()[:8]} in all", changed


def sizes_of(rng: np.random.Generator, files: dict[str, bytes]) -> tuple[str, Files]:
    """Other sizes: of chunks, of files of values, of what a chunk stores."""
    sparse = "X/indptr/zarr.json" in files
    kind = int(rng.integers(3)) if sparse else 0
    if kind == 2:
        return _stored(rng, files)
    key = ("chunk_rows", "file_entries")[kind]
    old = json.loads(files["zarr.json"])["attributes"][key]
    sizes = (*_SIZES, old - 1, old + 1, 2 * old, old // 2)
    size = sizes[rng.integers(len(sizes))]
    by_rows = ["y", "X/indptr" if sparse else "X", *(["weights"] if "weights/zarr.json" in files else [])]
    names = ["X/data", "X/indices"] if kind else by_rows
    names = names[: int(rng.integers(len(names) + 1))] if rng.random() < 0.2 else names
    zeros = bool(rng.integers(2))
    told = f"{key} {size}, and of {names}{', zeros' * zeros}"
    return told, _resized(files, key, names, size, zeros=zeros)


def drawn(rng: np.random.Generator, files: dict[str, bytes]) -> tuple[str, Files]:
    """One mutation of what a store consists of."""
    kind = rng.random()
    texts = [name for name in files if name.endswith("zarr.json")]
    chunks = [name for name in files if not name.endswith(".json") and files[name]]
    if kind < 0.55:
        read = [
            name
            for name in texts
            if not name.startswith("blocks") or re.search(r"digest|sha256|marks|nonzeros|chunk|array|/y/", name)
        ]
        name = "zarr.json" if kind < 0.32 else read[rng.integers(len(read))]
        told, content = forge_json.mutated(rng, files[name])
        return f"{name}: {told}", {name: content}
    if kind < 0.78:
        return _chunk(rng, chunks[rng.integers(len(chunks))], files)
    if kind < 0.9:
        return codecs(rng, files) if kind < 0.84 else _elsewhere(rng, files)
    return sizes_of(rng, files)


def other_rows(rng: np.random.Generator, rows: Rows) -> tuple[str, Rows]:
    """Other rows, labels or weights, not yet written."""
    X, labels, weights = rows.X.copy(), list(rows.labels), None if rows.weights is None else rows.weights.copy()
    i, j = (int(k) for k in rng.integers(len(X), size=2))
    kind, told = int(rng.integers(9)), ""
    if kind == 0:
        labels[i] = rows.classes[int(rng.integers(len(rows.classes)))] if rng.random() < 0.8 else None
        told = f"row {i} is of class {labels[i]!r}"
    elif kind == 1:
        X[i] = X[i] + rng.standard_normal(X.shape[1]) * 10.0 ** rng.integers(-7, 1)
        told = f"row {i} moved"
    elif kind == 2:
        X = X * 2.0 ** int(rng.integers(-3, 3))
        told = "all rows scaled"
    elif kind == 3:
        order = rng.permutation(len(X)) if rng.integers(2) else np.r_[1 : len(X), 0]
        X, labels, weights = X[order], [labels[k] for k in order], None if weights is None else weights[order]
        told = "rows in another order"
    elif kind == 4:
        X[[i, j]], told = X[[j, i]], f"rows {i} and {j} swapped"
    elif kind == 5:
        X, labels, told = np.delete(X, i, axis=0), [*labels[:i], *labels[i + 1 :]], f"without row {i}"
        weights = None if weights is None else np.delete(weights, i)
    elif kind == 6:
        X, labels, told = np.vstack([X, X[i : i + 1]]), [*labels, labels[j]], f"row {i} again, of the class of {j}"
        weights = None if weights is None else np.append(weights, weights[i])
    elif kind == 7 and weights is not None:
        weights[i] = rng.choice([0.0, 1.0, 100.0])
        told = f"weight of row {i} is {weights[i]}"
    else:
        X[i, int(rng.integers(X.shape[1]))] = 0.0
        told = f"a 0 in row {i}"
    return told, Rows(rows.path, X, labels, weights, rows.dtype, rows.sparse, "")


@dataclass
class _Place:
    """A copy of a store that is mutated, and of a model that names it."""

    specimen: Specimen
    store: Path
    model: Work
    files: dict[str, bytes]

    def write(self, name: str, content: bytes | None) -> None:
        """Put a file there, or take it away."""
        if content is None:
            (self.store / name).unlink(missing_ok=True)
        else:
            (self.store / name).write_bytes(content)

    @contextmanager
    def changed(self, files: Files) -> Iterator[None]:
        """These files of the store are others."""
        for name, content in files.items():
            self.write(name, content)
        try:
            yield
        finally:
            for name in files:
                (self.store / name).write_bytes(self.files[name])

    def changes(self, files: Files) -> Iterator[forge_rules.Change]:
        """How it differs, but for what follows the last row in its chunk."""
        return forge_rules.changes(
            dict(self.files), {name: self._rows_of(name, content) for name, content in files.items()}
        )

    def _rows_of(self, name: str, content: bytes | None) -> bytes | None:
        """A chunk's file with the honest bytes behind its last entry, if its checksum is right."""
        file = name.rpartition("/")[2]
        if content is None or not file.startswith("c.") or content[-4:] != with_checksum(content[:-4])[-4:]:
            return content
        about, honest = _array(self.files, name), self.files[name]
        step, entry = _entries(about)
        known = max(0, min(step, about["shape"][0] - int(file.split(".")[1]) * step)) * entry
        if not _packed(about):
            return with_checksum(content[:known] + honest[known:-4]) if len(content) == len(honest) else content
        try:
            rows = [blosc.Blosc().decode(packed[:-4]) for packed in (content, honest)]
        except (RuntimeError, ValueError):
            return content
        same = len(rows[0]) == len(rows[1]) and rows[0][:known] == rows[1][:known]
        return honest if same else content  # packed in another way, or with other padding


def whole_of(guard: Guard, store: Path) -> tuple[bool, str]:
    """Whether `check` finds nothing wrong with a store, and what is wrong with that."""
    try:
        with guard.call():
            Store.open(store)
            return check_store(store, workers=1).whole, ""
    except CoremarginError:
        return False, ""
    except (Exception, Hang) as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return False, f"check raised {type(error).__name__}: {str(error)[:200]}"


class StoreAttack(Campaign):
    """Mutations of the stores of one kind."""

    def __init__(self, kind: str, specimens: Specimens, folder: Path) -> None:
        super().__init__(kind, specimens, folder)
        self.names = STORES[kind]
        self._places: dict[str, _Place] = {}

    def _place(self, name: str) -> _Place:
        if name not in self._places:
            specimen, store = self.specimens[name], self.folder / f"work-{name}.zarr"
            shutil.copytree(specimen.store, store)
            work = Work(specimen, self.folder / f"store-{name}")
            self._places[name] = _Place(specimen, store, work, _files_of(store))
        return self._places[name]

    def _rng(self, number: int) -> np.random.Generator:
        return np.random.default_rng([SEED, 100 + sorted(STORES).index(self.kind), number])

    def one(self, number: int, guard: Guard, *, thorough: bool = False) -> tuple[Outcome, str]:
        """Try a mutation."""
        rng, place = self._rng(number), self._place(self.names[number % len(self.names)])
        if rng.random() < _INGESTED:
            told, outcome = self._ingested(rng, place, guard)
        else:
            told, files = drawn(rng, place.files)
            with place.changed(files):
                outcome = self._altered(place, files, guard, check=thorough or number % 3 == 0)
        return outcome, f"{place.specimen.name}, {told}"

    def leave(self, number: int) -> str:
        """The store is left mutated, but for rows that were ingested anew: these are in another."""
        rng, place = self._rng(number), self._place(self.names[number % len(self.names)])
        if rng.random() < _INGESTED:
            return f"model {place.model.path}\nstore {self.folder / 'ingested.zarr'}"
        for name, content in drawn(rng, place.files)[1].items():
            place.write(name, content)
        return f"model {place.specimen.model}\nstore {place.store}"

    def _altered(self, place: _Place, files: Files, guard: Guard, *, check: bool) -> Outcome:
        """Of a store whose files are others."""
        outcome = asked(guard, place.specimen.model, place.store)
        if outcome.wrong:
            return outcome
        wrong = ""
        if outcome.answer == "accepted":
            try:
                rules = forge_rules.STORES
                if place.specimen.name == "changed":
                    rules = forge_rules.CHANGED
                    files = {name: text for name, text in files.items() if not re.fullmatch(forge_rules.UNREAD, name)}
                found = forge_rules.unallowed(place.changes(files), rules)
            except (ValueError, RecursionError) as error:
                found = [f"unreadable: {error}"]
            wrong = f"accepted, but {'; '.join(found)[:600]}" if found else ""
        elif check:
            whole, wrong = whole_of(guard, place.store)
            if whole and outcome.answer != "refuted":
                wrong = f"verify says {outcome.answer}, check calls the store whole"
        return Outcome(outcome.answer, wrong)

    def _ingested(self, rng: np.random.Generator, place: _Place, guard: Guard) -> tuple[str, Outcome]:
        """Of other rows, with every checksum right, and a model that says it is about these."""
        told, drawn_rows = other_rows(rng, place.specimen.rows)
        path = self.folder / "ingested.zarr"
        try:
            options = {"weights": drawn_rows.weights, "dtype": drawn_rows.dtype, "sparse": drawn_rows.sparse}
            rows = write_store(path, drawn_rows.X, drawn_rows.labels, **options)
        except DataError:
            return f"{told}: not ingested", Outcome("not ingested")
        record: Record = copy.deepcopy(place.specimen.record)
        record["certificate"]["store_digest"] = rows.digest
        ingested = Store.open(path)
        record["certificate"]["store_sha256"] = {"chunk_rows": ingested.chunk_rows, "digest": ingested.sha256}
        record["rows"] = len(rows.X)
        work = place.model
        with work.changed({"model.json": json.dumps(record).encode()}):
            outcome = asked(guard, work.path, path)
            wrong = outcome.wrong
            if outcome.answer == "accepted" and not wrong:
                specimen = Specimen(place.specimen.name, work.path, rows, place.specimen.files)
                lies = Bench(specimen).lies(work)
                wrong = f"accepted, but {'; '.join(lies)[:600]}" if lies else ""
        return f"{told}, ingested anew", Outcome(outcome.answer, wrong)
