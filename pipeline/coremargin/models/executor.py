"""Where the rows of a source are read: the executor for them, and its summaries of all blocks in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, TypeVar

from coremargin.data.store import Store
from coremargin.data.view import root
from coremargin.engine.calls import map_blocks
from coremargin.engine.clusters.connect import connect, executor_at
from coremargin.engine.clusters.specs import Threads, as_client
from coremargin.errors import UsageError

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.clusters.specs import Cluster
    from coremargin.engine.protocols import Block, Executor

T = TypeVar("T")


def executor_of(rows: Source, cluster: Cluster) -> Executor:
    """The executor that reads these rows, a context manager: a store as ``cluster`` says, arrays by threads.

    cluster: a file of ``cluster/``, a scheduler's address, a Dask client, "embedded" or "threads"; None chooses by
    size. Raises UsageError for arrays with a cluster.
    """
    if isinstance(root(rows), Store):
        return executor_at(cluster, rows)
    if as_client(cluster) is not None or cluster not in (None, "threads"):
        raise UsageError("arrays are read in this process; ingest them into a store to use a cluster")
    return connect(Threads(), rows)


@contextmanager
def probe_in_order(rows: Source, probe: Callable[[Source, Block], T], cluster: Cluster) -> Iterator[Iterator[T]]:
    """What a probe finds in each block, in order; cluster: as of ``executor_of``, None: the threads of this process."""
    with (
        executor_of(rows, "threads" if cluster is None else cluster) as executor,
        closing(map_blocks(executor, rows, probe)) as summaries,
    ):
        yield summaries
