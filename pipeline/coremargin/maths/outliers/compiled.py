"""The kernels of the outlier search, compiled with numba.

The functions of MODULES are written once, in the subset of Python and NumPy that numba compiles. Short searches run
them interpreted; long ones run them compiled, ten times faster and without the interpreter's lock. numba caches
compiled code on disk; the first long search on a machine waits about half a minute for the compiler.

Compiled linear algebra uses the loops of loops.py, so the last bits of a compiled search may differ from those of an
interpreted one. Which of the two runs depends on the state of a search, never on a clock.
"""

from __future__ import annotations

import dis
import hashlib
import threading
import types
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

from coremargin.maths import loops, nearest
from coremargin.maths.jit import OPTIONS, jit
from coremargin.maths.outliers import tree

#: The modules whose functions are compiled, and functions there that are not.
MODULES = (nearest, tree)
PLAIN = {"face_of", "nearest_point"}
#: Functions that the interpreter calls.
ENTRIES = {"combine", "explore_nodes", "walk"}

Kernel = Callable[..., Any]

_lock = threading.Lock()


def kernel(name: str, *, compiled: bool) -> Kernel:
    """The function with this name, compiled or interpreted."""
    with _lock:  # concurrent threads would otherwise compile everything twice
        found: Kernel = getattr(kernels() if compiled else _PLAIN, name)
    return found


@cache
def kernels() -> types.SimpleNamespace:
    """The compiled functions, by name; each is compiled, or loaded from the cache, on its first call."""
    found: dict[str, Any] = {}
    sources = {**_SOURCES, **_own(loops)}
    uses = Counter(
        step.argval
        for source in sources.values()
        for step in dis.get_instructions(source)
        if step.opname == "LOAD_GLOBAL"
    )
    for name, source in sources.items():
        # A copy, whose calls go to compiled functions. numba detects changes in a function's own file only, so the
        # name, which is part of the cache key, carries a digest of all functions.
        copy = types.FunctionType(source.__code__, dict(source.__globals__), f"{name}_{digest()}", source.__defaults__)
        copy.__kwdefaults__, copy.__qualname__ = source.__kwdefaults__, copy.__name__
        # numba optimises a function together with all that it calls, again at each level of calls: what is called from
        # one place becomes part of its caller.
        found[name] = jit(copy, inline=uses[name] == 1 and name not in ENTRIES)
    for each in found.values():
        each.py_func.__globals__.update(found)
    return types.SimpleNamespace(**found)


def cache_folder() -> str | None:
    """The folder of numba's cache; None when numba may not write."""
    stats = kernels().explore_nodes.stats
    return str(stats.cache_path) if stats.cache_path else None


@cache
def digest() -> str:
    """A digest of all compiled functions as this process has loaded them, whatever their files contain now."""
    import numba

    functions = [code_facts(source.__code__) for _, source in sorted({**_SOURCES, **_own(loops)}.items())]
    constants = [
        sorted((name, repr(value)) for name, value in vars(module).items() if isinstance(value, int | float | tuple))
        for module in (*MODULES, loops)
    ]
    return hashlib.sha256(repr((numba.__version__, OPTIONS, functions, constants)).encode()).hexdigest()[:8]


def code_facts(code: types.CodeType) -> tuple[Any, ...]:
    """What a function's code does, without file and line."""
    constants = [code_facts(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, constants


def _own(module: types.ModuleType) -> dict[str, Any]:
    """The functions that a module defines, by name."""
    functions = ((name, value) for name, value in vars(module).items() if isinstance(value, types.FunctionType))
    return {name: value for name, value in functions if value.__module__ == module.__name__ and name not in PLAIN}


_SOURCES = {name: value for module in MODULES for name, value in _own(module).items()}
_PLAIN = types.SimpleNamespace(**_SOURCES)
