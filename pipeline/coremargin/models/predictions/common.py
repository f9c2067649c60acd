"""What all files of predictions have in common: what goes in, what they say of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from coremargin.data.view import sha256_entry

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.source import Source
    from coremargin.models.fleet import AnyModel

FORMAT = "coremargin-predictions"
VERSION = 1
WHAT = "a file of predictions"  #: that is replaced, for messages
COLUMNS = ("row", "label", "code", "decision")  #: of a table


class Sink(Protocol):
    """Where predictions go."""

    def write(self, codes: np.ndarray, decisions: np.ndarray) -> None:
        """The next rows: codes (n,) int32 and decision values (n,) float64."""


@dataclass(frozen=True)
class Subject:
    """What predictions are about: who made them, of which rows; threshold: between two classes."""

    model: AnyModel
    source: Source
    threshold: float = 0.0

    def attributes(self) -> dict[str, Any]:
        """What predictions say of themselves, where their format has a place for it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "rows": self.source.rows,
            "classes": list(self.model.labels),
            "model": {"status": self.model.status, **self.model.proof},
            **({"threshold": self.threshold} if self.threshold else {}),
            "source": {
                "name": Path(self.source.name).name,
                "digest": self.source.digest,
                **sha256_entry(self.source),
            },
        }
