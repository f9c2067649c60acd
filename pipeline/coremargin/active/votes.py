"""Several people about the same row: what each of them says, and when that settles its label.

Their answers lie in ``votes.jsonl``, each with its id, beside the log, and chained by hashes as that is; the log has a
row's label once it is settled, with the names of those who agree on it and the id of the vote that settled it. A row is
settled by as many people as the campaign asks for, where they agree or most of them do; else, where the campaign names
somebody for that, by that person, or by more people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET, to_builtins

from coremargin.active.answers import Given, key_of
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
    """A label that goes into the log. who: names of those who agree on it."""

    given: Given
    who: str


@dataclass(frozen=True)
class Pair:
    """How two people agree. rows: that both have answered; same: equally; kappa: Cohen's, None if there is none."""

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
    """Those of a campaign that asks several people; whoever uses it holds the lock of the campaign.

    first: the hash of ``campaign.toml``. people: how many are asked about a row, 1 where it is one. judge: who settles
    what they disagree about, None: most.
    """

    def __init__(self, folder: Path, settings: CampaignSettings, first: str) -> None:
        self.people, self.judge = settings.people or 1, settings.settle
        self._log = _Log(folder / VOTES, first)

    @property
    def several(self) -> bool:
        """Whether several people are asked."""
        return self.people > 1

    def refresh(self) -> None:
        """Read what others have written. Raises DataError: it is gone, or lines of it were changed."""
        if self.several:
            self._log.refresh()

    def put(self, one: ReceivedAnswer) -> None:
        """Add a vote, or take one back, on disk; the same one twice is no other."""
        if all(one.id != other.id for other in self._log.entries):
            self._log.append([to_builtins(one)])

    def check(self, lines: Iterable[Line]) -> None:
        """Raises DataError where lines of the campaign's log have labels that no votes here have settled."""
        ids = {one.id for one in self._log.entries}
        for line in lines if self.several else ():
            if line.action == "label" and line.id is not UNSET and line.who != self.judge and line.id not in ids:
                what = f"expected the votes that settled row {line.row:,}, found them gone"
                raise DataError(f"{self._log.path}: {what}; get a whole copy")

    def by_row(self) -> dict[int, dict[str, Vote]]:
        """What holds: by row and by name, in the order in which it came."""
        found = dict[int, dict[str, Vote]]()
        for one in self._log.entries:
            mine = found.setdefault(one.row, {})
            mine.pop(one.who, None)
            if one.action == "label":
                mine[one.who] = one
        return {row: mine for row, mine in found.items() if mine}

    def labels_of(self, who: str) -> list[tuple[int, Any]]:
        """Rows and labels of somebody's votes that hold, the last one at the end."""
        mine = {one.id for votes in self.by_row().values() for one in votes.values() if one.who == who}
        return [(one.row, one.label) for one in self._log.entries if one.id in mine]

    def settle(self, row: int, votes: Mapping[str, Vote]) -> Settled | None:
        """What a row's votes come to; None as long as that is open."""
        if len(votes) < self.people:
            return None
        counts = Counter(key_of(one.label) for one in votes.values())
        (most, number), needed = counts.most_common(1)[0], len(votes) if self.judge else len(votes) // 2 + 1
        if number < needed:
            return None
        agree = [one for one in votes.values() if key_of(one.label) == most]
        last = list(votes.values())[-1]
        names = ", ".join(one.who for one in agree)[:200]
        return Settled(Given(row, agree[0].label, "label", f"row {row:,}", last.id, last.when), names)

    def conflicts(self) -> dict[int, dict[str, Any]]:
        """Rows about which people disagree so that nothing is settled: what each of them says."""
        found = {}
        for row, votes in self.by_row().items():
            if len(votes) >= self.people and self.settle(row, votes) is None:
                found[row] = {who: one.label for who, one in votes.items()}
        return found

    def needs_answer_of(self, row: int, who: str) -> bool:
        """Whether somebody is to be asked about a row that has no label yet."""
        votes = self.by_row().get(row, {})
        if who == self.judge:
            return row in self.conflicts()
        return who not in votes and (len(votes) < self.people or self.judge is None)

    def pairs(self) -> list[Pair]:
        """How every two people agree on the rows that both have answered."""
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
        """Rows that as many people have answered as are asked, and Fleiss' kappa of them; None if there is none."""
        whole = [[key_of(one.label) for one in votes.values()] for votes in self.by_row().values()]
        whole = [votes for votes in whole if len(votes) == self.people]
        return len(whole), fleiss_kappa(whole)
