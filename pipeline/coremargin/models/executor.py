"""Where the rows of a source are read: the executor for them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coremargin.data.store import Store
from coremargin.data.view import root
from coremargin.engine.clusters.connect import connect
from coremargin.engine.clusters.specs import Threads, load_cluster
from coremargin.errors import UsageError

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Executor


def executor_of(rows: Source, cluster: str | os.PathLike[str] | None) -> Executor:
    """The executor that reads these rows, a context manager: a store as ``cluster`` says, arrays by threads.

    cluster: a file of ``cluster/``, a scheduler's address, "embedded" or "threads"; None chooses by size. Raises
    UsageError for arrays with a cluster.
    """
    if isinstance(root(rows), Store):
        return connect(load_cluster(cluster), rows)
    if cluster not in (None, "threads"):
        raise UsageError("arrays are read in this process; ingest them into a store to use a cluster")
    return connect(Threads(), rows)
