"""Whether labels of a campaign that asks several people are what they have said: each was settled by votes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from coremargin.formats.current_answers import same
from coremargin.formats.votes import Vote
from coremargin.verify.checks import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.formats.answers import Line
    from coremargin.formats.campaign import Campaign
    from coremargin.verify.active.claim import History

_TOLD = 3  #: problems that people are told
_NAMES = 200  #: characters of the names that a line has


def votes_checks(history: History, lines: Sequence[Line]) -> list[Check]:
    """Whether votes have settled each label of these lines; nothing where one person is asked about a row.

    Examples, and labels of the one who settles what people disagree about, need no votes, and are counted apart.
    """
    campaign = history.campaign
    if campaign.people is None or history.votes is None:
        return []
    votes, settled, others, problems = dict[int, list[Vote]](), 0, 0, list[str]()
    for vote in history.votes.entries:
        votes.setdefault(vote.row, []).append(vote)
    for line in lines:
        if line.action != "label":
            continue
        if line.who == campaign.settle or (line.why == "example" and line.id is UNSET):
            others += 1
        else:
            settled += 1
            problem = _unsettled(campaign, line, votes.get(line.row, []))
            if problem:
                problems.append(f"line {line.number} gives row {line.row} the label {line.label!r}: {problem}")
    text = f"{settled:,} labels were settled by those of {campaign.people} people or more"
    if others:
        text += f"; {others:,} are examples, or of who settles the rest, which nobody votes about"
    text = "; ".join(problems[:_TOLD]) or text
    return [Check("votes", not problems, text)]


def _unsettled(campaign: Campaign, line: Line, votes: Sequence[Vote]) -> str:
    """What speaks against a label, in the light of all votes about its row, in their order; "" for nothing.

    The vote that has settled it was the last one that held then: others may have been taken back after it.
    """
    said, found = dict[str, Vote](), "no vote has settled it"
    for vote in votes:
        said.pop(vote.who, None)
        if vote.action == "label":
            said[vote.who] = vote
        if not said or list(said.values())[-1].id != line.id:
            continue
        agree = [one.who for one in said.values() if same(one.label, line.label)]
        needed = len(said) if campaign.settle is not None else len(said) // 2 + 1
        names = ", ".join(agree)[:_NAMES]
        if len(said) < (campaign.people or 1) or len(agree) < needed:
            found = f"{len(agree)} of {len(said)} people had said so"
        elif names != line.who:
            found = f"{names} had said so, not {line.who}"
        else:
            return ""
    return found
