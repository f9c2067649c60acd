"""What a kind of problem may bring to the command line: questions about its models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from coremargin.models.fleet import AnyModel

A = TypeVar("A")  #: a dataclass: fields that JSON can say


class Command(ABC, Generic[A]):
    """``coremargin NAME MODEL``: a question about a model, and the answer for machines (``--json``) and for people.

    Modules with ``COMMANDS`` are imported for ``coremargin --help``: they import what is heavy inside of methods.
    """

    name: ClassVar[str]
    help: ClassVar[str]  #: the first sentence stands in the list of all commands

    @abstractmethod
    def answer(self, model: AnyModel) -> A:
        """What a model says. Raises UsageError for models that cannot be asked this."""

    @abstractmethod
    def told(self, answer: A) -> list[str]:
        """The same for people, line by line."""


AnyCommand = Command[Any]
