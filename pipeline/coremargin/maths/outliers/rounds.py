"""Rounds of a search: open nodes are dealt to tasks, and what these found is merged.

They are bulk-synchronous: a fixed number of tasks, merged in task order. The answer depends on none of: number of
workers, executor, order of completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.outliers.certificates import Certificates
from coremargin.maths.outliers.explore import Leaves, Question, explore
from coremargin.maths.outliers.levels import closed, turn
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.outliers.search import INTERPRETED, NO_LEAVES, improved, noted

if TYPE_CHECKING:
    from coremargin.maths.outliers.certificates import SearchRows
    from coremargin.maths.outliers.explore import Explored
    from coremargin.maths.outliers.heuristic import Found
    from coremargin.maths.outliers.search import Search
    from coremargin.maths.outliers.tasks import Map

#: Work that is done in one task before nodes are dealt out, and in each round of that time.
ALONE, ALONE_BUDGET = 600, 200
#: Tasks of a round (part of the answer: not the number of workers); work of a task at least (some 50 nodes), and as a
#: share of all so far: the more there is to do, the less may a round's beginning and end matter.
TASKS, BUDGET, GROWTH = 16, 150, 1 / 64
#: Products of numbers that a task may take, some 50 ms, so that whoever asks for an end need not wait; where there are
#: many rows and features, so many for each of their numbers: a task has to get somewhere.
EFFORT, EFFORT_EACH = 15_000_000, 16
#: Certificates that a round works with at most, and for each outlier: all of them are looked through at every node.
KNOWN, KNOWN_EACH = 3_000, 20
#: More leaves are not kept as a proof, nor leaves of more numbers.
MOST_LEAVES, MOST_NUMBERS = 200_000, 40_000_000


def advance(search: Search, search_rows: SearchRows, run: Map) -> Search:
    """One round: nodes dealt out, looked at, merged. Only for an open search that wants no scan."""
    alone, compiled = search.work < ALONE, search.compiled
    hands = _dealt(search.level.open, 1 if alone else TASKS)
    budget = ALONE_BUDGET if alone else max(BUDGET, int(GROWTH * search.work))
    question = Question(
        search.k, search.threshold, search.best.w, search.best.b, budget if compiled else INTERPRETED,
        max(EFFORT, EFFORT_EACH * search_rows.x.size),
        search.batch - len(search.candidates), root_only=search.probing, compiled=compiled,
    )  # fmt: skip
    usable = search.certificates.standing(search.threshold, KNOWN + KNOWN_EACH * search.k)
    known = search.certificates.rows.take(usable)
    tasks = [(search_rows, known, hand, question) for hand in hands]
    answers = run(explore, tasks) if len(tasks) > 1 else [explore(*tasks[0])]  # one alone is not worth the way
    return noted(turn(_merged(search, usable, answers)))


def verified(search: Search, found: Found) -> Search:
    """After a scan: the better of the incumbent and ``found``; the candidates' nodes are looked at again."""
    search = improved(search, found)
    back = Ragged.of(c.path for c in search.candidates)
    level = replace(search.level, open=Ragged.joined([search.level.open, back]))
    return closed(replace(search, level=level, candidates=(), waited=0))


def believed(search: Search, search_rows: SearchRows) -> Search:
    """After a scan that neither found better nor brought rows: float64 has come to its end at these candidates.

    Their margin over the pool becomes part of the upper bound, which is true whatever the rounding.
    """
    rows, weights = (
        Ragged.of((getattr(c.verdict, name) for c in search.candidates), dtype)
        for name, dtype in (("rows", np.int64), ("weights", np.float64))
    )
    new = search_rows.certificates(rows, weights, 0.0)
    return verified(replace(search, certificates=Certificates.joined([search.certificates, new])), search.best)


def _dealt(nodes: Ragged, tasks: int) -> list[Ragged]:
    """The open nodes in hands: those that have left out most rows are spread first, among them the short paths."""
    if tasks == 1:
        return [nodes]
    number = np.repeat(np.arange(len(nodes)), nodes.lengths)
    outs = np.bincount(number, nodes.values >= 0, len(nodes))
    order = np.lexsort((nodes.lengths, -outs))
    return [nodes.take(order[task::tasks]) for task in range(min(tasks, len(nodes)))]


def _merged(search: Search, usable: NDArray[np.intp], answers: Sequence[Explored]) -> Search:
    """Certificates in task order, each set of rows once; ends and candidates with their final numbers.

    usable: the numbers of the certificates that the tasks knew.
    """
    known, number = len(search.certificates), dict[bytes, int]()
    found, leaves = [search.certificates], [NO_LEAVES]
    for answer in answers:
        new = [row.tobytes() for row in answer.certificates.rows]
        fresh: list[int] = []
        for place, key in enumerate(new):
            if key not in number:
                number[key] = known + len(number)
                fresh.append(place)
        found.append(answer.certificates.take(np.array(fresh, np.intp)))
        numbers = np.concatenate([usable, np.array([number[key] for key in new], np.int64)])
        proofs = answer.leaves.proofs
        leaves.append(Leaves(answer.leaves.paths, Ragged(numbers[proofs.values], proofs.ends)))
    certificates, ends = Certificates.joined(found), Leaves.joined(leaves)
    uses = np.bincount(ends.proofs.values, minlength=len(certificates))
    certificates = replace(certificates, uses=certificates.uses + uses)
    worst = max(search.level.worst, float(certificates.values[ends.proofs.values].max(initial=-np.inf)))
    nodes, work = sum(answer.nodes for answer in answers), sum(answer.work for answer in answers)
    candidates = search.candidates + tuple(c for answer in answers for c in answer.candidates)
    candidates, later = candidates[: search.batch], candidates[search.batch :]
    open_ = Ragged.joined([*(answer.open for answer in answers), Ragged.of(c.path for c in later)])
    level = replace(
        search.level, open=open_, worst=worst, leaves=_kept(search.level.leaves, ends), work=search.level.work + work
    )
    return replace(
        search, certificates=certificates, level=level, candidates=candidates, nodes=search.nodes + nodes,
        work=search.work + work, waited=search.waited + work if candidates else 0,
    )  # fmt: skip


def _kept(before: Leaves | None, new: Leaves) -> Leaves | None:
    if before is None or len(before) + len(new) > MOST_LEAVES:
        return None
    numbers = sum(len(part.values) for leaves in (before, new) for part in (leaves.paths, leaves.proofs))
    return Leaves.joined([before, new]) if numbers <= MOST_NUMBERS else None
