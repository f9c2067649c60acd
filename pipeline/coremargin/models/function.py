"""User-defined kernels by name: a function is imported only if the user names it.

Names in the records of models, runs and checkpoints are never given to ``imported``: a record cannot run code.
"""

from __future__ import annotations

import hashlib
import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

from coremargin.engine.own_modules import importable_from_here
from coremargin.errors import UsageError
from coremargin.formats.function import function_name

if TYPE_CHECKING:
    from coremargin.maths.kernel.functions import KernelFunction


class Named(str):
    """The word for a function that was handed over as an object: its name, and the function itself."""

    __slots__ = ("function",)

    function: KernelFunction

    @classmethod
    def of(cls, function: Any) -> Named:
        """The word for this one. Raises UsageError for what cannot be called."""
        if not callable(function):
            raise UsageError(f"kernel: expected a function k(X, Z) -> values (n, m), found {function!r}")
        made = cls(function_name(function))
        made.function = function
        return made


def imported(word: str, where: str = "--kernel") -> KernelFunction:
    """The function that a word names: ``module:function``, or a path of attributes; modules of this folder are found.

    Raises UsageError where there is none.
    """
    if isinstance(word, Named):
        return word.function
    module, _, path = word.partition(":")
    if not module or not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise UsageError(f"{where}: expected module:function, such as my_kernels:intersection; found {word!r}")
    folder = importable_from_here()
    try:
        found: Any = import_module(module)
    except (Exception, SystemExit) as error:  # a script may end itself
        text = f"{type(error).__name__}: {error}"
        raise UsageError(f"{where}: {module} cannot be imported from {folder} ({text})") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{where}: {word!r} is not there: {module} has no {path}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{where}: expected a function k(X, Z) -> values (n, m), found {word!r}, which is {found!r}")
    function: KernelFunction = found
    return function


def source_digest(function: KernelFunction) -> str | None:
    """A digest of the text of a function; None where there is none, as of one that was compiled."""
    try:
        text = inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()
