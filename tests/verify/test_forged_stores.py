"""Forgeries of stores: metadata, checksums that were computed anew, statistics, and what the commands make of them."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import shutil
import struct
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crc32c
import numpy as np
import pytest
import zarr
from numcodecs import blosc

import coremargin
from coremargin.data.check import check_store
from coremargin.errors import CoremarginError, StoreError
from coremargin.verify import verify
from coremargin.verify.examine import examine
from forge_assert import answer, called, calm, forged, refused
from forge_judges import Bench
from forge_run import BYTES, Guard, Peak, Work
from forge_specimens import Specimen, files_of, write_store
from forge_stores import whole_of, with_checksum

if TYPE_CHECKING:
    from forge_plans import Draft
    from forge_specimens import Specimens


def copied(specimen: Specimen, place: Path) -> Path:
    """A copy of a specimen's store, to be changed."""
    shutil.copytree(specimen.store, place)
    return place


def edit(store: Path, file: str, change: Callable[[Any], Any]) -> None:
    """Change a JSON file of a store in place."""
    record = json.loads((store / file).read_text())
    change(record)
    (store / file).write_text(json.dumps(record))


def put(record: Any, place: tuple[str | int, ...], value: Any) -> None:
    """A value in a place."""
    for key in place[:-1]:
        record = record[key]
    record[place[-1]] = value


HUGE = 10**400
ROOT: dict[tuple[str | int, ...], list[Any]] = {
    ("zarr_format",): [2, None, "3", True, 3.5, []],
    ("node_type",): ["array", None, 5, []],
    ("consolidated_metadata",): [{"kind": "inline", "must_understand": False, "metadata": {}}, 5],
    ("attributes",): [None, [], 5, "x", {}],
    ("attributes", "format"): ["x", None, 5],
    ("attributes", "version"): [3, True, 1.0, "1", None, HUGE],
    ("attributes", "features"): [0, -1, 4, 3.5, "3", None, HUGE, 2**63, float("inf"), True],
    ("attributes", "dtype"): ["float64", "int32", "object", "complex128", "V4", 5, None, [], "x" * 300],
    ("attributes", "classes"): [
        "ny", [], [["no"], ["yes"]], [{}, {}], ["no", "no"], ["no", "yes", "yes"], [None, "yes"], None, 5,
        {"no": 1, "yes": 2},
    ],
    ("attributes", "rows"): [0, -5, 41, 39, 40.7, "40", None, HUGE, 2**63, 2**70, float("inf"), float("nan"), True],
    ("attributes", "chunk_rows"): [0, -5, 1, 63, 64.5, "64", None, HUGE, 2**63, False, float("inf")],
    ("attributes", "commits"): [[], None, {}, 5, "x", [None], [[]], [{}]],
    ("attributes", "commits", 0, "rows"): [0, 41, 40.7, "40", None, HUGE, True, []],
    ("attributes", "commits", 0, "classes"): [0, 3, 1, 2.5, "2", None, HUGE, [], True],
    ("attributes", "commits", 0, "first"): [1, -5, "0", None, HUGE, 0.5, []],
    ("attributes", "commits", 0, "last"): [0, 2, -1, 1.5, "1", None, HUGE, 2**70, []],
    ("attributes", "commits", 0, "group"): ["000001", "..", "../..", "", "/", "\0", "\ud800", "x" * 300, None, 5, []],
    ("attributes", "commits", 0, "digest"): ["sha256:12", "", None, 5, []],
    ("attributes", "commits", 0, "more"): [1],
    ("attributes", "file_entries"): [1, "x", 2**70, 0, []],
    ("attributes", "weighted"): [True, "x", 5],
}  # fmt: skip


@pytest.mark.specimens(10)
@pytest.mark.parametrize("place", list(ROOT), ids=lambda place: ".".join(map(str, place)))
def test_nonsense_in_a_stores_root(specimens: Specimens, tmp_path: Path, place: tuple[str | int, ...]) -> None:
    """Numbers, names and lists that no store has are refused by verify; info and check end in a message as well."""
    specimen, answers = specimens["hard"], {}
    for k, value in enumerate(ROOT[place]):
        store = copied(specimen, tmp_path / f"{k}.zarr")
        edit(store, "zarr.json", lambda record, value=value: put(record, place, value))
        answers[ascii(value)[:40]] = answer(specimen.model, store)
        assert opens(store), ascii(value)[:40]
    assert answers == dict.fromkeys(answers, "refused")


def opens(store: Path) -> bool:
    """Whether a store is opened and read by everybody else without anything but our own errors."""
    return examined(store) in ("refused", "whole")


def examined(store: Path) -> str:
    """As ``calm``, of `info` and `check`."""
    guard = Guard()
    with guard.watching(), Peak() as peak:
        whole, wrong = whole_of(guard, store)
        if not wrong:
            called("info", store)
    return wrong or ("whole" if whole else f"took {peak.grown:,} bytes" if peak.grown > BYTES else "refused")


ARRAY: dict[tuple[str | int, ...], list[Any]] = {
    ("zarr_format",): [2, None, True, HUGE],
    ("node_type",): ["group", None, 5, [], {}],
    ("shape",): [
        [], [0, 3], [39, 3], [40], [40, 3, 1], [40.5, 3], ["40", 3], [-40, 3], None, 5, HUGE, [HUGE, 3],
    ],
    ("data_type",): ["float64", "int32", "x", None, 5, [], {}, "complex64"],
    ("chunk_grid",): [None, 5, {}, {"name": "x"}, "regular"],
    ("chunk_grid", "configuration", "chunk_shape"): [
        [1, 3], [0, 3], [-1, 3], [64], [64.5, 3], None, "x", [HUGE, 3], [2**62, 3],
    ],
    ("chunk_key_encoding",): [None, {}, {"name": "x"}, {"name": "v2"}, 5],
    ("chunk_key_encoding", "configuration", "separator"): ["/", "", None, 5, "/../"],
    ("codecs",): [
        [], None, 5, {}, [5], [None], [[]], ["bytes"], [{}], [{"name": 5}], [{"name": ["bytes"]}], [{"name": "\ud800"}],
    ],
    ("codecs", 0): [
        {"name": "gzip", "configuration": {"level": 1}}, {"name": "bytes", "configuration": {"endian": "big"}}, "bytes",
        {"name": "zstd", "configuration": {"level": 1, "checksum": False}}, {"name": "bytes", "configuration": 5},
        {"name": "numcodecs.pickle"}, {"name": "x" * 300},
    ],
    ("codecs", 1): [
        {"name": "gzip", "configuration": {"level": 1}}, {"name": "crc32"}, "crc32c",
        {"name": "blosc", "configuration": {}},
    ],
    ("storage_transformers",): [[{"name": "x"}], 5],
    ("more",): [{"must_understand": True}],
}  # fmt: skip


@pytest.mark.specimens(9)
@pytest.mark.parametrize("place", list(ARRAY), ids=lambda place: ".".join(map(str, place)))
@pytest.mark.parametrize("array", ["X", "blocks/000000/digest"])
def test_nonsense_in_an_arrays_metadata(
    specimens: Specimens, tmp_path: Path, array: str, place: tuple[str | int, ...]
) -> None:
    """What an array of a store may not say of itself is refused, and `check` calls no such store whole."""
    specimen, wrong = specimens["hard"], {}
    for k, value in enumerate(ARRAY[place]):
        if array != "X" and isinstance(value, list) and place[-1] in ("shape", "chunk_shape"):
            if place[-1] == "shape" and value and isinstance(value[0], int) and value[0] > 0:
                continue  # there may be more than the last commit names
            value = value[:1] if value[:1] != [1] else [2]  # it has one axis, and one entry
        store = copied(specimen, tmp_path / f"{k}.zarr")
        edit(store, f"{array}/zarr.json", lambda record, value=value: put(record, place, value))
        told = answer(specimen.model, store), examined(store)
        if told != ("refused", "refused"):
            wrong[ascii(value)[:40]] = told
    assert wrong == {}


@pytest.mark.parametrize("text", ["", "null", "5", '"x"', "[]", "{}", "[", "\0", "[" * 100_000, '{"a":' * 100_000])
@pytest.mark.parametrize("file", ["zarr.json", "X/zarr.json", "y/zarr.json", "blocks/000000/digest/zarr.json"])
def test_metadata_that_is_no_metadata(specimens: Specimens, tmp_path: Path, file: str, text: str) -> None:
    """Texts that are no JSON, or no object, or nested without end, are a message for all who read them."""
    specimen = specimens["hard"]
    store = copied(specimen, tmp_path / "s.zarr")
    (store / file).write_text(text)
    refused(specimen.model, store)
    assert opens(store)


def relabelled(specimen: Specimen, place: Path, codes: np.ndarray) -> tuple[Path, str]:
    """A copy of a dense store of one chunk with other label codes, every checksum and digest computed anew."""
    store = copied(specimen, place)
    grid = json.loads((store / "y" / "zarr.json").read_text())["chunk_grid"]["configuration"]["chunk_shape"]
    padded = np.full(grid[0], -1, "<i4")
    padded[: len(codes)] = codes
    (store / "y" / "c.0").write_bytes(with_checksum(padded.tobytes()))
    x = crc32c.crc32c(np.ascontiguousarray(specimen.rows.X, specimen.rows.dtype).tobytes())
    y = crc32c.crc32c(codes.astype("<i4").tobytes())
    (store / "blocks/000000/digest/c.0").write_bytes(with_checksum(np.array([(x << 32) | y], "<u8").tobytes()))
    record = json.loads((store / "zarr.json").read_text())
    about = record["attributes"]
    facts = {"format": "coremargin-store", "rows": len(codes), "x": x, "y": y}
    facts |= {key: about[key] for key in ("features", "dtype", "classes")}
    digest = "sha256:" + hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    about["commits"][0]["digest"] = digest
    (store / "zarr.json").write_text(json.dumps(record))
    return store, digest


def codes_of(specimen: Specimen) -> np.ndarray:
    """The label codes as they are."""
    return np.array([specimen.rows.classes.index(label) for label in specimen.rows.labels], "<i4")


def test_checksums_computed_anew_are_those_of_the_store(specimens: Specimens, tmp_path: Path) -> None:
    """The forger of these tests makes a store that nobody can tell from the real one if nothing is changed."""
    specimen = specimens["hard"]
    store, digest = relabelled(specimen, tmp_path / "s.zarr", codes_of(specimen))
    assert digest == specimen.rows.digest
    assert check_store(store).whole
    assert verify(specimen.model, store).ok


@pytest.mark.parametrize("code", [-2, -3, -4, -100, -(2**31), 2, 3, 2**31 - 1])
@pytest.mark.parametrize("everyone", [False, True])
def test_codes_that_are_no_labels(specimens: Specimens, tmp_path: Path, code: int, *, everyone: bool) -> None:
    """A code beyond the classes, on either side, is damage: not the last class, not an unlabelled row, no traceback."""
    specimen = specimens["hard"]
    codes = codes_of(specimen)
    last = int(np.flatnonzero(codes == len(specimen.rows.classes) - 1)[0])
    codes[slice(None) if everyone else last] = code
    store, digest = relabelled(specimen, tmp_path / "s.zarr", codes)
    model = forged(specimen, tmp_path / "m", lambda draft: draft.claims.update(store_digest=digest))
    refused(model, store)
    assert opens(store)
    with suppress(CoremarginError):
        coremargin.train(store, out=tmp_path / "trained", cluster="threads")
        refused(tmp_path / "trained", store)


def test_a_code_of_a_class_that_no_digest_names(specimens: Specimens, tmp_path: Path) -> None:
    """A class more than the last commit has is none: rows of it are in no digest that names its label."""
    specimen = specimens["hard"]
    codes = codes_of(specimen)
    codes[5] = 2
    store, digest = relabelled(specimen, tmp_path / "s.zarr", codes)
    edit(store, "zarr.json", lambda record: record["attributes"]["classes"].append("more"))
    model = forged(specimen, tmp_path / "m", lambda draft: draft.claims.update(store_digest=digest))
    assert "classes of the last commit" in refused(model, store)
    assert opens(store)


def test_a_support_row_whose_label_nobody_else_sees(tmp_path: Path, specimens: Specimens) -> None:
    """A row of code -2 carries no proof: without it a wider margin is possible."""
    specimen = specimens["hard"]
    codes = codes_of(specimen)
    core = next(int(row) for row in specimen.arrays()["coreset_ids"] if codes[row] == 1)
    codes[core] = -2
    store, digest = relabelled(specimen, tmp_path / "s.zarr", codes)
    refused(forged(specimen, tmp_path / "m", lambda draft: draft.claims.update(store_digest=digest)), store)


@pytest.mark.parametrize("flip", ["one", "all"])
def test_labels_swapped_with_every_checksum_right(specimens: Specimens, tmp_path: Path, flip: str) -> None:
    """The store is whole and the digest the model's: what is false of the labels is refused all the same."""
    specimen = specimens["hard"]
    codes = codes_of(specimen)
    rows = slice(None) if flip == "all" else slice(5, 6)
    codes[rows] = 1 - codes[rows]
    store, digest = relabelled(specimen, tmp_path / "s.zarr", codes)
    words = refused(forged(specimen, tmp_path / "m", lambda draft: draft.claims.update(store_digest=digest)), store)
    assert "lower bound" in words


@pytest.mark.parametrize("file", ["X/c.1.0", "y/c.1"])
@pytest.mark.parametrize(
    "way", ["missing", "empty", "cut", "flipped", "flipped, checksum right", "of another chunk", "longer"]
)
def test_chunks_are_those_that_were_ingested(specimens: Specimens, tmp_path: Path, file: str, way: str) -> None:
    """A chunk that is gone, cut, changed, or swapped with another whose checksum is right is damage."""
    specimen = specimens["hard-origin"]
    store = copied(specimen, tmp_path / "s.zarr")
    data = (store / file).read_bytes()
    flipped = bytes([data[0] ^ 1]) + data[1:]
    other = {
        "empty": b"", "cut": data[:-9], "flipped": flipped, "flipped, checksum right": with_checksum(flipped[:-4]),
        "of another chunk": (store / file.replace(".1", ".0", 1)).read_bytes(), "longer": data + b"\0" * 8,
    }.get(way)  # fmt: skip
    (store / file).unlink()
    if other is not None:
        (store / file).write_bytes(other)
    refused(specimen.model, store)
    assert opens(store)


@pytest.mark.parametrize("file", ["X/c.0.0", "y/c.0", "blocks/000000/digest/c.0", "X/zarr.json", "zarr.json"])
def test_files_that_are_too_long(specimens: Specimens, tmp_path: Path, file: str) -> None:
    """A file with a gigabyte of nothing behind it is not read to its end: how long it may be is known."""
    specimen = specimens["hard"]
    store = copied(specimen, tmp_path / "s.zarr")
    os.truncate(store / file, 1 << 30)
    assert (calm(specimen.model, store), examined(store)) == ("refused", "refused")


def test_chunks_that_inflate(specimens: Specimens, tmp_path: Path) -> None:
    """A chunk of some kilobytes that promises a gigabyte is refused without the memory for it."""
    specimen = specimens["hard"]
    store = copied(specimen, tmp_path / "s.zarr")
    configuration = {"cname": "zstd", "clevel": 3, "shuffle": "noshuffle", "typesize": 4, "blocksize": 0}
    edit(store, "X/zarr.json", lambda r: put(r, ("codecs", 1), {"name": "blosc", "configuration": configuration}))
    packed = blosc.Blosc(cname="zstd", clevel=3, shuffle=blosc.NOSHUFFLE).encode(np.zeros(1 << 27))
    assert len(packed) < 1 << 20
    (store / "X" / "c.0.0").write_bytes(packed)
    assert (calm(specimen.model, store), examined(store)) == ("refused", "refused")


def test_padding_that_inflates(specimens: Specimens, tmp_path: Path) -> None:
    """Forty rows in a chunk that says it holds 50 million: nobody makes room for the others."""
    specimen, rows = specimens["hard"], 50_000_000
    store = copied(specimen, tmp_path / "s.zarr")
    edit(store, "zarr.json", lambda record: put(record, ("attributes", "chunk_rows"), rows))
    configuration = {"cname": "zstd", "clevel": 3, "shuffle": "noshuffle", "typesize": 4, "blocksize": 0}
    packing = {"name": "blosc", "configuration": configuration}
    for name, file, kind, width in (("X", "c.0.0", "<f4", 3), ("y", "c.0", "<i4", 1)):
        whole = np.zeros(rows * width, kind)
        honest = np.frombuffer((store / name / file).read_bytes()[:-4], kind)[: 40 * width]
        whole[: len(honest)] = honest
        packed = blosc.Blosc(cname="zstd", clevel=3, shuffle=blosc.NOSHUFFLE).encode(whole)
        (store / name / file).write_bytes(with_checksum(packed))
        edit(store, f"{name}/zarr.json", lambda record: put(record, CHUNK, rows))
        edit(store, f"{name}/zarr.json", lambda record: record["codecs"].insert(1, packing))
    del whole
    assert (calm(specimen.model, store), examined(store)) == ("refused", "refused")
    with pytest.raises(StoreError, match="expected chunks of at most"):
        coremargin.train(store, out=tmp_path / "m", cluster="threads")


@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("length", [0, 8, 16, 24])
def test_compressed_bytes_that_are_not_there(
    specimens: Specimens, tmp_path: Path, length: int, *, summed: bool
) -> None:
    """A header that speaks of bytes behind the end of its file is refused before c-blosc reads them."""
    specimen = specimens["hard"]
    store = copied(specimen, tmp_path / "s.zarr")
    configuration = {"cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "typesize": 4, "blocksize": 0}
    chain = [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "blosc", "configuration": configuration},
    ]
    edit(store, "X/zarr.json", lambda r: r.update(codecs=[*chain, {"name": "crc32c"}] if summed else chain))
    whole = math.prod(json.loads((store / "X/zarr.json").read_text())["chunk_grid"]["configuration"]["chunk_shape"]) * 4
    copied_as_it_is = struct.pack("<BBBBIII", 2, 1, 2, 4, whole, whole, whole + 16) + bytes(8)
    file = copied_as_it_is[:length]
    (store / "X" / "c.0.0").write_bytes(with_checksum(file) if summed else file)
    assert ("the header promises" if length >= 16 else "bytes") in refused(specimen.model, store)
    assert examined(store) == "refused"


def test_shards_are_refused(specimens: Specimens, tmp_path: Path) -> None:
    """Shards are refused: neither what they are made of nor how far they inflate is looked at."""
    specimen = specimens["hard"]
    store = copied(specimen, tmp_path / "s.zarr")
    old = zarr.open_group(store, mode="r")["X"]
    assert isinstance(old, zarr.Array)
    values, chunks = old[:], old.chunks
    shutil.rmtree(store / "X")
    group = zarr.open_group(store, mode="r+")
    new = group.create_array(
        "X", shape=np.shape(values), shards=chunks, chunks=(1, chunks[1]), dtype="float32",
        compressors=[zarr.codecs.GzipCodec()], chunk_key_encoding={"name": "default", "separator": "."},
    )  # fmt: skip
    new[:] = values
    refused(specimen.model, store)


def test_consolidated_metadata_is_not_another_store(specimens: Specimens, tmp_path: Path) -> None:
    """Metadata in the root, beside arrays that say something else, does not make two stores of one."""
    specimen = specimens["hard"]
    store = copied(specimen, tmp_path / "s.zarr")
    inside = {
        name: json.loads((store / name / "zarr.json").read_text())
        for name in ("X", "y", "blocks", "blocks/000000", "blocks/000000/digest")
    }
    more = {"kind": "inline", "must_understand": False, "metadata": inside}
    edit(store, "zarr.json", lambda record: record.update(consolidated_metadata=more))
    for name in ("X/zarr.json", "y/zarr.json"):
        (store / name).write_text("garbage")
    refused(specimen.model, store)


CHUNK = ("chunk_grid", "configuration", "chunk_shape", 0)


@pytest.mark.parametrize("rows", [10**7, 3 * 10**9, 10**12, 2**62])
def test_rows_that_are_only_promised(specimens: Specimens, tmp_path: Path, rows: int) -> None:
    """A store of 40 rows that says it has billions is refused in seconds, without the memory for what it promises."""
    specimen = specimens["hard"]
    store = copied(specimen, tmp_path / "s.zarr")
    chunks = -(-rows // 16)

    def root(record: Any) -> None:
        record["attributes"].update(rows=rows, chunk_rows=16)
        record["attributes"]["commits"][0].update(rows=rows, last=chunks)

    edit(store, "zarr.json", root)
    for name, shape in (("X", [rows, 3]), ("y", [rows])):
        edit(store, f"{name}/zarr.json", lambda record, shape=shape: record.update(shape=shape))
        edit(
            store,
            f"{name}/zarr.json",
            lambda record: put(record, ("chunk_grid", "configuration", "chunk_shape", 0), 16),
        )
    for array in (store / "blocks/000000").iterdir():
        if array.is_dir():
            name = f"blocks/000000/{array.name}/zarr.json"
            edit(store, name, lambda record: put(record, ("shape", 0), chunks))
            edit(store, name, lambda record: put(record, CHUNK, 1 << 20))
            for file in array.glob("c.*"):
                file.unlink()
    assert calm(specimen.model, store) == "refused"
    assert examined(store) == "refused"


@pytest.mark.parametrize("value", [-1, 0, 1, 2**31, 2**62, -(2**63)])
@pytest.mark.parametrize("statistic", ["nonzeros", "marks", "digest"])
def test_statistics_of_sparse_chunks_that_lie(specimens: Specimens, tmp_path: Path, statistic: str, value: int) -> None:
    """How many values a chunk has is not believed: no traceback, no endless loop, in verify and in check."""
    specimen = specimens["sparse-hinge"]
    store = copied(specimen, tmp_path / "s.zarr")
    folder = store / "blocks/000000" / statistic
    kind = np.dtype(json.loads((folder / "zarr.json").read_text())["data_type"])
    file = next(folder.glob("c.*"))
    held = np.frombuffer(file.read_bytes()[:-4], kind.newbyteorder("<")).copy()
    held[:] = np.array(value, dtype=object) % 2 ** (8 * kind.itemsize) if kind.kind == "u" else value
    file.write_bytes(with_checksum(held.tobytes()))
    refused(specimen.model, store)
    assert examined(store) == "refused"


def test_stored_values_that_inflate(specimens: Specimens, tmp_path: Path) -> None:
    """Files of zeros that inflate to a gigabyte, and a chunk that says it stores them all: nobody inflates them."""
    specimen, entries, files = specimens["sparse-hinge"], 1 << 23, 12
    store = copied(specimen, tmp_path / "s.zarr")
    edit(store, "zarr.json", lambda record: put(record, ("attributes", "file_entries"), entries))
    configuration = {"cname": "zstd", "clevel": 3, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}
    packing = {"name": "blosc", "configuration": configuration}
    for name in ("X/data", "X/indices"):
        edit(store, f"{name}/zarr.json", lambda record: put(record, ("shape", 0), entries * files))
        edit(store, f"{name}/zarr.json", lambda record: put(record, CHUNK, entries))
        edit(store, f"{name}/zarr.json", lambda record: record["codecs"].insert(1, packing))
        packed = with_checksum(blosc.Blosc(cname="zstd", clevel=3).encode(np.zeros(entries, "<i4")))
        for number in range(files):
            (store / name / f"c.{number}").write_bytes(packed)
    file = store / "blocks/000000/nonzeros/c.0"
    counts = np.frombuffer(file.read_bytes()[:-4], "<i8").copy()
    counts[0] = entries * files
    file.write_bytes(with_checksum(counts.tobytes()))
    assert (calm(specimen.model, store), examined(store)) == ("refused", "refused")


STATISTICS = ["centre", "low", "high", "total", "spread", "radius", "max_norm", "counts", "unlabelled", "rows"]
TRAINED: dict[str, dict[str, Any]] = {
    "hard": {"epsilon": 1e-3},
    "standard": {"loss": "squared_hinge", "scaling": "standard"},
    "minmax": {"loss": "hinge", "scaling": "minmax"},
    "balanced": {"loss": "hinge", "class_weight": "balanced"},
    "classes": {"classes": "crammer-singer"},
}


@pytest.mark.slow
@pytest.mark.parametrize("asked", list(TRAINED))
def test_statistics_that_were_forged(specimens: Specimens, tmp_path: Path, asked: str) -> None:
    """Trained with statistics that are not true, every checksum right: what is verified is true, or it is refused."""
    specimen = specimens["hard-origin"]
    for k, (statistic, factor) in enumerate((name, f) for name in STATISTICS for f in (0.0, 0.5, 3.0, -1.0)):
        store = copied(specimen, tmp_path / f"{k}.zarr")
        folder = store / "blocks/000000" / statistic
        kind = np.dtype(json.loads((folder / "zarr.json").read_text())["data_type"]).newbyteorder("<")
        file = next(folder.glob("c.*"))
        held = np.frombuffer(file.read_bytes()[:-4], kind)
        file.write_bytes(with_checksum((held * factor).astype(kind).tobytes()))
        model = tmp_path / f"m{k}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what NumPy says while it trains on nonsense
            try:
                coremargin.train(store, out=model, cluster="threads", max_scans=20, **TRAINED[asked])
            except CoremarginError:
                continue
        result = examine(model, store, threads=1)
        if result.ok:
            made = Specimen(f"{statistic} {factor}", model, specimen.rows, files_of(model))
            assert Bench(made).lies(Work(made, tmp_path / f"w{k}")) == [], (statistic, factor)


def test_commits_follow_each_other(specimens: Specimens, tmp_path: Path) -> None:
    """A commit that is there twice, or that commits nothing, is none that a writer made."""
    specimen = specimens["hard"]
    rows = write_store(tmp_path / "s.zarr", specimen.rows.X, list(specimen.rows.labels))
    record = json.loads((rows.path / "zarr.json").read_text())
    for commits in (
        [*record["attributes"]["commits"], *record["attributes"]["commits"]],
        [{**record["attributes"]["commits"][0], "last": 0, "rows": 0}, record["attributes"]["commits"][0]],
    ):
        changed = copy.deepcopy(record)
        changed["attributes"]["commits"] = commits
        (rows.path / "zarr.json").write_text(json.dumps(changed))
        refused(specimen.model, rows.path)


def test_weights_of_nothing_hide_nothing(tmp_path: Path, specimens: Specimens) -> None:
    """A hard margin of rows of which some weigh nothing, under the digest of rows that all weigh: refused."""
    specimen = specimens["hard"]
    weights = np.ones(len(specimen.rows.X))
    weights[specimen.arrays()["coreset_ids"]] = 0.0
    lighter = write_store(tmp_path / "s.zarr", specimen.rows.X, list(specimen.rows.labels), weights=weights)
    coremargin.train(lighter.path, out=tmp_path / "m", cluster="threads")
    assert verify(tmp_path / "m", lighter.path).ok
    refused(tmp_path / "m", specimen.store)

    def digest(draft: Draft) -> None:
        draft.claims["store_digest"] = specimen.rows.digest

    made = Specimen("lighter", tmp_path / "m", lighter, files_of(tmp_path / "m"))
    refused(forged(made, tmp_path / "forged", digest), specimen.store)
    refused(
        forged(specimen, tmp_path / "other", lambda draft: draft.claims.update(store_digest=lighter.digest)),
        lighter.path,
    )
