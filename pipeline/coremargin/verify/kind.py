"""What the examiner asks of a kind of claim; registry.py knows those that there are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from coremargin.errors import UsageError
from coremargin.verify.checks import Check
from coremargin.verify.claim import AnyClaim

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Rows
    from coremargin.verify.store import StoreFindings

C = TypeVar("C", bound=AnyClaim)

_LABELS = "that the labels are right, and how the model does on rows that are not in the store"
#: What is checked of no run.
RUN = (
    "how this run went: run.json, rounds.jsonl, report.html, software, strategy, nodes",
    "who made store and model: the checksums find damage, not a forger who rewrites both",
)
#: What is checked of no kind.
UNCHECKED = (_LABELS, *RUN)
#: The same of kinds whose ledger is no part of the proof.
UNCHECKED_LEDGER = (_LABELS, "the ledger (what the scans proved about each chunk; no claim rests on it)", *RUN)


class Kind(ABC, Generic[C]):
    """One kind of claim, from the model's files to what people are told. Objects of this class have no state."""

    unchecked: ClassVar[tuple[str, ...]] = UNCHECKED  #: of all claims of this kind; see ``not_checked``
    #: Claims hold of the commit that they name, whatever was appended since. Those of other kinds are about all rows of
    #: the store and false of one that grew, but about the labels of their commit, whatever labels were changed since.
    frozen: ClassVar[bool] = False
    nothing: ClassVar[str] = "no hyperplane separates the classes"  #: true where it is proven that nothing does

    @abstractmethod
    def claim(self, files: ModelFiles) -> C:
        """What the model in these files claims; its record is of this kind."""

    def with_kernel(self, claim: C, kernel: Callable[..., Any] | None) -> C:
        """The claim of a model whose kernel is a function, once who verifies has said it; of others the same.

        Raises UsageError where a function is missing, or there is none to say.
        """
        if kernel is not None:
            raise UsageError(f"kernel: the model at {claim.path} has none that is a function; leave it out")
        return claim

    def terms(self, claim: C) -> str:
        """What else is a part of the claim, in words that follow those of ``proven``; "" where nothing is."""
        return ""

    def not_checked(self, claim: C) -> tuple[str, ...]:
        """What people are told that nobody has looked at."""
        return self.unchecked

    def same_classes(self, claim: C, rows: Rows) -> Check:
        """Whether the store's labels are those that the claim is about; kinds with classes override this."""
        return Check("classes", ok=True, text="the model has none: labels do not matter")

    @abstractmethod
    def consistency(self, claim: C) -> list[Check]:
        """What the claim's numbers say about each other."""

    def bound(self, claim: C) -> tuple[float | None, list[Check]]:
        """The upper bound that is found without a scan, from the coreset's rows as the model has them; and its checks.

        None, where there is none, or a scan finds it. That the rows are the store's is for the scan to say.
        """
        return None, []

    @abstractmethod
    def scan(self, claim: C, rows: Rows) -> StoreFindings:
        """What is asked of each chunk of the store, and what the answers show."""

    @abstractmethod
    def proven(self, epsilon: float, *, soft: bool) -> str:
        """What is true of a model that is certified; soft: as ``AnyClaim`` has it."""

    def unproven(self, epsilon: float, lower: float | None, upper: float | None, *, soft: bool) -> str:
        """What is not proven of a model that was stopped, whose bounds, as they were found, hold; soft: as above."""
        return f"they do not prove epsilon {epsilon}"
