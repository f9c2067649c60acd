"""Records that a network damages on their way are fetched once more; those that lie there damaged are refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import coremargin
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from cloud_kit import BucketServer
    from coremargin.formats.location import Location

#: Keys, and what becomes of their bytes: no longer JSON, another key, another number, another checksum.
DAMAGE = [
    ("zarr.json", b'"attributes"', b'"attribudes"'),
    ("zarr.json", b"{", b"["),
    ("zarr.json", b'"format": "', b'"format": "d'),
    ("zarr.json", b'"version": 5', b'"version": 7'),
    ("zarr.json", b'"crc32c":', b'"crc32c": 1'),
    ("X/zarr.json", b'"float32"', b'"float36"'),
    ("X/zarr.json", b'"shape"', b'"sxape"'),
    ("blocks/000000/counts/zarr.json", b'"zarr_format": 3', b'"zarr_format": 2'),
    ("log.jsonl", b'"time"', b'"tide"'),
]


def use(place: Location, path: Path) -> tuple[str, int]:
    """Everything that reads records: opening, an earlier commit, the log, and a proof."""
    store = Store.open(place, commit=0)
    store.scalars()
    store.read(0)
    return store.digest, len(Store.open(place).log)


@pytest.fixture
def grown(rows: Store) -> Store:
    """A store of two commits."""
    with StoreWriter.append(rows.path) as writer:
        writer.write(rows.read(0)[0], [rows.classes[code] for code in rows.read(0)[1]])
    return Store.open(rows.path)


@pytest.mark.parametrize(("key", "old", "new"), DAMAGE)
def test_flipped_bits_of_records(
    grown: Store, place: Location, server: BucketServer, key: str, old: bytes, new: bytes
) -> None:
    """Once: nothing is noticed but one more request. Always: refused by the name of the object."""
    path = f"buck/rows.zarr/{key}"
    expected = use(place, grown.path)
    seen = Counter[str]()

    def once(name: str, data: bytes) -> bytes:
        seen[name] += 1
        assert name != path or old in data
        return data.replace(old, new, 1) if name == path and seen[name] == 1 else data

    server.alter = once
    assert use(place, grown.path) == expected
    assert seen[path] >= 2
    server.alter = lambda name, data: data.replace(old, new, 1) if name == path else data
    with pytest.raises(StoreError, match=r"s3://buck/rows.zarr") as caught:
        use(place, grown.path)
    assert key.rpartition("/")[0] in str(caught.value)


def test_a_proof_survives_flipped_bits(rows: Store, place: Location, server: BucketServer, tmp_path: Path) -> None:
    """As training does."""
    coremargin.train(rows, out=tmp_path / "rows.model", epsilon=0.01)
    seen = Counter[str]()

    def first(name: str, data: bytes) -> bytes:
        seen[name] += 1
        flips = seen[name] == 1 and name.endswith((".json", ".jsonl"))
        return bytes([data[0] ^ 4]) + data[1:] if flips else data

    server.alter = first
    assert coremargin.verify(tmp_path / "rows.model", place).ok
    assert max(seen.values()) >= 2
