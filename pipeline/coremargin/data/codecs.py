"""How a chunk's bytes become a file, and a file becomes them again.

A file cannot inflate beyond the size of its chunk; which codecs a store may use, formats/zarr_metadata.py says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coremargin.data.checksum import Data, crc32c
from coremargin.data.plain import BYTES, CRC32C
from coremargin.errors import UsageError
from coremargin.formats.raw_array import CRC_BYTES
from coremargin.formats.zarr_metadata import COMPRESSIONS as WRITTEN
from coremargin.formats.zarr_metadata import ArrayMetadata, Blosc, Crc32c

COMPRESSIONS = (*WRITTEN, "auto")
_WORTHWHILE = 1.5  # compress only from this ratio on: below, decoding costs more than reading
_LEVELS = {"lz4": 5, "zstd": 3}
_BLOSC_HEADER = 16


@dataclass(frozen=True)
class Encoding:
    """The codecs of an array: raw bytes, or Blosc, each with or without a crc32c at the end."""

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
            from numcodecs import blosc

            codec = blosc.Blosc(cname=self.compression, clevel=_LEVELS[self.compression], shuffle=blosc.SHUFFLE)
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
        _check_header(data, out.nbytes)
        from numcodecs import blosc

        try:
            blosc.Blosc().decode(data, out=out)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"cannot be decompressed: {error}") from error


def _check_header(data: memoryview, whole: int) -> None:
    """Raises ValueError unless Blosc's header says what is there: c-blosc believes it, and reads on."""
    if len(data) < _BLOSC_HEADER:
        raise ValueError(f"expected a header of {_BLOSC_HEADER} bytes, got {len(data)} bytes in all")
    inflated, stated = (int.from_bytes(data[start : start + 4], "little") for start in (4, 12))
    if inflated != whole:
        raise ValueError(f"expected {whole:,} bytes once decompressed, the header promises {inflated:,}")
    if stated != len(data):
        raise ValueError(f"expected {stated:,} compressed bytes, as the header promises, got {len(data):,}")


def chosen(compression: str, sample: np.ndarray) -> str:
    """The compression for a store, given its first rows; "auto" compresses only where that is worth while."""
    if compression not in COMPRESSIONS:
        raise UsageError(f"compression: expected one of {', '.join(COMPRESSIONS)}, got {compression!r}")
    if compression != "auto":
        return compression
    packed = sum(memoryview(part).nbytes for part in Encoding("lz4").encode(np.ascontiguousarray(sample)))
    return "lz4" if sample.nbytes >= _WORTHWHILE * packed else "none"


def encoding_of(metadata: ArrayMetadata) -> Encoding:
    """How the chunks of an array become files."""
    packed = next((codec for codec in metadata.codecs if isinstance(codec, Blosc)), None)
    checksum = isinstance(metadata.codecs[-1], Crc32c)
    return Encoding(packed.configuration.cname if packed else "none", checksum)
