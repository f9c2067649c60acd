"""What is attacked: trained models of every kind, once for all tests."""

from __future__ import annotations

import pytest

from forge_specimens import Specimens


@pytest.fixture(scope="session")
def specimens(tmp_path_factory: pytest.TempPathFactory) -> Specimens:
    """Models by name; each is trained when it is first asked for, and nobody changes it."""
    return Specimens(tmp_path_factory.mktemp("specimens"))
