"""The interface of a kind of claim; registry.py lists the kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from coremargin.errors import UsageError
from coremargin.verify import margins, values
from coremargin.verify.checks import Check, certified
from coremargin.verify.claim import AnyClaim

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Rows
    from coremargin.verify.store import StoreFindings

C = TypeVar("C", bound=AnyClaim)

_LABELS = "that the labels are right, and how the model does on rows that are not in the store"
#: Not checked of any run.
RUN = (
    "how this run went: run.json, rounds.jsonl, report.html, software, strategy, nodes",
    "who made store and model: the checksums detect damage, not a forger who rewrites both",
)
#: Not checked of any kind.
UNCHECKED = (_LABELS, *RUN)
#: The same for kinds whose block bounds are no part of the proof.
UNCHECKED_BLOCK_BOUNDS = (
    _LABELS,
    "the block bounds (what the scans proved about each chunk; no claim rests on them)",
    *RUN,
)


class Kind(ABC, Generic[C]):
    """One kind of claim: how it is read from the model's files, checked, and described. Objects have no state."""

    unchecked: ClassVar[tuple[str, ...]] = UNCHECKED  #: of all claims of this kind; see ``not_checked``
    #: True: claims are about the commit that they name, whatever was appended since. False: they are about all rows of
    #: the store, with the labels of the commit that they name, and are rejected if rows were appended.
    frozen: ClassVar[bool] = False
    nothing: ClassVar[str] = "no hyperplane separates the classes"  #: the meaning of a proven "not_separable"

    @abstractmethod
    def claim(self, files: ModelFiles) -> C:
        """The claim of the model in these files, whose record is of this kind."""

    def with_kernel(self, claim: C, kernel: Callable[..., Any] | None) -> C:
        """The claim with the kernel function that the user of ``verify`` passed.

        Raises UsageError if the model needs a function and none was passed, or the other way round.
        """
        if kernel is not None:
            raise UsageError(f"kernel: the model at {claim.path} has none that is a function; leave it out")
        return claim

    def with_structure(self, claim: C, structure: Any) -> C:
        """The claim with the structure that the user of ``verify`` passed. Raises UsageError as ``with_kernel``."""
        if structure is not None:
            raise UsageError(f"structure: the model at {claim.path} has none of yours; leave it out")
        return claim

    def terms(self, claim: C) -> str:
        """Further conditions of the claim, appended to ``proven``; "" if there are none."""
        return ""

    def not_checked(self, claim: C) -> tuple[str, ...]:
        """What the verifier did not check, for the report."""
        return self.unchecked

    def same_classes(self, claim: C, rows: Rows) -> Check:
        """Whether the store's labels are those that the claim is about; kinds with classes override this."""
        return Check("classes", ok=True, text="the model has none: labels do not matter")

    @abstractmethod
    def consistency(self, claim: C) -> list[Check]:
        """Whether the claim's numbers agree with each other."""

    def bound(self, claim: C) -> tuple[float | None, list[Check]]:
        """The upper bound that the coreset's rows, as the model has them, prove without a scan; and its checks.

        None if there is none, or if the scan finds it. The scan checks that the rows are the store's.
        """
        return None, []

    @abstractmethod
    def scan(self, claim: C, rows: Rows) -> StoreFindings:
        """The scan that checks the claim."""

    def certifies(self, claim: C, lower: float | None, upper: float | None) -> bool:
        """Whether two bounds prove the epsilon of a claim."""
        return certified(lower, upper, claim.proven_epsilon)

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """The statement that is true of a certified model; soft: as in ``AnyClaim``."""
        return values.proven(epsilon) if soft else margins.proven(epsilon)

    def unproven(self, epsilon: float, lower: float | None, upper: float | None, *, soft: bool) -> str:
        """The statement about a stopped model whose bounds hold; lower, upper: as found."""
        return f"they do not prove epsilon {epsilon}"
