"""The tree search: nodes, bounds by disjoint certificates, branching. What one task does.

A node is a path of decisions about rows: ``row`` (>= 0) was left out, ``~row`` (< 0) is to stay. With r rows still to
leave out, a certificate that no row left out belongs to must lose one of its rows that are not bound to stay: its
*residual*. So more than r certificates with disjoint residuals, or one with none at all, end the node: a better set of
outliers does not lie below it. The two children of a node, "p is left out" and "p stays", share nothing and miss
nothing. All of it needs no geometry; geometry only finds further certificates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from coremargin.maths.outliers.certificates import Certificate, SearchRows, Verdict, mask_of, rows_of

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

Path = tuple[int, ...]

#: How much a suspicious row weighs in a residual: those with few of them are packed first.
SUSPECT = 4


@dataclass(frozen=True)
class Leaf:
    """A node that holds no better set of outliers, and the certificates (by number) that prove it."""

    path: Path
    proof: tuple[int, ...]


@dataclass(frozen=True)
class Candidate:
    """A node whose remaining rows of the pool allow a margin above the threshold; a scan has to tell about all rows."""

    path: Path
    verdict: Verdict


@dataclass
class Explored:
    """What came of some nodes: those still open, new certificates, ends of branches, candidates; what it took.

    nodes: how many were looked at; work: these and the solves.
    """

    open: list[Path]
    certificates: list[Certificate] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    nodes: int = 0
    work: int = 0


@dataclass(frozen=True)
class Guide:
    """What the incumbent hyperplane says: margins (n,) of the pool's rows, and the set of its k lowest rows."""

    margins: Array
    suspects: int


@dataclass(frozen=True)
class Question:
    """What a task is to do with nodes: end them or split them at this threshold, k rows being left out in all.

    budget: nodes and solves, a count and no time, so that the answer is the same anywhere. most_candidates: end
    early with so many. root_only: leave its children alone.
    """

    k: int
    threshold: float
    budget: int
    most_candidates: int
    root_only: bool = False


def explore(
    search_rows: SearchRows, guide: Guide, known: Sequence[Certificate], nodes: Sequence[Path], question: Question
) -> Explored:
    """Depth first from ``nodes`` (the last one first), leaving rows out before keeping them.

    A pure function: the same answer wherever it runs. New certificates are numbered from ``len(known)``.
    """
    return _Explorer(search_rows, guide, list(known), question).run(list(nodes))


class _Explorer:
    def __init__(
        self, search_rows: SearchRows, guide: Guide, certificates: list[Certificate], question: Question
    ) -> None:
        self.search_rows, self.guide, self.question = search_rows, guide, question
        self.certificates, self.known = certificates, len(certificates)
        self.usable = [i for i, c in enumerate(certificates) if c.since <= question.threshold]
        self.answer = Explored([])

    def run(self, stack: list[Path]) -> Explored:
        answer, question = self.answer, self.question
        while stack and answer.work < question.budget and len(answer.candidates) < question.most_candidates:
            if question.root_only and len(stack[-1]) > 0:
                break
            answer.nodes += 1
            answer.work += 1
            stack += self.children(stack.pop())
        answer.open = stack
        answer.certificates = self.certificates[self.known :]
        return answer

    def children(self, path: Path) -> list[Path]:
        """What is left to do after a node: nothing when it ended, is a candidate, or its two children."""
        node = _Node(self, path)
        while node.propagate() and node.pack():
            found = node.extend()
            if found == "split":
                p = node.suspicious_row()
                return [(*node.path, ~p), (*node.path, p)]
            if found == "pause":
                return [node.path]
            if found == "end":
                break
        return []

    def leaf(self, path: Path, proof: Sequence[int]) -> None:
        self.answer.leaves.append(Leaf(path, tuple(proof)))

    def add(self, certificate: Certificate) -> int:
        self.certificates.append(certificate)
        self.usable.append(len(self.certificates) - 1)
        return len(self.certificates) - 1


class _Node:
    """One node at work: its sets, its active certificates with their residuals, and the packing."""

    def __init__(self, explorer: _Explorer, path: Path) -> None:
        self.explorer, self.path = explorer, path
        self.out = self.kept = 0
        for step in path:
            if step >= 0:
                self.out |= 1 << step
            else:
                self.kept |= 1 << ~step
        self.left = explorer.question.k - self.out.bit_count()
        self.residuals: dict[int, int] = {}
        self.packed: list[int] = []
        self.used = 0

    def propagate(self) -> bool:
        """Leave out what must be left out: the only free row of a certificate. False when that ends the node."""
        certificates = self.explorer.certificates
        usable: Sequence[int] = self.explorer.usable
        while True:
            self.residuals = {
                i: certificates[i].bits & ~self.kept for i in usable if not certificates[i].bits & self.out
            }
            usable = list(self.residuals)
            single = -1
            for i, residual in self.residuals.items():
                if residual == 0 or self.left == 0:
                    self.explorer.leaf(self.path, (i,))
                    return False
                if single < 0 and residual & (residual - 1) == 0:
                    single = i
            if single < 0:
                return True
            self.leave_out(single)

    def leave_out(self, single: int) -> None:
        """The row that certificate ``single`` leaves no choice about; to keep it is a branch that ends at once."""
        row = self.residuals[single].bit_length() - 1
        self.explorer.leaf((*self.path, ~row), (single,))
        self.path = (*self.path, row)
        self.out |= 1 << row
        self.left -= 1

    def pack(self) -> bool:
        """Certificates with disjoint residuals, greedily: small, unsuspicious ones first. False: they end the node."""
        suspects = self.explorer.guide.suspects
        order = sorted(
            self.residuals,
            key=lambda i: (self.residuals[i].bit_count() + SUSPECT * (self.residuals[i] & suspects).bit_count(), i),
        )
        self.packed, self.used = [], 0
        for i in order:
            if not self.residuals[i] & self.used:
                self.packed.append(i)
                self.used |= self.residuals[i]
                if len(self.packed) > self.left:
                    self.explorer.leaf(self.path, self.packed)
                    return False
        return True

    def extend(self) -> Literal["end", "again", "split", "pause"]:
        """Look for certificates among the rows outside the packing, and say what comes next for the node."""
        search_rows, question, answer = self.explorer.search_rows, self.explorer.question, self.explorer.answer
        kept = np.array(rows_of(self.kept), np.intp)
        while answer.work < question.budget:
            answer.work += 1
            free = ~mask_of(self.out | self.used, len(search_rows))
            verdict = search_rows.decide(free, kept, question.threshold)
            if verdict is None or not verdict.too_small:
                if self.packed or verdict is None:
                    return "split"
                best = search_rows.best(free, verdict)
                answer.candidates.append(Candidate(self.path, best))
                return "end"
            found = search_rows.certificate(verdict.rows, verdict.weights, question.threshold)
            i = self.explorer.add(found)
            residual = found.bits & ~self.kept
            self.residuals[i] = residual
            self.packed.append(i)
            self.used |= residual
            if residual == 0 or len(self.packed) > self.left:
                self.explorer.leaf(self.path, (i,) if residual == 0 else self.packed)
                return "end"
            if residual & (residual - 1) == 0:
                return "again"
        return "pause"  # what was found is kept, the node is looked at again

    def suspicious_row(self) -> int:
        """The row to decide about: of the smallest residual the one with the lowest margin under the incumbent."""
        smallest = min(self.residuals, key=lambda i: (self.residuals[i].bit_count(), i))
        rows = rows_of(self.residuals[smallest])
        margins = self.explorer.guide.margins
        return min(rows, key=lambda row: (margins[row], row))
