"""Answers of a campaign as labels of its store: which rows get one, and which lose the one that the log once gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.active.growth import At
from coremargin.data.format import UNLABELLED
from coremargin.data.relabel import LabelReport, write_labels
from coremargin.data.store import Store
from coremargin.formats.current_answers import same

if TYPE_CHECKING:
    from coremargin.active.player import Player
    from coremargin.formats.answers import Growth
    from coremargin.formats.campaign import Campaign


def write_answers(player: Player) -> LabelReport:
    """Write the answers that hold into the store, and take away those that hold no longer.

    Raises what ``Campaign.write_labels`` does.
    """
    ground, held = player.ground, player.log.held
    ground.newest()  # refuses a store that has other rows by now
    rows = sorted(held.labels)
    # classes that are new to the store come in the order that the campaign has
    rows = [row for label in held.classes for row in rows if same(held.labels[row], label)]
    labels = [held.labels[row] for row in rows]
    return write_labels(ground.store.path, rows, labels, withdrawn=_withdrawn(player), after=ground.at.digest)


def _withdrawn(player: Player) -> dict[int, list[Any]]:
    """Rows that had no label when they came to the campaign, and have no answer any longer, with all that they had."""
    given = dict[int, list[Any]]()
    for line in player.log.lines:
        if line.label is not None and line.row not in player.log.held.labels:
            given.setdefault(line.row, []).append(line.label)
    commits: list[Campaign | Growth] = [player.facts, *player.log.answers.growths]
    found, start = dict[int, list[Any]](), 0
    for at in [At(one.rows, one.digest) for one in commits]:
        rows = sorted(row for row in given if start <= row < at.rows)
        if rows:
            store = Store.open(player.ground.store.path, rows=at.rows, digest=at.digest, map_bytes=0)
            codes = (store.labels(row // store.chunk_rows)[row % store.chunk_rows] for row in rows)
            found |= {row: given[row] for row, code in zip(rows, codes, strict=True) if code == UNLABELLED}
        start = at.rows
    return found
