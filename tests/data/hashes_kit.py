"""Forgers of stores for tests: other bytes with the same CRC-32C, other recorded hashes, and stores without any."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from typing import TYPE_CHECKING, Any

import crc32c
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PARTS = ("x", "y", "indices", "lengths", "weights")


def same_crc(data: bytes, bits: Sequence[int]) -> bytes:
    """Other bytes with the same CRC-32C: some of these bits of the data are turned, at least one.

    A CRC is linear: turning a bit changes it by a number of 32 bits that the rest of the data does not influence. Of 33
    such numbers some add up to zero, and elimination finds them.
    """
    start, known = crc32c.crc32c(data), dict[int, tuple[int, frozenset[int]]]()
    for bit in bits:
        turned = bytearray(data)
        turned[bit >> 3] ^= 1 << (bit & 7)
        effect, chosen = crc32c.crc32c(bytes(turned)) ^ start, frozenset([bit])
        while effect and effect.bit_length() in known:
            other, more = known[effect.bit_length()]
            effect, chosen = effect ^ other, chosen ^ more
        if not effect:
            break
        known[effect.bit_length()] = effect, chosen
    forged = bytearray(data)
    for bit in chosen:
        forged[bit >> 3] ^= 1 << (bit & 7)
    assert crc32c.crc32c(bytes(forged)) == start
    assert bytes(forged) != data
    return bytes(forged)


def forge_file(path: Path, values: int, itemsize: int, first: int = 0) -> None:
    """Turn the lowest bits of some of so many values of an uncompressed chunk, so that its CRC-32C stay the same.

    first: number of the value that these begin with. The file ends with a checksum of all, which is computed again.
    """
    data = path.read_bytes()[:-4]
    start, stop = first * itemsize, (first + values) * itemsize
    part = same_crc(data[start:stop], [8 * itemsize * k for k in range(values)])
    whole = data[:start] + part + data[stop:]
    path.write_bytes(whole + struct.pack("<I", crc32c.crc32c(whole)))


def with_checksum(data: bytes) -> bytes:
    """A file of a small array: bytes, and their checksum."""
    return data + struct.pack("<I", crc32c.crc32c(data))


def edit_hashes(store: Path, change: Callable[[np.ndarray], None], group: str = "000000") -> None:
    """Change the SHA-256 (c, parts, 32) of a commit's group in place."""
    file = store / "blocks" / group / "sha256" / "c.0.0.0"
    parts = json.loads((file.parent / "zarr.json").read_text())["shape"][1]
    found = np.frombuffer(file.read_bytes()[:-4], np.uint8).reshape(-1, parts, 32).copy()
    change(found)
    file.write_bytes(with_checksum(found.tobytes()))


def edit_commits(store: Path, change: Callable[[dict[str, Any]], None], *, in_root: bool = True) -> None:
    """Change every commit's entry in the root, and its line in the log, and the mark that the root has of the log."""
    root = json.loads((store / "zarr.json").read_text())
    lines = [json.loads(line) for line in (store / "log.jsonl").read_text().splitlines()]
    for commit in (*(root["attributes"]["commits"] if in_root else ()), *(line["commit"] for line in lines)):
        change(commit)
    log = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    (store / "log.jsonl").write_bytes(log)
    root["attributes"]["log"] |= {"nbytes": len(log), "crc32c": crc32c.crc32c(log)}
    (store / "zarr.json").write_text(json.dumps(root))


def renew_commit(store: Path) -> str:
    """Let the SHA-256 of a store of one commit follow from those of its chunks again; what it is now."""
    about = json.loads((store / "zarr.json").read_text())["attributes"]
    found = np.frombuffer((store / "blocks/000000/sha256/c.0.0.0").read_bytes()[:-4], np.uint8).reshape(-1, 5, 32)
    facts = {name: about[name] for name in ("format", "features", "dtype", "classes", "rows", "chunk_rows")}
    for number, name in enumerate(PARTS):
        facts[name] = hashlib.sha256(found[:, number].tobytes()).hexdigest()
    sha256 = "sha256:" + hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    edit_commits(store, lambda commit: commit.update(sha256=sha256))
    return sha256


def strip_hashes(store: Path) -> None:
    """Make a store one from before there were any."""
    edit_commits(store, lambda commit: commit.pop("sha256"))
    for folder in store.glob("blocks/*/sha256"):
        shutil.rmtree(folder)


def content_of(parts: dict[str, Sequence[np.ndarray]], **facts: Any) -> str:
    """SHA-256 of a content as formats/store_record.py defines it; parts: of each the values of all chunks, in order."""
    found = {"format": "coremargin-store", **facts}
    for name in PARTS:
        hashes = b"".join(hashlib.sha256(np.ascontiguousarray(one).tobytes()).digest() for one in parts.get(name, ()))
        found[name] = hashlib.sha256(hashes or bytes(32 * len(parts["x"]))).hexdigest()
    return "sha256:" + hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
