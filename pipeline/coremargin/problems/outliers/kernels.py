"""The compiled kernels of the search: loaded before a job needs them; a job that is to end does not wait for that."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait

from coremargin.maths.outliers.explore import compile_kernels
from coremargin.maths.stopping import may_stop

LOOK_S = 0.1

_ready: list[bool] = []


def ready() -> bool:
    """Whether this process has them."""
    return bool(_ready)


def prepare() -> None:
    """Compile the kernels, or load what was compiled before; a job that is to end meanwhile does not wait for it."""
    if ready():
        return
    compiler = ThreadPoolExecutor(1, thread_name_prefix="coremargin-compile")
    compiled = compiler.submit(compile_kernels)
    compiler.shutdown(wait=False)
    while not wait([compiled], LOOK_S).done:
        may_stop()
    compiled.result()
    _ready.append(True)
