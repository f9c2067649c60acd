"""What models whose labels were asked for have, of two classes or of more: answers, and what is shown of other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.models.single import Single

if TYPE_CHECKING:
    from collections.abc import Mapping


class AskedModel(Single):
    """A model of answers; ``extra`` holds the rows that have one, and those that nobody could label."""

    extra: Mapping[str, np.ndarray]

    @property
    def evidence(self) -> dict[str, Any] | None:
        """What draws have shown, of all rows or by class (``strata``); None where no attempt was finished."""
        found = self.record["evidence"]
        return None if found is None else dict(found)

    @property
    def answers(self) -> int:
        """How many rows have answers, draws included."""
        return int(self.record["answers"])

    @property
    def unsure_ids(self) -> np.ndarray:
        """Numbers of the rows that nobody could label, of which nothing is claimed."""
        return self.extra.get("unsure_ids", np.zeros(0, np.int64))

    @property
    def log(self) -> str | None:
        """Hash of the last line of the campaign's log that it is about."""
        found = self.record["log"]
        return None if found is None else str(found)
