"""Every error that coremargin raises on purpose.

::

    CoremarginError
    |-- UsageError          exit 2   a wrong option, value or call
    |   `-- SpecError       exit 2   a job or cluster file that cannot be used
    |-- DataError           exit 3   something is wrong with the rows or their store
    |   |-- StoreError      exit 3   not a store, a newer format, a store that changed
    |   |-- DamagedChunk    exit 3   a chunk is missing, truncated or altered
    |   |-- BadRow          exit 3   NaN, infinity, a ragged or unreadable row
    |   `-- LabelError      exit 3   one class only, too many, missing labels
    |-- NotCertified        exit 4   the run ended without the proof that was asked for
    |   `-- ClaimRefuted    exit 4   `verify` found a claim of the certificate to be false
    `-- RunError            exit 5   the machinery failed, the data did not
        |-- BlockFailed     exit 5   a block of chunks failed repeatedly
        |-- OutputError     exit 5   the output cannot be written
        |-- CheckpointError exit 5   a checkpoint does not belong to this job
        |-- Busy            exit 5   another job holds the output
        `-- Interrupted     exit 130 Ctrl-C or SIGTERM; what was done is kept

Messages name the place, what was expected, what was found and what to do.
"""

from __future__ import annotations


class CoremarginError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is what the command returns."""

    exit_code = 5


class UsageError(CoremarginError, ValueError):
    """A wrong option, value or call."""

    exit_code = 2


class SpecError(UsageError):
    """A job or cluster file that cannot be used as it is."""


class DataError(CoremarginError, ValueError):
    """Something is wrong with the rows or with the store that holds them."""

    exit_code = 3


class StoreError(DataError):
    """Not a store, a store of a newer format, or a store that changed under the job."""


class DamagedChunk(DataError):
    """A chunk is missing, truncated or altered."""


class BadRow(DataError):
    """A row that cannot be used: NaN, infinity, ragged, unreadable."""


class LabelError(DataError):
    """One class only, more classes than the problem takes, labels missing."""


class NotCertified(CoremarginError):
    """The run ended without the proof that was asked for."""

    exit_code = 4


class ClaimRefuted(NotCertified):
    """``verify`` found a claim of the certificate to be false."""


class RunError(CoremarginError):
    """The machinery failed; the data did not."""


class BlockFailed(RunError):
    """A block of chunks failed repeatedly."""


class OutputError(RunError):
    """The output cannot be written."""


class CheckpointError(RunError):
    """A checkpoint does not belong to this job."""


class Busy(RunError):
    """Another job holds the output."""


class Interrupted(RunError):
    """Ctrl-C or SIGTERM ended the run; what was done is kept and can be resumed."""

    exit_code = 130
