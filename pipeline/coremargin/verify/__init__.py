"""The verifier: what checks a certificate against the store, with code of its own. README.md says what is believed.

Importing this is cheap, so that ``coremargin.verify`` can be the function below although the room has the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any

    from coremargin.formats.storage import ReadableStorage
    from coremargin.verify.examine import OnProgress
    from coremargin.verify.fleet.outcome import FleetVerification
    from coremargin.verify.outcome import Verification

__all__ = ["verify"]


def verify(
    model_path: str | os.PathLike[str] | ReadableStorage,
    store_path: str | os.PathLike[str] | ReadableStorage,
    *,
    kernel: Callable[..., Any] | None = None,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> Verification | FleetVerification:
    """Check every claim of a model's certificate, of all of a fleet, or of a campaign, by one scan of the store.

    Memory does not grow with the store. The code shares nothing with what trains.

    Parameters
    ----------
    model_path : path-like or storage
        Folder of the model, fleet or campaign, or what its objects are read from.
    store_path : path-like or storage
        The store that it was trained on: its folder, or what its objects are read from.
    kernel : callable, optional
        The function k(X, Z) that is the model's kernel, where it is one: the word of who verifies, and not the model's.
    threads : int, optional
        Threads that read and check; None: one for each core, up to 8.
    on_progress : callable, optional
        Called with the rows done and the rows in all after each chunk.

    Returns
    -------
    Verification or FleetVerification
        What was checked and found; every claim holds.

    Raises
    ------
    ClaimRefuted
        Lists all false claims.
    DataError
        Model or store cannot be read or are damaged.
    UsageError
        Fewer than one thread, or a function is missing that is the model's kernel.

    Examples
    --------
    >>> coremargin.verify("rows.model", "rows.zarr").ok  # doctest: +SKIP
    True
    """
    from coremargin.verify.examine import examine, refutation

    result = examine(model_path, store_path, kernel=kernel, threads=threads, on_progress=on_progress)
    if not result.ok:
        raise refutation(result)
    return result
