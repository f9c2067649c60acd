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
    def of_structure(cls, structure: Any) -> Named:
        """The word for a structure."""
        made = cls(function_name(structure))
        made.function = structure
        return made

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
    found = _find(word, where, "my_kernels:intersection")
    if not callable(found):
        raise UsageError(f"{where}: expected a function k(X, Z) -> values (n, m), found {word!r}, which is {found!r}")
    function: KernelFunction = found
    return function


def imported_structure(word: str, where: str = "--structure") -> Any:
    """The structure that a word names, as ``imported``; a class is called without arguments. Raises UsageError."""
    found = _find(word, where, "my_structures:Tree")
    return structure_object(found, where)


def structure_object(found: Any, where: str = "structure") -> Any:
    """A structure, made from its class if this is one. Raises UsageError for what is none."""
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise UsageError(f"{where}: {function_name(found)}() raised {type(error).__name__}: {error}") from error
    lacks = [name for name in ("size", "joint", "argmax", "loss") if not callable(getattr(found, name, None))]
    if lacks:
        raise UsageError(
            f"{where}: expected a class or an object with the methods size, joint, argmax and loss, {found!r} has no "
            f"{' and no '.join(lacks)}"
        )
    return found


def _find(word: str, where: str, example: str) -> Any:
    if isinstance(word, Named):
        return word.function
    module, _, path = word.partition(":")
    if not module or not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise UsageError(f"{where}: expected module:name, such as {example}; found {word!r}")
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
    return found


def source_digest(function: KernelFunction) -> str | None:
    """A digest of the text of a function; None where there is none, as of one that was compiled."""
    try:
        text = inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()
