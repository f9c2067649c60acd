"""A browser for all tests of this folder that need one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from browser_kit import browser

if TYPE_CHECKING:
    from browser_kit import Browser


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Its profile is thrown away."""
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found
