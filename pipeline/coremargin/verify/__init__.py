"""The verifier checks certificates against the store, with code of its own. README.md lists what it trusts.

Importing this is cheap, so that ``coremargin.verify`` can be the function below although the package has the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from typing import Any

    from coremargin.formats.storage import ReadableStorage
    from coremargin.verify.examine import OnProgress
    from coremargin.verify.outcome import FleetVerification, Verification

__all__ = ["verify"]


def verify(  # noqa: PLR0913 - a model, its store, and options
    model_path: str | os.PathLike[str] | ReadableStorage,
    store_path: str | os.PathLike[str] | ReadableStorage,
    *,
    kernel: Callable[..., Any] | None = None,
    structure: Any = None,
    threads: int | None = None,
    sha256: bool = False,
    on_progress: OnProgress | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Verification | FleetVerification:
    """Check every claim of a model's certificate, of all of a fleet, or of a campaign, by one scan of the store.

    Memory does not grow with the store. No code is shared with the trainer.

    Parameters
    ----------
    model_path : path-like or storage
        Folder of the model, fleet or campaign, address of a model or fleet, or what its objects are read from.
    store_path : path-like or storage
        The store that it was trained on: its folder or address, or what its objects are read from.
    kernel : callable, optional
        The function k(X, Z) that is the model's kernel, if that is a function. The model only names it.
    structure : object, optional
        The structure of a model that was trained with one of yours. The model only names it.
    threads : int, optional
        Threads that read and check; default: one per core, at most 8.
    sha256 : bool, default False
        Whether to compute the SHA-256 of all chunks (about a second per GB and core). Without, their CRC-32C are
        computed, and the SHA-256 that the store has recorded is compared with the model's: that tells damage and other
        rows, but not chunks that were forged to have the same CRC-32C.
    on_progress : callable, optional
        Called after each chunk with the number of rows done and of all rows.
    storage_options : mapping, optional
        Options of addresses in object storage, as for ``Store.open``.

    Returns
    -------
    Verification or FleetVerification
        The checks and the bounds found; every claim holds.

    Raises
    ------
    ClaimRefuted
        Lists all false claims.
    DataError
        Model or store cannot be read or are damaged.
    UsageError
        Fewer than one thread, the model's kernel is a function and ``kernel`` is missing, or ``sha256`` is True and
        neither model nor store has any.

    Examples
    --------
    >>> coremargin.verify("rows.model", "rows.zarr").ok  # doctest: +SKIP
    True
    """
    from coremargin.formats.location import with_storage_options
    from coremargin.verify.examine import examine, refutation

    if storage_options:
        model_path, store_path = with_storage_options(storage_options, model_path, store_path)
    result = examine(
        model_path,
        store_path,
        kernel=kernel,
        structure=structure,
        threads=threads,
        sha256=sha256,
        on_progress=on_progress,
    )
    if not result.ok:
        raise refutation(result)
    return result
