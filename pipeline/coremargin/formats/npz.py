"""The arrays of a model, read without pickle and without believing any size that the file does not back."""

from __future__ import annotations

import warnings
import zipfile
from typing import Any, BinaryIO

import numpy as np

from coremargin.errors import DataError, raise_if_limit
from coremargin.formats.storage import object_size
from coremargin.formats.strict_json import cut

LARGEST = 16 << 30  #: bytes of an npz beyond which it is not believed to be a model's
_MOST_MEMBERS = 64
_KINDS = "fiub"  # floats, integers, unsigned, booleans: nothing that needs code to be read
_ENCRYPTED = 0x1
_BEGIN = b"PK\x03\x04"  # zipfile takes archives with anything before them


def read_arrays(file: BinaryIO, place: str, most_members: int = _MOST_MEMBERS) -> dict[str, np.ndarray]:
    """The arrays of an npz, by name; the file is open.

    Raises DataError that names ``place`` and the member: compressed or encrypted members (a bomb hides there), a name
    twice, object arrays, shapes that promise more than the member holds, altered or missing bytes.
    """
    size = object_size(file)
    if size > LARGEST:
        raise DataError(f"{place}: expected at most {LARGEST:,} bytes, found {size:,}; this is not a model")
    try:
        if file.read(len(_BEGIN)) != _BEGIN:
            raise DataError(f"{place}: expected an npz from the first byte on, found something else; get a whole copy")
        with warnings.catch_warnings(action="error"), zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            _check_members(members, size, place, most_members)
            return {member.filename.removesuffix(".npy"): _read_member(archive, member, place) for member in members}
    except DataError:
        raise
    except Exception as error:  # zipfile and numpy raise what they like of altered bytes
        raise_if_limit(error, place)
        raise DataError(f"{place}: truncated or altered ({cut(str(error))}); get a whole copy of the model") from error


def _check_members(members: list[zipfile.ZipInfo], size: int, place: str, most: int) -> None:
    if len(members) > most or sum(member.file_size for member in members) > size:
        raise DataError(f"{place}: the members promise more than the file's {size:,} bytes hold; get a whole copy")
    known = set[str]()
    for member in members:
        name = cut(member.filename)
        if member.filename in known or not member.filename.endswith(".npy"):
            raise DataError(f"{place}: expected arrays of different names, found {name!r}; get an unaltered copy")
        known.add(member.filename)
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & _ENCRYPTED:
            what = "encrypted" if member.flag_bits & _ENCRYPTED else "compressed"
            raise DataError(f"{place}: expected plain arrays, {name!r} is {what}; get an unaltered copy")


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: str) -> np.ndarray:
    with archive.open(member) as file:
        _check_header(file, member, place)
    with archive.open(member) as file:
        values: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
        file.read()  # to the end, where the checksum of the member is compared
    return values


def _check_header(file: Any, member: zipfile.ZipInfo, place: str) -> None:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.kind not in _KINDS or dtype.hasobject:
        raise DataError(
            f"{place}: expected numbers, {member.filename} holds {dtype}; loading it could run code: refused"
        )
    count = 1
    for length in shape:
        count *= length
    if count < 0 or min(shape, default=0) < 0 or file.tell() + count * dtype.itemsize != member.file_size:
        raise DataError(
            f"{place}: {member.filename} has a header for shape {shape} of {dtype}, but {member.file_size:,} bytes; "
            f"get an unaltered copy"
        )
