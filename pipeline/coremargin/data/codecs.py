"""How a chunk's bytes become a file, and the codecs that a store may use.

Only codecs on the allow-list are ever run: metadata of an unknown store cannot name code to import, and a file cannot
inflate beyond the size of its chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numcodecs.blosc import Blosc

from coremargin.data.checksum import Data, crc32c
from coremargin.data.plain import BYTES, CRC32C, CRC_BYTES
from coremargin.errors import StoreError, UsageError

COMPRESSIONS = ("none", "lz4", "zstd", "auto")
_WORTHWHILE = 1.5  # compress only from this ratio on: below, decoding costs more than reading
_LEVELS = {"lz4": 5, "zstd": 3}
_GENERAL = {"bytes", "crc32c", "blosc", "transpose", "sharding_indexed"}
_SHUFFLES = {"noshuffle": Blosc.NOSHUFFLE, "shuffle": Blosc.SHUFFLE, "bitshuffle": Blosc.BITSHUFFLE}
_BLOSC_HEADER = 16


@dataclass(frozen=True)
class Encoding:
    """Codecs that this module runs itself: raw bytes, or Blosc, each with or without a crc32c at the end."""

    compression: str = "none"
    checksum: bool = True

    @property
    def raw(self) -> bool:
        """The file starts with the chunk's bytes as they are: it can be mapped."""
        return self.compression == "none"

    def codecs(self, itemsize: int) -> list[dict[str, Any]]:
        """As written to ``zarr.json``."""
        chain: list[dict[str, Any]] = [BYTES]
        if not self.raw:
            configuration = {
                "cname": self.compression,
                "clevel": _LEVELS[self.compression],
                "shuffle": "shuffle",
                "typesize": itemsize,
                "blocksize": 0,
            }
            chain.append({"name": "blosc", "configuration": configuration})
        return [*chain, CRC32C] if self.checksum else chain

    def encode(self, chunk: np.ndarray) -> list[Data]:
        """The parts of the file that holds a whole chunk (C order, little-endian)."""
        body: Data = chunk.data.cast("B")
        if not self.raw:
            codec = Blosc(cname=self.compression, clevel=_LEVELS[self.compression], shuffle=Blosc.SHUFFLE)
            body = codec.encode(chunk.reshape(-1))
        return [body, crc32c(body).to_bytes(CRC_BYTES, "little")] if self.checksum else [body]

    def decode(self, data: memoryview, out: np.ndarray) -> None:
        """Decode a file into ``out`` (uint8, the size of a whole chunk). Raises ValueError that says what is wrong."""
        if self.checksum:
            if len(data) < CRC_BYTES:
                raise ValueError(f"expected a checksum of {CRC_BYTES} bytes, got {len(data)} bytes in all")
            body, stored = data[:-CRC_BYTES], int.from_bytes(data[-CRC_BYTES:], "little")
            if crc32c(body) != stored:
                raise ValueError(f"expected checksum {stored:08x}, got {crc32c(body):08x}")
            data = body
        if self.raw:
            if len(data) != out.nbytes:
                raise ValueError(f"expected {out.nbytes:,} bytes, got {len(data):,}")
            out[:] = np.frombuffer(data, dtype=np.uint8)
            return
        inflated = int.from_bytes(data[4:8], "little") if len(data) >= _BLOSC_HEADER else -1
        stated = int.from_bytes(data[12:16], "little") if len(data) >= _BLOSC_HEADER else -1
        if inflated != out.nbytes or stated != len(data):
            raise ValueError(f"expected {out.nbytes:,} bytes once decompressed, the header promises {inflated:,}")
        try:
            Blosc().decode(data, out=out)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"cannot be decompressed: {error}") from error


def chosen(compression: str, sample: np.ndarray) -> str:
    """The compression for a store, given its first rows; "auto" compresses only where that is worth while."""
    if compression not in COMPRESSIONS:
        raise UsageError(f"compression: expected one of {', '.join(COMPRESSIONS)}, got {compression!r}")
    if compression != "auto":
        return compression
    packed = sum(memoryview(part).nbytes for part in Encoding("lz4").encode(np.ascontiguousarray(sample)))
    return "lz4" if sample.nbytes >= _WORTHWHILE * packed else "none"


def parsed(codecs: Any, place: str) -> Encoding | None:
    """The encoding that a list of codecs means, or None when only the general reader can run it.

    Raises StoreError for codecs that are not on the allow-list.
    """
    names = _checked(codecs, place)
    endian = codecs[0].get("configuration", {}).get("endian", "little") if names[0] == "bytes" else None
    checksum = names[-1] == "crc32c"
    middle = names[1:-1] if checksum else names[1:]
    if endian != "little" or middle not in ([], ["blosc"]):
        return None
    if not middle:
        return Encoding("none", checksum)
    configuration = codecs[1].get("configuration", {})
    if configuration.get("cname") not in _LEVELS or configuration.get("shuffle") not in _SHUFFLES:
        return None
    return Encoding(str(configuration["cname"]), checksum)


def _checked(codecs: Any, place: str) -> list[str]:
    if not isinstance(codecs, Sequence) or isinstance(codecs, str) or not codecs:
        raise StoreError(f"{place}: expected a list of codecs, got {codecs!r}; restore the file from a copy")
    names = []
    for codec in codecs:
        name = codec.get("name") if isinstance(codec, dict) else None
        if name not in _GENERAL:
            raise StoreError(
                f"{place}: codec {name!r} is not allowed; expected {', '.join(sorted(_GENERAL))}; "
                f"write the store again with one of the compressions {', '.join(COMPRESSIONS[:3])}"
            )
        if name == "sharding_indexed":
            configuration = codec.get("configuration", {})
            _checked(configuration.get("codecs"), place)
            _checked(configuration.get("index_codecs"), place)
        names.append(str(name))
    return names
