"""The verifier: what checks a certificate against the store, with code of its own. README.md says what is believed.

Importing this is cheap, so that ``coremargin.verify`` can be the function below although the room has the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from coremargin.verify.examine import OnProgress
    from coremargin.verify.fleet.outcome import FleetVerification
    from coremargin.verify.outcome import Verification

__all__ = ["verify"]


def verify(
    model_path: str | os.PathLike[str],
    store_path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> Verification | FleetVerification:
    """Check every claim of a model's certificate, or of all members of a fleet, by one scan of the store.

    on_progress(rows done, rows in all) is called after each chunk. Memory does not grow with the store.
    Raises ClaimRefuted that lists all false claims, DataError when model or store cannot be read or are damaged.
    """
    from coremargin.verify.examine import examine, refutation

    result = examine(model_path, store_path, threads=threads, on_progress=on_progress)
    if not result.ok:
        raise refutation(result)
    return result
