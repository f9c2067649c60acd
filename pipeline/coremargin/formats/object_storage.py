"""Objects below an address, read through obstore: ``s3://``, ``gs://``, ``az://`` and ``https://``.

obstore, as its CPU time per GB is a third of that of s3fs and a half of that of pyarrow, and one library has all four
services. It repeats requests that a server cannot answer now (5xx, connections that break). Errors of the service are
reported by their code alone: texts of libraries may contain addresses with signatures.
"""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self, TypeVar, cast
from urllib.parse import quote

from coremargin.errors import AccessDenied, DataError, RunError, StoreError, UsageError
from coremargin.formats.campaign import FILE as CAMPAIGN
from coremargin.formats.generation import FILE, LARGEST, Generation, is_of_generations, parse_generation
from coremargin.formats.open_folder import incomplete
from coremargin.formats.storage import MISSING

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from coremargin.formats.location import Location
    from coremargin.formats.storage import ReadableStorage

T = TypeVar("T")

#: Requests at a time for small objects; each takes the latency of the service, some 30 ms, and hardly any CPU.
_SMALL_REQUESTS = 48
_SMALL_BYTES = 4 << 20  # a larger object is not fetched before it is opened, where its size is checked first
_RETRIES = {"max_retries": 8, "retry_timeout": timedelta(seconds=90), "backoff": {"max_backoff": timedelta(seconds=5)}}
_CLIENT = {"connect_timeout": "10s", "read_timeout": "30s", "timeout": "10min", "pool_max_idle_per_host": "64"}
#: obstore asks for credentials again when those it has expire within five minutes: so each half minute.
_CREDENTIALS_LAST = timedelta(minutes=5, seconds=30)
_TRIES = 20  #: readings of a model that is replaced again and again
_CODE = re.compile(r"<Code>\s*(\w+)\s*</Code>|status code: (\d{3})")


class Fetched(NamedTuple):
    """Bytes of an object, its tag (ETag), and how many bytes the whole object has."""

    data: memoryview
    tag: str
    nbytes: int


class Level(NamedTuple):
    """What lies directly below a prefix: names of further prefixes; names and sizes of objects."""

    folders: list[str]
    objects: list[tuple[str, int]]


class ObjectReader:
    """Reads the objects below an address: of one generation, the one that is current when the first is read.

    Safe in many threads; travels to another process as its address and generation.
    """

    def __init__(self, address: Location) -> None:
        """Raises UsageError where obstore is not installed."""
        self.name = address
        self._store, self._credentials = _store_of(address)
        self._forget()
        if address.generation is not None:
            self._generation.append(address.generation)

    def _forget(self) -> None:
        self._preloaded: dict[str, Fetched | None] = {}
        self._generation: list[Generation | None] = []  # empty: not looked up yet
        self._resolving = threading.Lock()
        self.opened: dict[str, str] | None = None  #: tags of what was opened, where that is of interest

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.name)!r})"

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is type(self)
            and other.name == self.name
            and other.name.options == self.name.options
            and other._generation == self._generation
        )

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.of_generation, (self.name, self.generation)

    @classmethod
    def of_generation(cls, address: Location, generation: Generation | None) -> Self:
        """What reads this one, whichever is current; None: objects directly below the address."""
        found = cls(address)
        found._generation.append(generation)
        return found

    def reopened(self) -> Self:
        """The objects as they are now: another generation may be current."""
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__)
        found._forget()
        return found

    @property
    def generation(self) -> Generation | None:
        """The one whose objects are read; None: objects lie directly below the address."""
        if not self._generation:
            with self._resolving:
                if not self._generation:
                    self._generation.append(self.current_generation()[0])
        return self._generation[0]

    def current_generation(self) -> tuple[Generation | None, str | None]:
        """The one that ``current.json`` names now, and the tag of that; None where there is none. Raises DataError."""
        import obstore

        def get() -> tuple[bytes, str | None]:
            result = obstore.get(self._store, FILE)
            if int(result.meta["size"]) > LARGEST:
                raise DataError(f"{self.name}/{FILE}: expected at most {LARGEST:,} bytes; get an unaltered copy")
            return bytes(memoryview(cast("Any", result.bytes()))), result.meta["e_tag"]

        data, tag = b"", None
        try:
            for _ in range(_TRIES):  # what a network damages on its way is not damaged alike twice
                before, (data, tag) = data, self._call(get, FILE)
                with suppress(DataError):
                    return parse_generation(data, f"{self.name}/{FILE}"), tag
                if data == before:
                    break
        except FileNotFoundError:
            return None, None
        except AccessDenied as error:
            # without the right to list, what is not there is refused; a refusal of all objects is reported next
            if error.code in _REFUSED_OR_MISSING:
                return None, None
            raise
        return parse_generation(data, f"{self.name}/{FILE}"), tag

    def fetch(self, key: str, start: int = 0, stop: int | None = None, *, most: int | None = None) -> Fetched:
        """Bytes [start, stop) of an object, fewer where it ends before; all where ``stop`` is None.

        most: do not fetch more: of a longer object no bytes are returned, only how many there are. Raises OSError:
        FileNotFoundError where there is no such object, RunError where the service
        refuses or does not answer, StoreError where there is no such bucket.
        """
        import obstore

        path = self._object_path(key)

        def get() -> Fetched:
            options: Any = None if stop is None else {"range": (start, stop)}
            result = obstore.get(self._store, path, options=options)
            tag, nbytes = _tag_of(result.meta), int(result.meta["size"])
            if most is not None and nbytes > most:
                return Fetched(memoryview(b""), tag, nbytes)
            return Fetched(memoryview(cast("Any", result.bytes())), tag, nbytes)

        return self._call(get, key)

    def open(self, key: str) -> BinaryIO:
        """An object as it is now. Its bytes are fetched when they are read first, its size is known before."""
        found = self._preloaded.pop(key, None)
        if found is not None:
            self._note(key, found.tag)
            return io.BytesIO(found.data)
        import obstore

        path = self._object_path(key)
        result = self._call(lambda: obstore.get(self._store, path), key)
        tag = _tag_of(result.meta)
        self._note(key, tag)

        def content_bytes() -> Any:
            try:
                return self._call(result.bytes, key)
            except RunError:  # the answer was not read for long
                found = self.fetch(key)
                if found.tag != tag:
                    raise
                return found.data

        content = _Content(int(result.meta["size"]), content_bytes)
        return cast("BinaryIO", io.BufferedReader(content))

    def _note(self, key: str, tag: str) -> None:
        if self.opened is not None:
            self.opened[key] = tag

    def exists(self, key: str = "") -> bool:
        """Whether there is an object, or anything below such a prefix, as far as the server lists."""
        known = None if self.generation is None else self.generation.holds(key)
        if known is not None:
            return known
        if key:
            try:
                self.tag(key)
            except FileNotFoundError:
                pass
            else:
                return True
        return self.lists and next(iter(self.list_all(key)), None) is not None

    @property
    def lists(self) -> bool:
        """Whether the service can list objects: a web server cannot."""
        return not self.name.startswith("http")

    def list_level(self, prefix: str = "") -> Level:
        """What lies directly below a prefix."""
        import obstore

        self._need_lists()
        path = self._path(prefix).rstrip("/")
        found = self._call(lambda: obstore.list_with_delimiter(self._store, path or None), prefix)
        folders = [name.rstrip("/").rpartition("/")[2] for name in found["common_prefixes"]]
        objects = [(one["path"].rpartition("/")[2], int(one["size"])) for one in found["objects"]]
        if path:
            return Level(folders, objects)
        return Level(
            [name for name in folders if not is_of_generations(name)],
            [(name, nbytes) for name, nbytes in objects if not is_of_generations(name)],
        )

    def list_all(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Keys and sizes of all objects below a prefix."""
        import obstore

        self._need_lists()
        path, start = self._path(prefix).rstrip("/"), len(self._path(""))
        pages = self._call(lambda: iter(obstore.list(self._store, path or None)), prefix)
        while (page := self._call(lambda: next(pages, None), prefix)) is not None:
            for one in page:
                if path or not is_of_generations(str(one["path"])):
                    yield str(one["path"])[start:], int(one["size"])

    def _need_lists(self) -> None:
        if not self.lists:
            raise UsageError(f"{self.name}: a web server does not list what it has; use a copy on this machine")

    def tag(self, key: str) -> str:
        """The ETag of an object."""
        return self.head(key)[0]

    def head(self, key: str) -> tuple[str, int]:
        """The tag of an object and its size. Raises as ``fetch``."""
        import obstore

        path = self._object_path(key)
        meta = self._call(lambda: obstore.head(self._store, path), key)
        return _tag_of(meta), int(meta["size"])

    def preload(self, keys: Iterable[str]) -> None:
        """Fetch small objects, many at a time, each for the next ``open`` of it; there need not be such objects."""
        wanted = [key for key in dict.fromkeys(keys) if key not in self._preloaded]
        if not wanted:
            return
        with ThreadPoolExecutor(min(len(wanted), _SMALL_REQUESTS), thread_name_prefix="coremargin-metadata") as pool:
            for key, found in zip(wanted, pool.map(self._fetch_if_there, wanted), strict=True):
                if found is not None:
                    self._preloaded[key] = found

    def _fetch_if_there(self, key: str) -> Fetched | None:
        try:
            found = self.fetch(key, most=_SMALL_BYTES)
        except OSError:  # ``open`` reports it
            return None
        return found if len(found.data) == found.nbytes else None

    def _path(self, key: str) -> str:
        """The key below the address."""
        generation = self.generation
        return key if generation is None else generation.prefix + key

    def _object_path(self, key: str) -> str:
        """Raises FileNotFoundError: there is no such object in this generation."""
        if self.generation is not None and self.generation.holds(key) is False:
            raise FileNotFoundError(2, "no such object", self._place(key))
        return self._path(key)

    def _call(self, request: Callable[[], T], key: str) -> T:
        """Call obstore; its errors become ours, without the text of the library."""
        check_process()
        problem: Exception
        try:
            return request()
        except FileNotFoundError as error:
            problem = FileNotFoundError(2, "no such object", self._place(key))
            if _code(error) in _NO_BUCKET:
                problem = self._no_bucket()
        except _obstore_errors() as error:
            problem = self._refusal(error, key)
        raise problem  # here, as a context is pickled too, and the library's text may have signatures

    def _no_bucket(self) -> StoreError:
        return StoreError(f"{self.name}: there is no such bucket; correct the address or the endpoint")

    def address_of(self, key: str) -> str:
        """Where an object of this generation lies."""
        return f"{self.name}/{self._path(key)}"

    def _place(self, key: str) -> str:
        """The address of an object, for messages; key: below the address, or of the generation."""
        generation = self._generation[0] if self._generation and not is_of_generations(key) else None
        return f"{self.name}/{generation.prefix if generation else ''}{key}" if key else str(self.name)

    def _refusal(self, error: Exception, key: str) -> Exception:
        """What to raise instead of an error of obstore: RunError for all but what a damaged object causes."""
        import obstore.exceptions as refused

        place, code = self._place(key), _code(error)
        if isinstance(self._credentials, _AwsChain) and self._credentials.problem:
            return RunError(
                f"{self.name}: {self._credentials.problem}; set the environment variables of the service, a profile or "
                "a role, or --storage-option skip_signature=true for a public bucket"
            )
        if code in _NO_BUCKET:
            return self._no_bucket()
        if code in _REGION or _REDIRECTED.search(str(error)):
            return RunError(
                f"{self.name}: the bucket is in another region; give --storage-option region=NAME or AWS_REGION"
            )
        if isinstance(error, refused.UnauthenticatedError | refused.PermissionDeniedError) or code in _DENIED:
            refusal = AccessDenied(
                f"{place}: access denied ({code or 'permission'}), with {self._credentials.source}, or there is no "
                "such object and no right to list; give the right to read and list, use other credentials, or "
                "--storage-option skip_signature=true for a public bucket"
            )
            refusal.code = code
            return refusal
        if code in ("InvalidRange", "416"):
            return OSError(22, "it ends before these bytes", place)
        if "non-partial response" in str(error):
            return RunError(
                f"{place}: this server sends whole objects where parts of them were requested; use one that supports "
                "ranges (RFC 9110), or a copy on this machine"
            )
        reason = f"error {code}" if code else "no answer"
        return RunError(
            f"{place}: {reason} from the storage service, after {_RETRIES['max_retries']} tries; see whether it "
            "answers at this address and endpoint, then run again"
        )


def read_model_objects(address: ObjectReader, read: Callable[[ReadableStorage], T]) -> T:
    """``read`` of the objects of a model as they are at one moment, again if they were replaced meanwhile.

    Raises DataError: there are none, or one that ``read`` needs is missing.
    """
    for _ in range(_TRIES):
        found = address.reopened()
        generation = found.generation
        if generation is None or not generation.prefix:
            found.opened = {}
        try:
            result = read(found)
        except MISSING as error:
            if address.reopened().generation == generation:
                raise _no_model(found, error) from None
            continue
        except DataError:  # parts of two models
            if found.opened is None or _are_current(found, found.opened):
                raise
            continue
        if found.opened is None or _are_current(found, found.opened):
            return result
    raise DataError(f"{address.name}: the model was replaced again and again while it was read; read it again")


def _are_current(reader: ObjectReader, tags: dict[str, str]) -> bool:
    """Whether objects that lie directly below an address, where each is replaced by itself, are still those."""
    try:
        return reader.reopened().generation == reader.generation and all(
            reader.tag(key) == tag for key, tag in tags.items()
        )
    except FileNotFoundError:
        return False


def _no_model(found: ObjectReader, error: OSError) -> DataError:
    """What to raise where an object of a model is missing."""
    if found.lists and not found.exists():
        return DataError(
            f"{found.name}: expected a model, found nothing there; `coremargin train STORE --out {found.name}` makes "
            "one"
        )
    if found.exists(CAMPAIGN):
        return DataError(f"{found.name}: expected a model, found a campaign; give the address of its model")
    return incomplete(found.name, error)


def _tag_of(meta: Any) -> str:
    """The ETag of an object, of its metadata."""
    return meta["e_tag"] or f"{meta['last_modified']} {meta['size']}"


_process = 0  # in which obstore has its threads


def check_process() -> None:
    """Raises RunError in a process that was forked after obstore was used, where no request would ever end."""
    global _process  # noqa: PLW0603 - as obstore's threads, it belongs to the process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise RunError(
            "object storage cannot be read in a process that was forked from one that has read some: "
            "use multiprocessing's start method spawn or forkserver"
        )


_DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "Forbidden"}
_DENIED |= {"AllAccessDisabled", "AuthenticationFailed", "AuthorizationFailure", "401", "403"}
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_REFUSED_OR_MISSING = ("", "AccessDenied", "Forbidden", "403")
_REDIRECTED = re.compile("redirect without LOCATION|error following redirect")  # the text has names of objects, too
_REGION = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301")


def _obstore_errors() -> tuple[type[Exception], ...]:
    from obstore.exceptions import BaseError

    return BaseError, OSError, ValueError, TypeError


def _code(error: Exception) -> str:
    """The code of a service's answer, or the status of HTTP; "" if there was none."""
    found = _CODE.findall(str(error))
    return next((code for code, _ in found if code), next((status for _, status in found), ""))


class _Content(io.RawIOBase):
    """The bytes of an object, fetched at the first read."""

    def __init__(self, nbytes: int, fetch: Callable[[], Any]) -> None:
        self._nbytes, self._fetch, self._at = nbytes, fetch, 0
        self._data: memoryview | None = None
        self._lock = threading.Lock()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._nbytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        with self._lock:
            if self._data is None:
                self._data = memoryview(self._fetch())
        part = self._data[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


class _Chain:
    """Where credentials come from, in words: obstore finds those of Azure and Google itself."""

    source = "the credentials of this process"


class _Unsigned(_Chain):
    source = "no credentials (skip_signature)"


class _AwsChain(_Chain):
    """The chain of botocore: environment, profiles, SSO, web identity, containers, instances; it renews what expires.

    obstore's own lacks profiles, and waits for minutes where there are none.
    """

    def __init__(self) -> None:
        from botocore.session import Session

        self._session, self._found = Session(), cast("Any", None)
        self.problem = ""  #: why there are none
        self._lock = threading.Lock()

    @property
    def region(self) -> str | None:
        """That of the profile, if it has one; a profile that cannot be read is reported with the first request."""
        from botocore.exceptions import BotoCoreError

        with suppress(BotoCoreError):
            return cast("str | None", self._session.get_config_variable("region"))
        return None

    @property
    def source(self) -> str:  # type: ignore[override]
        return f"the credentials that botocore found ({getattr(self._found, 'method', 'none')})"

    def __call__(self) -> Any:
        """For obstore. Raises LookupError where there are none, or none that can be used."""
        from botocore.exceptions import BotoCoreError, ClientError

        with self._lock:
            keys, self.problem = None, ""
            try:
                self._found = self._found or self._session.get_credentials()
                keys = self._found and self._found.get_frozen_credentials()
            except (BotoCoreError, ClientError, OSError) as error:  # whose text may be that of a program
                self.problem = f"botocore cannot get credentials ({type(error).__name__})"
            if keys is None:
                self.problem = self.problem or "no credentials found"
                raise LookupError(self.problem)
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
            "expires_at": datetime.now(UTC) + _CREDENTIALS_LAST,
        }


def _store_of(address: Location) -> tuple[ObjectStore, _Chain]:
    """obstore's store of an address, and where its credentials come from."""
    try:
        from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store
    except ImportError as error:
        raise UsageError(f"{address}: this needs obstore; pip install 'coremargin[cloud]'") from error
    scheme, _, rest = address.partition("://")
    bucket, _, prefix = rest.partition("/")
    options = dict(address.options)
    endpoint = options.get("endpoint") or _endpoint(scheme)
    client: Any = {**_CLIENT, "allow_http": options.pop("allow_http", "") == "true" or endpoint.startswith("http://")}
    unsigned = options.get("skip_signature") == "true"
    config: Any = {name: value == "true" if value in ("true", "false") else value for name, value in options.items()}
    common: Any = {"client_options": client, "retry_config": _RETRIES}
    problem = f"{address}: this needs botocore; pip install 'coremargin[cloud]'"
    try:
        if scheme in ("http", "https"):
            client["allow_http"] = True
            return HTTPStore.from_url(quote(address, safe=":/%[]"), **common), _Unsigned()
        if scheme == "gs":
            return GCSStore(bucket, prefix=prefix or None, **config, **common), _Chain()
        if scheme != "s3":
            if scheme != "az":
                bucket, _, host = bucket.partition("@")
                config = {"account_name": host.split(".")[0], **config} if host else config
            return AzureStore(bucket, prefix=prefix or None, **config, **common), _Unsigned() if unsigned else _Chain()
        if unsigned:
            return S3Store(bucket, prefix=prefix or None, **config, **common), _Unsigned()
        chain = _AwsChain()
        if chain.region and "region" not in config:
            config["region"] = chain.region
        return S3Store(bucket, prefix=prefix or None, credential_provider=chain, **config, **common), chain
    except ImportError:
        pass
    except _obstore_errors():  # whose text may repeat what the environment has
        given = ", ".join(config) or "none"
        problem = f"{address}: the options or the environment of this service cannot be used: {given}"
    raise UsageError(problem)


def _endpoint(scheme: str) -> str:
    """The endpoint that the environment names."""
    aws = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    names = aws if scheme == "s3" else ("AZURE_STORAGE_ENDPOINT",)
    return next((os.environ[name] for name in names if os.environ.get(name)), "")
