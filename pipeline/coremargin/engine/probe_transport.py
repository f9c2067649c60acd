"""How probes travel to workers: small ones inside each task, large arrays once per worker.

``distributed`` would send the arguments of every task again; a keyword above 100 kB is even turned into a task of its
own whose key may clash (Client.map). So arrays above ``LARGE_BYTES`` are taken out of the pickled probe, and put back
where it is unpickled.

Each such array is the result of a task of its own, on which the blocks depend. Scattered data dies with the workers
that hold it, and scattering fails in many ways if a worker dies meanwhile. The argument of a task stays with the
scheduler: when the last worker that holds its result dies, the task runs again elsewhere, and a worker that lacks the
array gets it from one that has it.
"""

from __future__ import annotations

import io
import pickle
import uuid
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import cloudpickle
import dask
import numpy as np
from distributed import get_worker

from coremargin.blas import one_blas_thread
from coremargin.data.maps import budget
from coremargin.engine.own_modules import own_modules
from coremargin.engine.read_ahead import next_blocks
from coremargin.engine.task import answer, open_handle, pin_blas_forever

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from distributed import Client, Future

    from coremargin.engine.protocols import Block, BlockResult

#: A task of this size costs the scheduler no more than an empty one.
LARGE_BYTES = 64 * 2**10
#: How BLAS stays on one thread: for the rest of a process that has only our workers, while a block runs in a process of
#: others, or not at all, as the driver does it for its own threads.
BlasPin: TypeAlias = Literal["process", "block", "driver"]
#: Beginning of the keys of tasks that return a large array.
ARRAY_KEY = "probe-array-"
#: One part in so many of a worker's memory limit may be mapped.
_MAPPED_SHARE = 4
#: Priority above waiting blocks, which depend on the arrays.
_FIRST = 10


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles by reference, objects of a user's script by value, and takes large arrays out."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.large: dict[int, np.ndarray] = {}

    def persistent_id(self, value: Any) -> int | None:
        if type(value) is np.ndarray and value.nbytes > LARGE_BYTES and value.dtype != np.dtype(object):
            self.large[id(value)] = value
            return id(value)
        return None


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, large: Mapping[int, np.ndarray]) -> None:
        super().__init__(file)
        self._large = large

    def persistent_load(self, name: int) -> np.ndarray:
        return self._large[name]


def pack(value: Any) -> tuple[bytes, dict[int, np.ndarray]]:
    """``value`` as bytes without its large arrays, and these by id, which is valid as long as they live."""
    for module in own_modules():  # of the working folder, which workers may not have
        cloudpickle.register_pickle_by_value(module)
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(value)
    return file.getvalue(), packer.large


def unpack(text: bytes, large: Mapping[int, np.ndarray]) -> Any:
    """Inverse of ``pack``."""
    return _Unpacker(io.BytesIO(text), large).load()


def return_array(array: np.ndarray) -> np.ndarray:
    """The task that returns a large array."""
    return array


def run_packed(
    handle: bytes, probe: bytes, large: dict[int, Any], block: Block, pin: BlasPin, following: Sequence[Block] | None
) -> BlockResult:
    """The task: unpack, probe the block, and meanwhile fetch those that this worker is to probe next.

    following: these; None where chunks are not fetched.
    """
    if pin == "process":
        pin_blas_forever()
    elif pin == "block":
        _limit_maps()
    source = open_handle(unpack(handle, large))
    question = unpack(probe, large)
    with one_blas_thread() if pin == "block" else nullcontext():  # after both: they may load further libraries
        if following is None:
            return answer(source, question, block)
        fetching = next_blocks.take(source, block)
        next_blocks.begin(source, following)
        return answer(source, question, block, fetching)


@cache
def _limit_maps() -> None:
    """Keep few mapped pages in a worker with a memory limit: Dask counts them, and pauses a worker at 80 % of it."""
    limit = getattr(getattr(get_worker(), "memory_manager", None), "memory_limit", None)
    if limit:
        budget.most_bytes = limit // _MAPPED_SHARE


class Transport:
    """Packs the probes of one scan; each large array is submitted to the scheduler once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # the array is stored with its future: while it lives, no other array can have the same id
        self._sent: dict[int, tuple[np.ndarray, Future]] = {}

    def pack(self, value: Any) -> tuple[bytes, dict[int, Future]]:
        """``value`` as bytes, and futures of the large arrays in it."""
        text, large = pack(value)
        for name, array in large.items():
            if name not in self._sent:
                self._sent[name] = (array, self._send(array))
        return text, {name: self._sent[name][1] for name in large}

    def _send(self, array: np.ndarray) -> Future:
        # Dask would warn of large arguments, and advise to scatter them
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": 1 << 60}):
            return self._client.submit(
                return_array, array, key=f"{ARRAY_KEY}{uuid.uuid4().hex}", pure=False, priority=_FIRST
            )

    def forget_all(self) -> list[Future]:
        """The arrays that were submitted, which are no longer needed."""
        sent, self._sent = self._sent, {}
        return [future for _, future in sent.values()]

    def forget(self, keys: Collection[str]) -> None:
        """Submit these arrays again when they are needed: they did not arrive."""
        self._sent = {name: sent for name, sent in self._sent.items() if sent[1].key not in keys}
