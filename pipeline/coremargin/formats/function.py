"""A function as a kernel, and a structure of the user, as jobs and records speak of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coremargin.errors import UsageError

CALLABLE = "callable"  #: the name of all kernels that are functions
#: What values of a function may be off by: no less than its sums may, and no more than leaves something to prove.
LEAST_ERROR, MOST_ERROR = 1e-13, 1e-3
MOST_NAME = 200  #: characters of a function's name


def function_name(function: Any) -> str:
    """What records and messages call a function: module:qualname, as it is asked for where it can be imported."""
    its = function if hasattr(function, "__qualname__") else type(function)
    return f"{its.__module__}:{its.__qualname__}"[:MOST_NAME]


def missing_function(name: str) -> str:
    """What to do about a model whose function was not given."""
    return (
        f"the kernel of this model is a function, {name!r} where it was trained, and no part of the model: if you "
        f"trust yours, say --kernel MODULE:FUNCTION; from Python coremargin.load(path, kernel=function)"
    )


def refuse_function(parameters: Mapping[str, Any], what: str) -> None:
    """Raises UsageError for the parameters of a model with the user's kernel or structure, for what cannot hold one."""
    if parameters.get("structure") == CALLABLE:
        raise UsageError(
            f"the structure of this model is your own Python code, and {what} cannot hold it; `predict` uses the "
            "model, and from Python coremargin.load(path, structure=Name)"
        )
    if parameters.get("kernel") == CALLABLE:
        raise UsageError(
            f"the kernel of this model is a Python function, and {what} cannot hold one; from Python "
            f"coremargin.load(path, kernel=function) decides with it, and its to_sklearn() gives an SVC that has it"
        )
