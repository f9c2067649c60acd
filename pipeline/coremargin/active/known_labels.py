"""What is known before a campaign begins: answers in a file, or those that hold in another campaign."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.active.answer_files import read_answers_of
from coremargin.active.answers import Given
from coremargin.active.facts import read_facts
from coremargin.active.lock import campaign_lock
from coremargin.active.log import Log
from coremargin.data.store import Store
from coremargin.errors import DataError, StoreError
from coremargin.formats.campaign import ANSWERS
from coremargin.formats.current_answers import unsure_of

if TYPE_CHECKING:
    from coremargin.formats.campaign import Campaign


def examples_at(path: Path, store: Store) -> tuple[list[Given], list[Any] | None]:
    """The answers in a file, or those that hold in the campaign of a folder, with the rows that nobody could label.

    And the classes, where that campaign names them. Raises DataError, of a campaign for one about other rows than those
    of the store, too.
    """
    if not path.is_dir():
        return read_answers_of(path), None
    facts, first = read_facts(path)
    log = Log(path / ANSWERS, first, facts.rows, facts.classes)
    with campaign_lock(path):
        log.refresh()
    _same_rows(path, facts, log, store)
    labels = [Given(row, label, "label", f"{path}, row {row:,}") for row, label in log.held.labels.items()]
    unsure = sorted(unsure_of(log.lines) - set(log.held.labels))
    return labels + [Given(row, None, "unsure", f"{path}, row {row:,}") for row in unsure], facts.classes


def _same_rows(path: Path, facts: Campaign, log: Log, store: Store) -> None:
    """Raises DataError where row numbers of a campaign mean other rows than those of a store."""
    digest = log.answers.growths[-1].digest if log.answers.growths else facts.digest
    try:
        Store.open(store.path, digest=digest)
    except StoreError:
        raise DataError(
            f"{path}: expected a campaign about rows of {store.path}, found one about {facts.store} with the digest "
            f"{digest}, which is none of its commits; give its answers as a file, if its rows are these"
        ) from None
