"""coremargin: maximum-margin training with certificates, for data that does not fit in memory.

::

    import coremargin

    coremargin.ingest("rows.csv", "rows.zarr", label="class")
    model = coremargin.train("rows.zarr", epsilon=1e-3)
    model.certificate                # proven lower and upper bound of the largest margin
    model.decision_function(X)
    model.save("rows.model")         # coremargin.load("rows.model") loads it

The command line has the same functions: ``coremargin --help``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from inspect import isfunction
from typing import TYPE_CHECKING, Any

from coremargin.verify import verify
from coremargin.version import version

if TYPE_CHECKING:
    from coremargin.data.amend import remove_rows, set_weights, write_labels
    from coremargin.data.compact import compact
    from coremargin.data.expire import expire
    from coremargin.data.ingest import ingest
    from coremargin.data.store import Store
    from coremargin.data.vacuum import vacuum
    from coremargin.errors import CoremarginError
    from coremargin.learn.api import retrain, train
    from coremargin.models.fleet import FleetModel
    from coremargin.models.model import Model
    from coremargin.models.registry import load

    __version__: str

_MODULES = {
    "CoremarginError": "errors",
    "FleetModel": "models.fleet",
    "Model": "models.model",
    "Store": "data.store",
    "compact": "data.compact",
    "expire": "data.expire",
    "ingest": "data.ingest",
    "load": "models.registry",
    "remove_rows": "data.amend",
    "retrain": "learn.api",
    "set_weights": "data.amend",
    "train": "learn.api",
    "vacuum": "data.vacuum",
    "write_labels": "data.amend",
}

__all__ = [
    "CoremarginError",
    "FleetModel",
    "Model",
    "Store",
    "__version__",
    "compact",
    "expire",
    "ingest",
    "load",
    "remove_rows",
    "retrain",
    "set_weights",
    "train",
    "vacuum",
    "verify",
    "write_labels",
]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that importing the package is fast."""
    if name in _MODULES:
        return _load_public_name(name)
    if name == "__version__":
        return version()
    raise AttributeError(f"module 'coremargin' has no attribute {name!r}")


@cache
def _load_public_name(name: str) -> Any:
    """A public name; errors of its functions name arguments instead of command-line options."""
    found = getattr(import_module(f"coremargin.{_MODULES[name]}"), name)
    return import_module("coremargin.argument_names").named_arguments()(found) if isfunction(found) else found


def __dir__() -> list[str]:
    return sorted(__all__)
