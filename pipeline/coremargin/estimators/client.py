"""Estimators whose parameter ``cluster`` may be a Dask client, which cannot be copied or pickled."""

from __future__ import annotations

import copy
import os
from typing import Any, Self


class ClientMixin:
    """Clones share the client; pickles have None in its place, as the cluster may be gone when they are loaded."""

    cluster: Any

    def __sklearn_clone__(self) -> Self:
        without = copy.copy(self)
        without.cluster = None
        # of the copy: scikit-learn's own clone copies every parameter
        found: Self = super(ClientMixin, without).__sklearn_clone__()  # type: ignore[misc]  # of BaseEstimator
        found.cluster = self.cluster
        return found

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]  # of BaseEstimator
        plain = isinstance(state.get("cluster"), str | os.PathLike)
        return state if plain else state | {"cluster": None}
