"""A registry of three versions, made once, for tests that change a copy of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coremargin.registry.add_version import add
from coremargin.registry.registry import Registry
from registry_kit import grown


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A store of three commits beside a registry of their models, and the models."""
    folder = tmp_path_factory.mktemp("three")
    _, models = grown(folder, 3)
    made = Registry.create(folder / "registry")
    for model in models:
        add(made, model)
    return folder, models


@pytest.fixture
def registry(three: tuple[Path, list[Path]], tmp_path: Path) -> Registry:
    """A copy of it."""
    shutil.copytree(three[0] / "registry", tmp_path / "registry")
    return Registry(tmp_path / "registry")
