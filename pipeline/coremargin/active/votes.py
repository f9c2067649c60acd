"""Several annotators per row: their votes, and the labels that these settle.

Votes are lines of ``votes.jsonl``, each with an id, chained by hashes like the log. Once a label is settled, it is
added to the log with the names of those who agree on it and the id of the last vote. A label is settled if as many
people as the campaign requires have voted and a majority agrees. Otherwise the judge decides, if the campaign names
one, or further people vote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET, to_builtins

from coremargin.active.answers import Annotation, key_of
from coremargin.data.chained_log import ChainedLog
from coremargin.errors import DataError
from coremargin.formats.answers import VOTES, Vote, read_votes
from coremargin.maths.active.agreement import cohen_kappa, fleiss_kappa

if TYPE_CHECKING:
    from coremargin.active.inbox import ReceivedAnswer
    from coremargin.formats.answers import Line
    from coremargin.formats.campaign import CampaignSettings
    from coremargin.formats.chained import Chain


class Settled(NamedTuple):
    """A label for the log. who: names of those who agree on it."""

    given: Annotation
    who: str


@dataclass(frozen=True)
class Pair:
    """Agreement of two people. rows: labelled by both; same: labelled equally; kappa: Cohen's, None if undefined."""

    first: str
    second: str
    rows: int
    same: int
    kappa: float | None


class _Log(ChainedLog[Vote]):
    """``votes.jsonl``."""

    def __init__(self, path: Path, first: str) -> None:
        super().__init__(path, first, "what several people said", f"{path.name}.telling")

    def _read(self, data: bytes) -> Chain[Vote]:
        return read_votes(data, self._first, str(self._path), self._chain)

    def _line_of(self, values: Mapping[str, Any]) -> Vote:
        return Vote(**values)


class Votes:
    """The votes of a campaign with several people per row; callers hold the lock of the campaign.

    first: the hash of ``campaign.toml``. people: number of people per row. judge: the person who decides disagreements;
    None: the majority.
    """

    def __init__(self, folder: Path, settings: CampaignSettings, first: str) -> None:
        self.people, self.judge = settings.people or 1, settings.settle
        self._log = _Log(folder / VOTES, first)

    @property
    def several(self) -> bool:
        """Whether the campaign asks several people about each row."""
        return self.people > 1

    def refresh(self) -> None:
        """Read votes of other processes. Raises DataError if the file is missing or lines were changed."""
        if self.several:
            self._log.refresh()

    def put(self, one: ReceivedAnswer) -> None:
        """Add a vote, or take one back, on disk; repetitions of an id are skipped."""
        if all(one.id != other.id for other in self._log.entries):
            self._log.append([to_builtins(one)])

    def check(self, lines: Iterable[Line]) -> None:
        """Raises DataError if lines of the campaign's log have labels that no votes have settled."""
        ids = {one.id for one in self._log.entries}
        for line in lines if self.several else ():
            if line.action == "label" and line.id is not UNSET and line.who != self.judge and line.id not in ids:
                what = f"expected the votes that settled row {line.row:,}, found them gone"
                raise DataError(f"{self._log.path}: {what}; get a whole copy")

    def by_row(self) -> dict[int, dict[str, Vote]]:
        """Current votes by row and by name, in order of arrival."""
        found = dict[int, dict[str, Vote]]()
        for one in self._log.entries:
            mine = found.setdefault(one.row, {})
            mine.pop(one.who, None)
            if one.action == "label":
                mine[one.who] = one
        return {row: mine for row, mine in found.items() if mine}

    def labels_of(self, who: str) -> list[tuple[int, Any]]:
        """Rows and labels of a person's current votes, the last one at the end."""
        mine = {one.id for votes in self.by_row().values() for one in votes.values() if one.who == who}
        return [(one.row, one.label) for one in self._log.entries if one.id in mine]

    def settle(self, row: int, votes: Mapping[str, Vote]) -> Settled | None:
        """The label that a row's votes settle; None if they settle none yet."""
        if len(votes) < self.people:
            return None
        counts = Counter(key_of(one.label) for one in votes.values())
        (most, number), needed = counts.most_common(1)[0], len(votes) if self.judge else len(votes) // 2 + 1
        if number < needed:
            return None
        agree = [one for one in votes.values() if key_of(one.label) == most]
        last = list(votes.values())[-1]
        names = ", ".join(one.who for one in agree)[:200]
        return Settled(Annotation(row, agree[0].label, "label", f"row {row:,}", last.id, last.when), names)

    def conflicts(self) -> dict[int, dict[str, Any]]:
        """Rows without a settled label on which people disagree: the labels by name."""
        found = {}
        for row, votes in self.by_row().items():
            if len(votes) >= self.people and self.settle(row, votes) is None:
                found[row] = {who: one.label for who, one in votes.items()}
        return found

    def needs_answer_of(self, row: int, who: str) -> bool:
        """Whether a person should vote about a row without a settled label."""
        votes = self.by_row().get(row, {})
        if who == self.judge:
            return row in self.conflicts()
        return who not in votes and (len(votes) < self.people or self.judge is None)

    def pairs(self) -> list[Pair]:
        """The agreement of each pair of people on the rows that both have labelled."""
        rows = self.by_row().values()
        names = sorted({who for votes in rows for who in votes})
        found = []
        for first, second in combinations(names, 2):
            both = [(key_of(v[first].label), key_of(v[second].label)) for v in rows if first in v and second in v]
            if both:
                same = sum(one == other for one, other in both)
                found.append(Pair(first, second, len(both), same, cohen_kappa(both)))
        return found

    def fleiss(self) -> tuple[int, float | None]:
        """The number of rows with votes of all required people, and their Fleiss' kappa; None if undefined."""
        whole = [[key_of(one.label) for one in votes.values()] for votes in self.by_row().values()]
        whole = [votes for votes in whole if len(votes) == self.people]
        return len(whole), fleiss_kappa(whole)
