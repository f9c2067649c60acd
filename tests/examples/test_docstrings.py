"""Examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name", ["coremargin.estimators.classifier", "coremargin.learn.api", "coremargin.learn.published"]
)
def test_examples_in_docstrings_are_true(name: str) -> None:
    """Every example of the module gives the result that is written below it."""
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
