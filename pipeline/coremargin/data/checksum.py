"""crc32c of bytes, and of joined bytes from the checksums of the parts.

A checksum of the whole from those of its chunks is what makes the identity of a store independent of how its rows
are cut into chunks. The algebra is that of zlib's ``crc32_combine`` (M. Adler), with Castagnoli's polynomial.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

import crc32c as _crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable

Data = bytes | memoryview  #: contiguous bytes; of an array x: ``x.data``

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reflected


def crc32c(data: Data, value: int = 0) -> int:
    """Checksum of bytes, continuing from ``value``; needs a contiguous buffer."""
    return int(_crc32c.crc32c(data, value))


def _times(a: int, b: int) -> int:
    """Product of two polynomials modulo the crc's polynomial, reflected bit order."""
    product, bit = 0, 1 << 31
    while bit:
        if a & bit:
            product ^= b
        bit >>= 1
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
    return product


@cache
def _power(k: int) -> int:
    """x^(8 2^k) modulo the polynomial."""
    return 1 << 23 if k == 0 else _times(_power(k - 1), _power(k - 1))


def _shift(length: int) -> int:
    """x^(8 length) modulo the polynomial: what ``length`` more bytes do to a checksum."""
    result = 1 << 31  # x^0
    for k in range(length.bit_length()):
        if length >> k & 1:
            result = _times(result, _power(k))
    return result


@lru_cache(maxsize=8)
def _tables(length: int) -> tuple[tuple[int, ...], ...]:
    """Four tables of 256: the shift by ``length`` bytes of each byte of a checksum."""
    operator = _shift(length)
    tables = []
    for byte in range(4):
        bits = [_times(operator, 1 << (8 * byte + bit)) for bit in range(8)]
        table = [0] * 256
        for value in range(1, 256):
            low = value & -value
            table[value] = table[value ^ low] ^ bits[low.bit_length() - 1]
        tables.append(tuple(table))
    return tuple(tables)


def joined(parts: Iterable[tuple[int, int]]) -> int:
    """Checksum of the parts' bytes one after the other, from (checksum, length in bytes) of each."""
    whole, last = 0, -1
    for crc, length in parts:
        if length == last:  # and so may be many more: tables pay
            a, b, c, d = _tables(length)
            whole = a[whole & 255] ^ b[whole >> 8 & 255] ^ c[whole >> 16 & 255] ^ d[whole >> 24]
        elif whole:
            whole = _times(_shift(length), whole)
        whole, last = whole ^ crc, length
    return whole
