"""Public names are documented in the numpydoc form: what people and tools read of a signature is there, and agrees."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from numpydoc.docscrape import get_doc_object
from numpydoc.validate import ERROR_MSGS, validate

import coremargin

#: Beside what coremargin and its rooms estimators and active offer: the references, and what comes back from them.
BESIDE = (
    "coremargin.active.queried_rows.Question",
    "coremargin.learn.published.Enumeration",
    "coremargin.learn.published.outlier_svm",
    "coremargin.models.coefficients.Coefficient",
    "coremargin.models.coefficients.Hyperplane",
    "coremargin.models.kernel.KernelModel",
)

#: Checks of numpydoc that are not made, each with its reason.
NOT_ASKED = {
    "GL01": "a summary begins beside the quotes, here as in all other code of the house",
    "SS05": "it takes every first word in s, such as rows, for a verb in the third person",
    "ES01": "one sentence may say it all",
    "SA01": "few names have others beside them that help",
    "EX01": "examples are where they are short",
}


def public_objects() -> dict[str, Any]:
    """What is public by its dotted name: functions, classes, and of these the members that are defined here."""
    names = [f"coremargin.{name}" for name in coremargin.__all__ if name != "__version__"]
    rooms = {room: importlib.import_module(room) for room in ("coremargin.estimators", "coremargin.active")}
    found: dict[str, Any] = {}
    for name in [*names, *(f"{room}.{name}" for room, module in rooms.items() for name in module.__all__), *BESIDE]:
        place, _, last = name.rpartition(".")
        found[name] = getattr(importlib.import_module(place), last)
        if inspect.isclass(found[name]):
            found |= {f"{name}.{member}": value for member, value in members(found[name]).items()}
    return found


def members(cls: type) -> dict[str, Any]:
    """Methods and properties of a class by name, private ones and those that other packages make aside."""
    found = {}
    for name in dir(cls):
        made = function_of(inspect.getattr_static(cls, name))
        if not name.startswith("_") and made is not None and made.__module__.split(".")[0] == "coremargin":
            found[name] = getattr(cls, name)
    return found


def function_of(raw: Any) -> Any:
    """The function behind what lies in a class: a property, a class method, a method that not all instances have."""
    for name in ("fget", "func", "__func__", "fn"):
        raw = getattr(raw, name, raw)
    return raw if inspect.isfunction(raw) else None


PUBLIC = public_objects()


def test_public_names_are_documented_in_the_numpydoc_form() -> None:
    """numpydoc finds a summary, all parameters with types in the signature's order, and what is returned."""
    found = {name: validate(get_doc_object(value))["errors"] for name, value in PUBLIC.items()}
    wrong = [f"{name}: {code} {text}" for name in found for code, text in found[name] if code not in NOT_ASKED]
    assert wrong == []


def test_what_is_checked_is_what_is_public() -> None:
    """Functions, classes, inherited and conditional methods and properties are among the names, scikit-learn's not."""
    assert {
        "coremargin.train", "coremargin.Model.predict", "coremargin.Model.coef", "coremargin.Store.stored_bytes",
        "coremargin.FleetModel.load", "coremargin.estimators.MarginCoresetClassifier.partial_fit",
    } <= set(PUBLIC)  # fmt: skip
    assert "coremargin.estimators.MarginCoresetClassifier.set_params" not in PUBLIC


def test_checks_that_are_not_made_exist() -> None:
    """Every check that is left out is one that numpydoc makes."""
    assert set(NOT_ASKED) <= set(ERROR_MSGS)
