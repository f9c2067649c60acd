"""Mutations of ``arrays.npz``: of numbers, of their kinds and shapes, of members, of the zip file around them.

The zip file is written here byte by byte, as most of what is wrong with the files of strangers no library writes.
"""

from __future__ import annotations

import bz2
import io
import lzma
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from forge_specimens import Arrays


@dataclass(frozen=True)
class Member:
    """One member of a zip file: the bytes that are there, and what the headers say of them."""

    name: bytes
    data: bytes
    method: int = 0
    flags: int = 0
    crc: int | None = None
    size: int | None = None  #: that of the content, as promised
    packed: int | None = None  #: that of the data, as promised
    attributes: int = 0o644 << 16


def npy(values: np.ndarray, *, header: bytes | None = None) -> bytes:
    """An array as a .npy file, with another header text if one is given."""
    file = io.BytesIO()
    values = np.asarray(values)
    if header is None:
        np.lib.format.write_array(file, values, allow_pickle=True)
        return file.getvalue()
    text = header + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + values.tobytes()


_KEPT: dict[int, tuple[np.ndarray, Member]] = {}  # by identity: most arrays are the same again and again


def members_of(arrays: Arrays) -> list[Member]:
    """Honest members."""
    return [Member(f"{name}.npy".encode(), npy(values)) for name, values in sorted(arrays.items())]


def _members_again(arrays: Arrays, honest: Arrays) -> list[Member]:
    """The same, with what was made before of the arrays that are honest."""
    members = []
    for name, values in sorted(arrays.items()):
        if values is not honest.get(name):
            members.append(Member(f"{name}.npy".encode(), npy(values)))
            continue
        if id(values) not in _KEPT:
            _KEPT[id(values)] = (values, Member(f"{name}.npy".encode(), npy(values)))
        members.append(_KEPT[id(values)][1])
    return members


def zipped(members: list[Member], before: bytes = b"", after: bytes = b"") -> bytes:
    """A zip file."""
    body, central = bytearray(before), bytearray()
    for one in members:
        content = one.data
        crc = zlib.crc32(content) if one.crc is None else one.crc
        data = _packed(one.method, content)
        size, packed = len(content) if one.size is None else one.size, len(data) if one.packed is None else one.packed
        told = struct.pack(
            "<HHHHHIIIHH", 20, one.flags, one.method, 0, 33, crc, packed % 2**32, size % 2**32, len(one.name), 0
        )
        start = len(body)
        body += b"PK\3\4" + told + one.name + data
        central += (
            b"PK\1\2"
            + struct.pack("<H", 3 << 8 | 20)
            + told
            + struct.pack("<HHHII", 0, 0, 0, one.attributes, start)
            + one.name
        )
    end = struct.pack("<HHHHIIH", 0, 0, len(members) % 2**16, len(members) % 2**16, len(central), len(body), 0)
    return bytes(body) + bytes(central) + b"PK\5\6" + end + after


def _packed(method: int, content: bytes) -> bytes:
    if method == 8:
        squeeze = zlib.compressobj(6, zlib.DEFLATED, -15)
        return squeeze.compress(content) + squeeze.flush()
    if method == 12:
        return bz2.compress(content)
    if method == 14:
        filters = [{"id": lzma.FILTER_LZMA1}]
        return (
            struct.pack("<BBH", 9, 4, 5) + b"\x5d\0\0\x80\0" + lzma.compress(content, lzma.FORMAT_RAW, filters=filters)
        )
    return content


ELEMENTS: tuple[tuple[str, Callable[[float], float]], ...] = (
    ("negative", lambda v: -v),
    ("+1ulp", lambda v: float(np.nextafter(v, np.inf))),
    ("-1ulp", lambda v: float(np.nextafter(v, -np.inf))),
    ("*(1+1e-12)", lambda v: v * (1 + 1e-12)),
    ("*(1+1e-6)", lambda v: v * (1 + 1e-6)),
    ("*(1-1e-3)", lambda v: v * (1 - 1e-3)),
    ("*2", lambda v: v * 2),
    ("+1", lambda v: v + 1),
    ("-1", lambda v: v - 1),
    ("0", lambda v: 0.0),
    ("-0.0", lambda v: -0.0),
    ("NaN", lambda v: np.nan),
    ("inf", lambda v: np.inf),
    ("-inf", lambda v: -np.inf),
    ("1e300", lambda v: 1e300),
    ("1.7e308", lambda v: 1.7e308),
    ("5e-324", lambda v: 5e-324),
    ("2^62", lambda v: float(2**62)),
)


def _element(rng: np.random.Generator, values: np.ndarray) -> tuple[str, np.ndarray]:
    if not values.size:
        return "an entry more", np.zeros((1, *values.shape[1:]), values.dtype)
    new, place = values.copy(), int(rng.integers(values.size))
    name, change = ELEMENTS[rng.integers(len(ELEMENTS))]
    with np.errstate(all="ignore"):
        number = change(float(new.flat[place]))
        if new.dtype.kind in "iu":
            facts = np.iinfo(new.dtype)
            number = int(min(max(number, facts.min), facts.max)) if np.isfinite(number) else facts.max
        new.flat[place] = number
    return f"[{place}] {name}", new


KINDS: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("float32", lambda v: v.astype("f4")),
    ("float16", lambda v: v.astype("f2")),
    ("longdouble", lambda v: v.astype(np.longdouble)),
    ("float64", lambda v: v.astype("f8")),
    ("float64 + 0.9", lambda v: v.astype("f8") + 0.9),
    ("big-endian", lambda v: v.astype(v.dtype.newbyteorder(">"))),
    ("complex", lambda v: v.astype("c16")),
    ("complex + 1j", lambda v: v.astype("c16") + 1j),
    ("int64", lambda v: v.astype("i8")),
    ("int32", lambda v: v.astype("i4")),
    ("int8", lambda v: v.astype("i1")),
    ("uint8", lambda v: v.astype("u1")),
    ("uint64", lambda v: v.astype("u8")),
    ("bool", lambda v: v.astype(bool)),
    ("bytes", lambda v: v.astype("S8")),
    ("text", lambda v: v.astype("U8")),
    ("object", lambda v: v.astype(object)),
    ("times", lambda v: v.astype("i8").astype("m8[s]")),
    ("dates", lambda v: v.astype("i8").astype("M8[s]")),
    ("structured", lambda v: np.zeros(v.shape, [("a", "<f8")])),
    ("void", lambda v: np.zeros(v.shape, "V8")),
)

SHAPES: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("0-d", lambda v: np.array(v.flat[0] if v.size else 0, v.dtype)),
    ("one axis more", lambda v: v[None]),
    ("an axis at the end", lambda v: v[..., None]),
    ("flat", lambda v: v.ravel()),
    ("transposed", lambda v: v.T),
    ("Fortran's order", np.asfortranarray),
    ("without the last", lambda v: v[:-1]),
    ("without the first", lambda v: v[1:]),
    ("the last twice", lambda v: np.concatenate([v, v[-1:]])),
    ("a zero more", lambda v: np.concatenate([v, np.zeros((1, *v.shape[1:]), v.dtype)])),
    ("empty", lambda v: v[:0]),
    ("reversed", lambda v: v[::-1]),
    ("rolled", lambda v: np.roll(v, 1, axis=0)),
    ("many", lambda v: np.repeat(v, 50, axis=0)),
    ("no columns", lambda v: v.reshape(v.shape[0], -1)[:, :0]),
)

#: Texts of .npy headers that say something else than the bytes behind them.
HEADERS: tuple[bytes, ...] = tuple(
    b"{'descr': %s, 'fortran_order': %s, 'shape': %s, }" % parts
    for parts in [
        (b"'<f8'", b"False", b"(1000000000,)"),
        (b"'<f8'", b"False", b"(1000000000000,)"),
        (b"'<f8'", b"False", b"(%d,)" % 2**63),
        (b"'<f8'", b"False", b"(%d,)" % 2**70),
        (b"'<f8'", b"False", b"(-3,)"),
        (b"'<f8'", b"False", b"(0, %d)" % 2**62),
        (b"'<f8'", b"False", b"(3.0,)"),
        (b"'<f8'", b"False", b"(True, 3)"),
        (b"'<f8'", b"False", b"('3',)"),
        (b"'<f8'", b"False", b"None"),
        (b"'<f8'", b"5", b"(3,)"),
        (b"'O'", b"False", b"(3,)"),
        (b"'V8'", b"False", b"(3,)"),
        (b"5", b"False", b"(3,)"),
        (b"('<f8', (1000000000,))", b"False", b"(3,)"),
        (b"[('a', '<f8')]", b"False", b"(3,)"),
        (b"'<f8'", b"False", b"(" * 300),
        (b"'<f8'", b"True", b"(%d, %d)" % (2**32, 2**32)),
        (b"__import__('os')", b"False", b"(3,)"),
        (b"'<f8'", b"False", b"(3, 3, 3, 3, 3)"),
    ]
)


def _of_array(rng: np.random.Generator, values: np.ndarray) -> tuple[str, np.ndarray]:
    kind = rng.random()
    if values.dtype.kind not in "fiub":  # changed before
        return "left", values
    if kind < 0.6:
        return _element(rng, values)
    name, change = KINDS[rng.integers(len(KINDS))] if kind < 0.8 else SHAPES[rng.integers(len(SHAPES))]
    try:
        with np.errstate(all="ignore"):
            return name, change(values)
    except (ValueError, IndexError):  # an array that has no such form
        return _element(rng, values)


def _of_members(rng: np.random.Generator, members: list[Member], others: Arrays) -> tuple[str, list[Member]]:
    """Members swapped, missing, there twice, or with other headers."""
    i, j = (int(k) for k in rng.integers(len(members), size=2))
    one, two, new = members[i], members[j], list(members)
    strange = sorted(others)[rng.integers(len(others))]
    short = one.name.removesuffix(b".npy")
    header = HEADERS[rng.integers(len(HEADERS))]
    choices: tuple[tuple[str, Callable[[], list[Member]]], ...] = (
        ("missing", lambda: new[:i] + new[i + 1 :]),
        ("twice", lambda: [*new, replace(one, data=two.data)]),
        ("twice, first", lambda: [replace(one, data=two.data), *new]),
        ("once without suffix, first", lambda: [replace(one, name=short, data=two.data), *new]),
        ("once without suffix, last", lambda: [*new, replace(one, name=short, data=two.data)]),
        ("without suffix", lambda: [replace(m, name=short) if m is one else m for m in new]),
        ("renamed", lambda: [replace(m, name=b"../" + m.name) if m is one else m for m in new]),
        ("another more", lambda: [*new, Member(b"extra.npy", two.data)]),
        (
            "swapped",
            lambda: [
                replace(m, data=two.data) if m is one else replace(m, data=one.data) if m is two else m for m in new
            ],
        ),
        ("of another model", lambda: [replace(m, data=npy(others[strange])) if m is one else m for m in new]),
        ("no array", lambda: [replace(m, data=b"abc") if m is one else m for m in new]),
        ("a pickle", lambda: [replace(m, data=b"\x80\x04K\x05.") if m is one else m for m in new]),
        ("empty", lambda: [replace(m, data=b"") if m is one else m for m in new]),
        ("header", lambda: [replace(m, data=npy(np.zeros(3), header=header)) if m is one else m for m in new]),
        (
            "magic",
            lambda: [
                replace(m, data=m.data[:6] + bytes([rng.integers(9)]) + m.data[7:]) if m is one else m for m in new
            ],
        ),
        ("cut", lambda: [replace(m, data=m.data[: int(rng.integers(len(m.data)))]) if m is one else m for m in new]),
        ("longer", lambda: [replace(m, data=m.data + b"\0" * 16) if m is one else m for m in new]),
        ("a link", lambda: [replace(m, attributes=0o120777 << 16) if m is one else m for m in new]),
    )
    name, make = choices[rng.integers(len(choices))]
    return f"{one.name.decode()} {name} (with {two.name.decode()}, {strange}, {header[:60].decode()})", make()


def _of_zip(rng: np.random.Generator, members: list[Member]) -> tuple[str, bytes]:
    """The file around the members: methods, flags, sizes and checksums that lie, bytes that are cut or changed."""
    i = int(rng.integers(len(members)))
    kind = int(rng.integers(10))
    everyone = bool(rng.integers(2))

    def some(**changes: int) -> bytes:
        return zipped([replace(m, **changes) if everyone or k == i else m for k, m in enumerate(members)])

    if kind == 0:
        method = (8, 12, 14)[rng.integers(3)]
        return f"method {method}, member {i}, all {everyone}", some(method=method)
    if kind == 1:
        method = (1, 6, 9, 93, 95, 97, 99)[rng.integers(7)]
        return f"unknown method {method}, member {i}", some(method=method)
    if kind == 2:
        flags = 1 << int(rng.integers(16))
        return f"flags {flags}, member {i}, all {everyone}", some(flags=flags)
    if kind == 3:
        size = int((0, 1, 100, 2**31, 2**32 - 2)[rng.integers(5)])
        return f"size {size} promised of member {i}, all {everyone}", some(size=size)
    if kind == 4:
        size = int((0, 1, 100, 2**31, 2**32 - 2)[rng.integers(5)])
        return f"packed size {size} promised of member {i}, all {everyone}", some(packed=size)
    if kind == 5:
        return f"checksum of member {i}, all {everyone}", some(crc=5)
    if kind == 6:
        return "junk before", zipped(members, before=b"junk" * 100)
    if kind == 7:
        return "junk after", zipped(members, after=b"junk" * 100)
    whole = bytearray(
        zipped([replace(m, method=(0, 8, 14)[rng.integers(3)]) for m in members] if rng.random() < 0.3 else members)
    )
    if kind == 8:
        place = int(rng.integers(len(whole)))
        return f"cut at {place}", bytes(whole[:place])
    changed = [(int(rng.integers(len(whole))), int(rng.integers(256))) for _ in range(rng.integers(1, 5))]
    for place, byte in changed:
        whole[place] = byte
    return f"bytes {changed}", bytes(whole)


def mutated(rng: np.random.Generator, arrays: Arrays, others: Arrays) -> tuple[str, bytes]:
    """Another file, and what was done; others: the arrays of another model."""
    kind = rng.random()
    if kind < 0.08:
        return _of_zip(rng, _members_again(arrays, arrays))
    if kind < 0.16:
        told, members = _of_members(rng, _members_again(arrays, arrays), others)
        return told, zipped(members)
    new, told = dict(arrays), []
    for _ in range(1 if rng.random() < 0.75 else int(rng.integers(2, 6))):
        name = sorted(new)[rng.integers(len(new))]
        what, new[name] = _of_array(rng, new[name])
        told.append(f"{name} {what}")
    return "; ".join(told), zipped(_members_again(new, arrays))
