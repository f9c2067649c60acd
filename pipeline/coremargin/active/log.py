"""The log of a campaign, and the current labels that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from coremargin.data.chained_log import ChainedLog, now
from coremargin.data.locked import Locked
from coremargin.errors import DataError
from coremargin.formats.answers import GROW, Answers, Entry, Growth, Line, read_answers
from coremargin.formats.campaign import ANSWERS
from coremargin.formats.current_answers import CurrentAnswers, check_lines

if TYPE_CHECKING:
    from coremargin.active.answers import Annotation
    from coremargin.formats.chained import Chain
    from coremargin.formats.choices import Why
    from coremargin.formats.model_record import StoreHash


class Log(ChainedLog[Entry]):
    """``answers.jsonl``, and its current labels; callers hold the lock of the campaign.

    first: the hash of ``campaign.toml``; rows: their number in the store; classes: the known ones.
    """

    def __init__(self, path: Path, first: str, rows: int, classes: list[Any] | None) -> None:
        super().__init__(path, first, "the log of a campaign")
        self._rows, self._classes = rows, classes
        self.answers = Answers((), (), 0)
        self.current = CurrentAnswers(classes)
        self.ids = set[str]()  #: of lines that have one
        self._classes_after = [self.current.classes]

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines about rows."""
        return self.answers.lines

    @property
    def examples(self) -> list[Line]:
        """The lines at the beginning of the log that are examples given before any scan."""
        found = list[Line]()
        for line in self.lines:
            if line.number > len(found) + 1 or (line.why, line.action, line.scans) != ("example", "label", 0):
                break
            found.append(line)
        return found

    def classes(self, number: int) -> list[Any]:
        """The classes known after this many lines; if there are two, (negative, positive)."""
        return self._classes_after[number]

    def _read(self, data: bytes) -> Answers:
        return read_answers(data, self._first, str(self._path), after=self.answers)

    def _checked(self, chain: Chain[Entry]) -> Chain[Entry]:
        check_lines(chain.entries, self._rows, self._classes, str(self._path))
        return chain

    def _line_of(self, values: Mapping[str, Any]) -> Entry:
        return (Growth if values["action"] == GROW else Line)(**values)

    def _know(self, chain: Chain[Entry]) -> None:
        for line in chain.entries[len(self.entries) :]:
            if isinstance(line, Line):
                self.current.take(line.row, line.action, line.label, line.number)
                if line.id is not UNSET:
                    self.ids.add(line.id)
            self._classes_after.append(self.current.classes)
        super()._know(chain)
        self.answers = Answers(chain.entries, chain.hashes, chain.whole)

    def refuse_fewer(self, lines: int) -> None:
        """Raises DataError if the log has fewer lines than the state was computed from."""
        if lines > len(self.entries):
            raise DataError(
                f"{self._path}: expected {lines:,} lines at least, which the campaign's state is about, found "
                f"{len(self.entries):,}: lines are gone; get a whole copy, or remove the folder of the state as well"
            )


def entry_of(
    given: Annotation, who: str, why: Why, attempt: int | None, scans: int, tried: str | None = None
) -> dict[str, Any]:
    """A new line for an answer, without number and hash; tried: for a draw, the hash of the tested hypothesis."""
    return {
        "row": given.row,
        "label": given.label,
        "action": given.action,
        "who": who,
        "when": given.when or now(),
        "why": why,
        "attempt": attempt,
        "scans": scans,
        **({} if tried is None else {"tried": tried}),
        **({} if given.id is None else {"id": given.id}),
    }


def growth_of(
    rows: int, digest: str, store_sha256: StoreHash | None, who: str, attempt: int, scans: int
) -> dict[str, Any]:
    """A new line for appended rows, without number and hash."""
    return {
        "action": GROW,
        "rows": rows,
        "digest": digest,
        **({} if store_sha256 is None else {"store_sha256": store_sha256}),
        "attempt": attempt,
        "who": who,
        "when": now(),
        "scans": scans,
    }


PATIENCE_S = 5.0  #: for another process that works on the same campaign
ADVICE = "wait for it, as it may be reading the whole store, then give the same command again"  #: nothing is half done


def campaign_lock(path: Path) -> Locked:
    """The lock of the campaign in a folder. Entering it raises Busy if another process holds it for too long."""
    return Locked(path / ANSWERS, "this campaign", advice=ADVICE, wait_s=PATIENCE_S)
