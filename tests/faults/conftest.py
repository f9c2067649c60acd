"""Rows for those who are disturbed while they train, and what comes out where nobody is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster_kit import trained_alone, wide_store

if TYPE_CHECKING:
    from coremargin.data.store import Store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Rows of many features."""
    return wide_store(tmp_path_factory.mktemp("wide") / "rows.zarr")


@pytest.fixture(scope="session")
def unbroken(store: Store) -> dict[str, bytes]:
    """The model of a run that nothing happened to, in this process."""
    return trained_alone(store, store.path.with_name("unbroken"))
