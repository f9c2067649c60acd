"""Every error that coremargin raises on purpose.

::

    CoremarginError
    |-- UsageError          exit 2   a wrong option, value or call, or an existing output
    |   `-- SpecError       exit 2   a job or cluster file that cannot be used
    |-- DataError           exit 3   something is wrong with the rows or their store
    |   |-- StoreError      exit 3   not a store, a newer format, a store that changed
    |   |-- DamagedChunk    exit 3   a chunk is missing, truncated or altered
    |   |-- BadRow          exit 3   NaN, infinity, a ragged or unreadable row
    |   |-- NoRows          exit 3   a source without rows
    |   |-- ObjectChanged   exit 3   an object of a bucket was replaced or removed while it was read
    |   |-- LabelError      exit 3   one class only, too many, missing labels
    |   `-- ColumnsUnclear  exit 3   options for columns are missing
    |-- NotCertified        exit 4   the run ended without the required proof
    |   `-- ClaimRefuted    exit 4   `verify` rejected a claim of the certificate
    |-- GateRefused         exit 10  a gate refused the new version of a model; the old one stays
    |-- FilesQuarantined    exit 11  a scheduled run has finished, but could not ingest some files
    |-- ExpiryRefused       exit 12  rows were not expired, since the clock is in doubt
    `-- RunError            exit 5   the machinery failed, the data did not
        |-- BlockFailed     exit 5   a block of chunks failed repeatedly
        |-- AccessDenied    exit 5   a service refuses, or has no such object and gives no right to list
        |-- OutputError     exit 5   the output cannot be written
        |   `-- NoAnswer    exit 5   whether an object was written is not known
        |-- CheckpointError exit 5   a checkpoint does not belong to this job
        |-- Busy            exit 5   another job holds the output
        |   |-- ChangedMeanwhile exit 5  another process has changed a registry since it was read
        |   `-- Running     exit 75  another run of the same job is active; try again later
        |-- MachineLimit    exit 5   a limit of open files, memory, threads or file size
        `-- Interrupted     exit 130 Ctrl-C, SIGTERM or SIGHUP; the work so far is saved

Messages name the place, what was expected, what was found and what to do.

Code that turns an OSError into another error calls ``raise_if_limit`` first: a file that cannot be opened because too
many are open is not damaged.
"""

from __future__ import annotations

import errno
import resource


class CoremarginError(Exception):
    """Base of all errors raised on purpose.

    Attributes
    ----------
    exit_code : int
        What the command returns.
    """

    exit_code = 5


class UsageError(CoremarginError, ValueError):
    """A wrong option, value or call, or an existing output."""

    exit_code = 2


class SpecError(UsageError):
    """A job or cluster file that cannot be used."""


class DataError(CoremarginError, ValueError):
    """Something is wrong with the rows or with the store that holds them."""

    exit_code = 3


class StoreError(DataError):
    """Not a store, a store of a newer format, or a store that changed under the job."""


class ObjectChanged(DataError):
    """An object of a bucket was replaced or removed while it was read."""


class DamagedChunk(DataError):
    """A chunk is missing, truncated or altered."""


class BadRow(DataError):
    """A row that cannot be used: NaN, infinity, ragged, unreadable."""


class NoRows(DataError):
    """A valid source without rows."""


class DataWarning(UserWarning):
    """The rows may not be what was intended: a column is a copy of the label, for instance."""


class ColumnsUnclear(DataError):
    """Options for columns are missing. options: of a command line, which would be sufficient."""

    def __init__(self, message: str, options: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.options = options


class LabelError(DataError):
    """One class only, more classes than the problem takes, labels missing."""


class NotCertified(CoremarginError):
    """The run ended without the required proof."""

    exit_code = 4


class ClaimRefuted(NotCertified):
    """``verify`` rejected a claim of the certificate."""


class GateRefused(CoremarginError):
    """A gate refused the new version of a model; the old one stays in use."""

    exit_code = 10


class FilesQuarantined(CoremarginError):
    """A scheduled run has finished, but some files could not be ingested and are in quarantine."""

    exit_code = 11


class ExpiryRefused(CoremarginError):
    """Rows were not expired: the clock contradicts the times of the commits."""

    exit_code = 12


class RunError(CoremarginError):
    """The machinery failed; the data did not."""


class BlockFailed(RunError):
    """A block of chunks failed repeatedly."""


class OutputError(RunError):
    """The output cannot be written."""


class NoAnswer(OutputError):
    """Whether an object was written is not known."""


class AccessDenied(RunError):
    """A service refuses, or there is no such object and no right to list, which it does not tell apart.

    Attributes
    ----------
    code : str
        Of the service.
    """

    code = ""


class CheckpointError(RunError):
    """A checkpoint does not belong to this job."""


class Busy(RunError):
    """Another job holds the output."""


class ChangedMeanwhile(Busy):
    """Another process has changed a registry since it was read, and nothing was changed."""


class Running(Busy):
    """Another run of the same job is active; exit code 75 means "try again later" (EX_TEMPFAIL)."""

    exit_code = 75


class MachineLimit(RunError):
    """A limit of this process or of the machine; the data are intact."""


class Interrupted(RunError):
    """A signal ended the run; the work so far is saved and can be resumed."""

    exit_code = 130


def raise_if_limit(error: BaseException, place: object = "") -> None:
    """Raise MachineLimit if ``error``, or one of its causes, is about a limit; place: for the message."""
    limit = machine_limit(error, place)
    if limit is not None:
        raise limit from error


def machine_limit(error: BaseException, place: object = "") -> MachineLimit | None:
    """The limit that ``error`` or one of its causes is about, or None.

    A MemoryError below a CoremarginError does not count: it may be due to a file that declares too large arrays.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, MachineLimit):
            return cause
        if (text := _describe_limit(cause)) is not None:
            return MachineLimit(f"{place}: {text}" if str(place) else text)
        ours = isinstance(cause, CoremarginError)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
        if ours and isinstance(cause, MemoryError):
            return None
    return None


def _describe_limit(error: BaseException) -> str | None:
    """Python and the dynamic loader have classes for some limits only; the others are recognised by their message."""
    number, text = getattr(error, "errno", None), str(error)
    if isinstance(error, MemoryError) or number == errno.ENOMEM or "failed to map segment" in text:
        return _describe_memory_limit()
    if number == errno.EMFILE or (isinstance(error, ImportError) and "Too many open files" in text):
        most = _soft_limit(resource.RLIMIT_NOFILE)
        return f"this process may have {most} files open (ulimit -n); {_advise_on_open_files()}"
    if number == errno.ENFILE:
        return "all files that this machine may have open are open (fs.file-max); end other programs, then run again"
    if isinstance(error, BlockingIOError) or (isinstance(error, RuntimeError) and "can't start new thread" in text):
        return (
            f"no more threads or processes can be started: this user may have {_soft_limit(resource.RLIMIT_NPROC)} "
            f"(ulimit -u), and each needs address space (ulimit -v); use fewer workers and threads, or raise the limit"
        )
    if number == errno.EFBIG and resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return (
            f"this process may write files of {_soft_limit(resource.RLIMIT_FSIZE)} bytes (ulimit -f); raise the limit"
        )
    return None


def _soft_limit(kind: int) -> str:
    """The soft limit."""
    soft, _ = resource.getrlimit(kind)
    return "any number of" if soft == resource.RLIM_INFINITY else f"{soft:,}"


def _advise_on_open_files() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > soft:
        most = 65_536 if hard == resource.RLIM_INFINITY else hard
        return f"allow more with `ulimit -n {min(most, max(1024, 4 * soft))}`, then run again"
    return "more needs the administrator of this machine; use fewer workers and threads"


def _describe_memory_limit() -> str:
    for kind, name in ((resource.RLIMIT_AS, "ulimit -v"), (resource.RLIMIT_DATA, "ulimit -d")):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            return (
                f"out of memory: this process may use {soft >> 20:,} MiB of address space ({name}); raise the limit, "
                f"or use fewer threads and less --memory"
            )
    return "out of memory: the machine has no more; use fewer workers and threads, less --memory, or a larger machine"
