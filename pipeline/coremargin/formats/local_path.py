"""Paths as people give them: addresses of other places are refused, ``file://`` and ``~`` resolved."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes

from coremargin.errors import UsageError

#: An address: a scheme, or several as fsspec chains them; pathlib leaves one of its slashes. One letter is a name.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+-]+)(?:::[A-Za-z][A-Za-z0-9+-]+)*:/")
_USER = re.compile(r"(:/+)[^/]*@")  # and what may be its password


def local_path(given: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> Path:
    """The path on this machine that is meant; what comes out may go in again.

    A leading ``~`` or ``~user`` is a home folder, ``file:///rows.zarr`` is ``/rows.zarr``; ``./~`` and ``./s3:/x`` are
    names as they stand. Raises UsageError for nothing, a NUL, a text that no file can have for a name, an address of
    another place (``s3://bucket/rows.zarr``, also as a Path, which has one slash less), and an unknown user.
    """
    text = os.fsdecode(given)
    try:
        usable = "\0" not in text and bool(os.fsencode(text))
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise UsageError(f"{text!r}: no file can have this name: expected a path without NUL, of bytes or valid text")
    address = _ADDRESS.match(text)
    if address is not None and text[:6].lower() == "file:/":
        return _of_file_address(text)
    if address is not None:
        shown = _USER.sub(r"\1", text).partition("?")[0]  # which may be a signature
        raise UsageError(
            f"{shown}: {address[1]}:// is not supported yet, expected a path on this machine; copy or mount what is "
            "there and give the local path, and copy results when they are written"
        )
    if text.startswith("~"):
        try:
            return Path(text).expanduser()
        except RuntimeError as error:
            raise UsageError(
                f"{text}: expected a home folder, found no user of that name; ./{text} is a plain name"
            ) from error
    if text.startswith("./") and (text.lstrip("./").startswith("~") or _ADDRESS.match(text.lstrip("./"))):
        return Path(
            os.path.abspath(text)
        )  # pathlib drops the ./ that distinguishes it from a home folder or an address
    return Path(text)


def _of_file_address(text: str) -> Path:
    """The path in an address ``file:///...`` or ``file://localhost/...`` of RFC 8089."""
    host, slash, path = text[len("file://") :].partition("/")
    if text[5:7] != "//":  # as pathlib leaves them, with any host
        raise UsageError(f"{text}: expected file:/// and a path, found one slash; give the address as text, not a Path")
    if host.lower() not in ("", "localhost") or not slash:
        raise UsageError(f"{text}: expected a file of this machine, as file:///rows.zarr, found one of {host!r}")
    if "?" in path or "#" in path:
        raise UsageError(f"{text}: expected ? and # in a file address as %3F and %23; or give the path itself")
    return local_path(os.fsdecode(b"/" + unquote_to_bytes(os.fsencode(path))))
