"""Where a store lies: a path on this machine, or an address such as ``s3://bucket/rows.zarr`` with its options.

Options have the names of the object_store crate, as in delta-rs, Lance and polars. Credentials are none of them: each
process finds its own (environment, profile, workload identity, instance role), so that none travels or is written down.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from urllib.parse import urlsplit

from coremargin.errors import UsageError
from coremargin.formats.local_path import local_path

if TYPE_CHECKING:
    from coremargin.formats.generation import Generation

T = TypeVar("T")
SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "https", "http")
#: pathlib leaves one slash of two.
_REMOTE = re.compile(rf"({'|'.join(SCHEMES)}):/{{1,2}}(.*)", re.DOTALL | re.IGNORECASE)
_SIGNED = re.compile(r"[?&](sig|se|sv|signature|AWSAccessKeyId|X-Amz-[a-z]+|X-Goog-[a-z]+)=", re.IGNORECASE)

#: Options, and what other projects call them (delta-rs, polars, Lance, s3fs).
OPTIONS: dict[str, tuple[str, ...]] = {
    "endpoint": ("endpoint_url", "aws_endpoint", "aws_endpoint_url", "azure_endpoint", "azure_storage_endpoint"),
    "region": ("aws_region", "region_name", "aws_default_region"),
    "skip_signature": ("aws_skip_signature", "azure_skip_signature", "google_skip_signature", "anonymous", "anon"),
    "request_payer": ("aws_request_payer", "requester_pays"),
    "allow_http": ("aws_allow_http", "azure_allow_http"),
    "virtual_hosted_style_request": ("aws_virtual_hosted_style_request",),
    "account_name": ("azure_storage_account_name", "azure_account_name"),
}
_FLAGS = ("skip_signature", "request_payer", "allow_http", "virtual_hosted_style_request")
_NAMES = {other: name for name, others in OPTIONS.items() for other in (name, *others)}
_SECRET = re.compile(r"key|secret|token|password|credential|sas|signature", re.IGNORECASE)
_TRUE, _FALSE = ("true", "1", "yes", "on", "requester"), ("false", "0", "no", "off")


class Location(str):  # noqa: SLOT000 - it has a dictionary, for its options
    """A local path, or an address with the options that open it, which travel with it to other processes."""

    options: dict[str, str]
    generation: Generation | None  #: the one that is meant, whichever is current; None: the current one

    def __new__(cls, text: str, options: Mapping[str, str] | None = None, generation: Generation | None = None) -> Self:
        """options: as ``storage_options`` returns them."""
        found = super().__new__(cls, text)
        found.options, found.generation = dict(options or {}), generation
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.options, self.generation)


def is_remote(given: object) -> bool:
    """Whether this is an address of an object storage or a web server, also where pathlib took one of its slashes."""
    return isinstance(given, str | os.PathLike) and _REMOTE.match(os.fsdecode(given)) is not None


def location(given: str | bytes | os.PathLike[str], options: Mapping[str, str] | None = None) -> Location:
    """The location that is meant; options: as people give them; of an address that has some, further ones.

    Raises UsageError for what ``local_path`` refuses, an address with credentials or a query, and unknown options.
    """
    found = _REMOTE.match(os.fsdecode(given))
    if found is None:
        path = os.fspath(local_path(given))
        if options:
            raise UsageError(f"storage options are for addresses such as s3://bucket/rows.zarr; {path} is a path")
        return Location(path)
    scheme, rest = found[1].lower(), found[2].rstrip("/")
    web, host = scheme in ("https", "http"), rest.split("/")[0]
    if "@" in host and (":" in host or not scheme.startswith("abfs")):  # nothing of it is repeated
        raise UsageError(
            f"{scheme}://: expected an address without user and password; set the environment variables of the "
            "service, a profile or a role instead"
        )
    if _SIGNED.search(rest) or (web and ("?" in rest or "#" in rest)):
        raise UsageError(
            f"{scheme}://{host}: expected an address without a query or a signature: objects lie below it; set the "
            "environment variables of the service, a profile or a role instead"
        )
    try:
        usable = "\0" not in rest and bool(rest.encode())
    except UnicodeEncodeError:
        usable = False
    if not usable or any(part in ("", ".", "..") for part in rest.split("/")):
        shown = f"{scheme}://" if "@" in rest else f"{scheme}://{rest}".encode(errors="replace").decode()
        raise UsageError(
            f"{shown}: expected {scheme}://BUCKET/NAME: names between single slashes, of valid text, none of them "
            "empty, . or .."
        )
    kept, generation = (given.options, given.generation) if isinstance(given, Location) else ({}, None)
    return Location(f"{scheme}://{rest}", kept | storage_options(options or {}), generation)


def with_storage_options(options: Mapping[str, str] | None, *given: T) -> tuple[T | Location, ...]:
    """What is given, addresses with these options; anything but a path is returned unchanged.

    Raises UsageError: none of them is an address; or as ``location``.
    """
    if options and not any(is_remote(one) for one in given):
        path = next((os.fsdecode(one) for one in given if isinstance(one, str | os.PathLike)), "")
        where = f"{path} is a path" if path else "there is none"
        raise UsageError(f"storage options are for addresses such as s3://bucket/rows.zarr; {where}")
    return tuple(location(cast("str", one), options) if is_remote(one) else one for one in given)


def last_name(place: str | os.PathLike[str]) -> str:
    """The last name of a path or an address."""
    return os.fspath(place).rstrip("/").rpartition("/")[2]


def storage_options(given: Mapping[str, object]) -> dict[str, str]:
    """Options by their names here, of others' too; flags as "true" or "false". Raises UsageError."""
    found = dict[str, str]()
    for key, value in given.items():
        name = _NAMES.get(str(key).lower())
        if name is None:
            raise UsageError(_unknown(str(key)))
        if value is None:
            raise UsageError(f"storage option {name}: expected a value, got None; leave the option out")
        text = str(value)
        if name in _FLAGS:
            if text.lower() not in (*_TRUE, *_FALSE):
                raise UsageError(f"storage option {name}: expected true or false, got {text!r}")
            text = "true" if text.lower() in _TRUE else "false"
        if name == "endpoint":
            try:
                address = urlsplit(text)
                usable = address.scheme in ("http", "https") and address.hostname and not address.query
                usable = usable and "@" not in address.netloc and address.port != 0
            except ValueError:  # of brackets, or of the port
                usable = False
            if not usable:
                raise UsageError(
                    "storage option endpoint: expected http:// or https:// and a host, without user and query"
                )
        if found.setdefault(name, text) != text:
            raise UsageError(f"storage option {name}: expected one value, got two, by two of its names")
    return found


def storage_words(*places: str | os.PathLike[str] | None) -> list[str]:
    """The options of locations on a command line, where each is for all addresses: those that all of them share.

    A command cannot give two addresses different options: those have to come from its environment or a profile.
    """
    options = [place.options for place in places if isinstance(place, Location) and is_remote(place)]
    shared = [item for item in options[0].items() if all(item in other.items() for other in options)] if options else []
    return [word for name, value in shared for word in ("--storage-option", f"{name}={value}")]


def parse_storage_options(words: Iterable[str]) -> dict[str, str]:
    """Options of a command line, KEY=VALUE each. Raises UsageError."""
    found = dict[str, object]()
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError("storage option: expected KEY=VALUE, such as region=eu-central-1")
        found[key.strip()] = value.strip()
    return storage_options(found)


def _unknown(key: str) -> str:
    known = ", ".join(OPTIONS)
    if _SECRET.search(key):
        return (
            f"storage option {key}: credentials are no options, as options are recorded; set the environment variables "
            f"of the service, a profile or a role on each machine. Known options: {known}"
        )
    return f"storage option {key}: not known; known options: {known}"
