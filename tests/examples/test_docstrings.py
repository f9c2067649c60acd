"""Examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import coremargin


def with_examples() -> list[str]:
    """Modules of the package that have an example which is not skipped."""
    found = []
    for module in pkgutil.walk_packages(coremargin.__path__, "coremargin."):
        origin = module.module_finder.find_spec(module.name, None).origin  # type: ignore[call-arg, union-attr]
        lines = Path(str(origin)).read_text(encoding="utf-8").splitlines()
        if any(line.strip().startswith(">>> ") and "+SKIP" not in line for line in lines):
            found.append(module.name)
    return found


def test_examples_are_found() -> None:
    """Those of training, of the estimator, of few labels and of the references are among them."""
    names = ("estimators.classifier", "learn.api", "learn.published", "active.array_learner")
    assert {f"coremargin.{name}" for name in names} <= set(with_examples())


@pytest.mark.parametrize("name", with_examples())
def test_examples_in_docstrings_are_true(name: str) -> None:
    """Every example of the module gives the result that is written below it."""
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
