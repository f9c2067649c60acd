"""Answers on their way into the log: from the inbox, or of several people, whose votes settle a label first."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING

from coremargin.active.inbox import Inbox, Refused, received
from coremargin.active.queried_rows import name_of
from coremargin.errors import DamagedChunk, DataError, StoreError

if TYPE_CHECKING:
    from coremargin.active.answers import Given
    from coremargin.active.player import Player
    from coremargin.active.questions import Questions

log = logging.getLogger(__name__)


def take(player: Player, questions: Questions, given: Iterable[Given], who: str, *, examples: bool = False) -> int:
    """Take answers of somebody, all or none of them; how many are new. Whoever calls it holds the campaign's lock.

    Raises what ``Questions.checked`` does.
    """
    votes, mine = questions.votes, list(given)
    if not votes.asked_for or examples:
        new = questions.checked(mine, examples=examples)
        if new:
            player.take(new, questions.asked, who)
        return len(new)
    rows, held = votes.by_row(), player.log.held.labels
    back = [
        one for one in mine if one.action == "undo" and one.row not in held and _by(one, who) in rows.get(one.row, {})
    ]
    new = questions.checked(one for one in mine if one not in back)
    said = [one for one in new if one.action == "label" and _by(one, who) != votes.judge]
    for one in [*back, *said]:
        votes.put(received(one.row, one.label, one.action, _by(one, who), one.id or secrets.token_hex(16)))
    for one in new:
        if one.action == "undo":  # what people have said of the row is asked of them again
            for name in rows.get(one.row, {}):
                votes.put(received(one.row, None, "undo", name, secrets.token_hex(16)))
    if others := [one for one in new if one not in said]:
        player.take(others, questions.asked, who)
    settle(player, questions)
    return len(new) + len(back)


def _by(given: Given, who: str) -> str:
    """Whose answer it is."""
    return who if given.who is None else name_of(given.who)


def settle(player: Player, questions: Questions) -> None:
    """Write labels that votes have settled into the log: those, too, that somebody who was killed has left."""
    for row, votes in questions.votes.by_row().items():
        found = None if row in player.log.held.labels else questions.votes.settled(row, votes)
        if found is not None and found.given.id not in player.log.ids:
            player.take(questions.checked([found.given]), questions.asked, found.who)


def take_received(player: Player, questions: Questions, inbox: Inbox) -> list[Refused]:
    """Take what lies in the inbox, and empty it; whoever calls it holds the lock of the campaign.

    What cannot be taken is told and goes: it would be in the way for ever.
    """
    refused, done = list[Refused](), 0
    while True:
        found, size = inbox.read()
        for one in found[done:]:
            if one.id in player.log.ids:  # taken by somebody who was killed before the inbox was emptied
                continue
            try:
                take(player, questions, [one.given], one.who)
            except (DamagedChunk, StoreError):  # it has nothing to do with the answer
                raise
            except DataError as error:
                log.warning("an answer of %s was not taken: %s", one.who, error)
                refused.append(Refused(one, str(error)))
        done = len(found)
        if not size or inbox.cleared(size):
            return refused
