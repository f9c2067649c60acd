"""What the examiner does with a model, or with many, while it reads the store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coremargin.verify.outcome import Outcome
    from coremargin.verify.rows import Chunk
    from coremargin.verify.scaling import Columns


class Inquiry(ABC):
    """Claims, and what is known about them so far; ``ask`` may run in many threads, ``add`` takes chunks in order."""

    @property
    @abstractmethod
    def comparable(self) -> bool:
        """False when the store's rows say nothing about the claims: other features, other classes."""

    @abstractmethod
    def columns(self, chunk: Chunk) -> Columns | None:
        """What a chunk as it is stored says about the scaling."""

    @abstractmethod
    def scaled(self, chunk: Chunk) -> Chunk:
        """A chunk as the claims are about it."""

    @abstractmethod
    def ask(self, scaled: Chunk) -> Any:
        """What a scaled chunk says about the claims."""

    @abstractmethod
    def add_columns(self, columns: Columns | None) -> None:
        """Take what ``columns`` said."""

    @abstractmethod
    def add(self, answer: Any) -> None:
        """Take what ``ask`` said."""

    @abstractmethod
    def result(self) -> Outcome:
        """The outcome, after all chunks."""
