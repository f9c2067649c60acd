"""Whether the log of a campaign says what its model does: answers, attempts, draws. That it is a chain was read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET

from coremargin.errors import DataError
from coremargin.formats.current_answers import classes_of, effective, same, unsure_of
from coremargin.verify.active.claim import Coded
from coremargin.verify.active.draws import fresh
from coremargin.verify.active.ground import Then, commits_of, extended
from coremargin.verify.active.votes import votes_checks
from coremargin.verify.checks import Check
from coremargin.verify.store import listed

if TYPE_CHECKING:
    from coremargin.formats.answers import Line
    from coremargin.verify.active.claim import ActiveClaim, History
    from coremargin.verify.active.ground import Ground
    from coremargin.verify.rows import Rows

_ASIDE = ("skip", "unsure")  #: what says nothing of a row's label
_TOLD = 3  #: problems of one kind that people are told
_WALKED = 4_000_000  #: draws of earlier attempts that are gone over, and ten a line


def last_line(claim: ActiveClaim, history: History) -> int | None:
    """How many lines of the log the model is about, None for lines that are not there."""
    hashes = history.answers.hashes
    return hashes.index(claim.log) + 1 if claim.log in hashes else None


def _upto(history: History, last: int) -> tuple[Line, ...]:
    """What the log says of rows up to a line."""
    return tuple(line for line in history.answers.lines if line.number <= last)


def lines_of(claim: ActiveClaim) -> tuple[Line, ...]:
    """What the log says of rows up to the line that the model is about; nothing without a log, or such a line."""
    last = None if claim.history is None else last_line(claim, claim.history)
    return () if claim.history is None or last is None else _upto(claim.history, last)


def with_late(claim: ActiveClaim) -> ActiveClaim:
    """The claim with the rows that were answered after the lines that the model is about, but for unsure ones."""
    history = claim.history
    last = None if history is None else last_line(claim, history)
    if history is None or last is None:
        return claim
    before, now = (effective(lines) for lines in (_upto(history, last), history.answers.lines))
    new = set(now) - set(before) - set(claim.unsure.tolist())
    rows = sorted(row for row in new if row < claim.rows)  # of others nothing was said
    codes = np.array([_code(claim, now[row]) for row in rows], np.int64)
    return replace(claim, late=Coded(np.array(rows, np.int64), codes))


def history_checks(claim: ActiveClaim, rows: Rows) -> list[Check]:
    """What is checked of a campaign without the store's rows; nothing for a model by itself."""
    history = claim.history
    if history is None:
        return []
    last, lines = last_line(claim, history), history.answers.lines
    many = len(history.answers.entries)
    if last is None:
        text = "none" if claim.log is None else f"one with the hash {claim.log[:16]}..., which is not there"
        text = f"the last of {many:,} lines that the model is about: expected one of them, found {text}"
        return [same_campaign(claim, history, many), Check("log", ok=False, text=text)]
    known, later = _upto(history, last), [line for line in lines if line.number > last]
    text = f"{last:,} lines, each with the hash of the one before; {many - last:,} came after the model"
    ground = commits_of(history, last)
    final = [*_before_growth(claim, ground), *_final_attempt(claim, known)][:_TOLD]
    return [
        same_campaign(claim, history, last),
        Check("log", ok=True, text=text),
        *extended(rows, ground),
        same_answers(claim, known),
        *votes_checks(history, known),
        *same_unsure(claim, known),
        *untouched(claim, later),
        Check("attempt", *_told(final, "no answer but those to its draws came in meanwhile")),
        Check("earlier draws", *_told(_earlier(claim, rows, known, ground), "those that the seed and the store draw")),
    ]


def _told(problems: list[str], text: str) -> tuple[bool, str]:
    return not problems, "; ".join(problems) or text


def same_campaign(claim: ActiveClaim, history: History, last: int) -> Check:
    """Whether the campaign's file names the parameters, the store and the classes that the model does.

    Of a store that has grown the log does, by the line that the model is about.
    """
    asked, now, lines = history.campaign, commits_of(history, last)[-1], _upto(history, last)
    names = ("method", "epsilon", "error", "confidence", "seed", "intercept")
    pairs = {name: (getattr(claim, name), getattr(asked, name)) for name in names}
    pairs |= {
        "by_class": (claim.by_class, bool(asked.by_class)),
        "loss": (claim.loss or None, asked.loss),
        "C": (claim.cost or None, asked.C),
        "trial": (claim.trial or None, asked.trial),
    }
    pairs["features"] = (claim.stored_features, asked.features)
    pairs["rows"] = (claim.rows, now.rows)
    pairs["store"] = (claim.store_digest, now.digest)
    pairs["scaling"] = (claim.scaling or None, asked.scaling)
    maps = asked.asked_map
    pairs["map"] = (dict(claim.asked_map), {} if maps is None else maps.parameters())
    pairs["digest of the map"] = (claim.map_digest, asked.map_digest)
    problems = [f"{name}: model says {mine}, campaign {its}" for name, (mine, its) in pairs.items() if mine != its]
    classes, mine = classes_of(lines, asked.classes), list(claim.labels)
    if len(classes) != len(mine) or not all(map(same, classes, mine)):
        problems.append(f"classes: model says {mine}, campaign and log {classes}")
    text = f"seed {claim.seed}, a share of {claim.error}, confidence {claim.confidence}"
    return Check("campaign", *_told(problems, f"the model is that of {text}"))


def _code(claim: ActiveClaim, label: Any) -> int:
    """The place of a label, -1 for a strange one."""
    return next((place for place, known in enumerate(claim.labels) if same(label, known)), -1)


def _used(claim: ActiveClaim) -> dict[int, int]:
    """Row -> class, by its place, of all rows that the model says are answered."""
    pairs = (claim.answered, claim.draws)
    return {int(row): int(code) for part in pairs for row, code in zip(part.ids, part.codes, strict=True)}


def same_answers(claim: ActiveClaim, lines: Sequence[Line]) -> Check:
    """Whether the model's answers are those of the log: every one, and no others."""
    used, logged = _used(claim), {row: _code(claim, label) for row, label in effective(lines).items()}
    problems = []
    if strange := sorted(set(used) - set(logged)):
        problems.append(f"{listed(strange)} answered as the model says, not as the log does")
    if left_out := sorted(set(logged) - set(used)):
        problems.append(f"{listed(left_out)} answered in the log, and not in the model")
    if other := sorted(row for row in set(used) & set(logged) if used[row] != logged[row]):
        problems.append(f"{listed(other)} answered otherwise in the log")
    return Check("answers", *_told(problems, f"all {len(used):,} are in the log, as the model has them"))


def same_unsure(claim: ActiveClaim, lines: Sequence[Line]) -> list[Check]:
    """Whether the rows that nobody could label are those of the log; nothing where there are none."""
    mine, logged = set(claim.unsure.tolist()), unsure_of(lines)
    problems = []
    if strange := sorted(mine - logged):
        problems.append(f"{listed(strange)} unsure as the model says, not as the log does")
    if left_out := sorted(logged - mine):
        problems.append(f"{listed(left_out)} unsure by the log, and not in the model")
    text = f"all {len(mine):,} that nobody could label, or that were taken back, are in the log"
    return [Check("unsure rows", *_told(problems, text))] if mine or logged else []


def untouched(claim: ActiveClaim, later: Sequence[Line]) -> list[Check]:
    """A failed check if an answer that the model uses was changed after it was made.

    A model that claims nothing of rows without an answer is about the answers that it has: then it is out of date.
    """
    used = _used(claim)
    changed = [line for line in later if line.action in ("undo", "correct") and line.row in used]
    if not changed:
        return []
    one = changed[0]
    text = f"line {one.number} ({one.action}) changes the answer about row {one.row}, which the model uses"
    if not claim.of_others:
        lines = sum(line.action not in _ASIDE for line in later)
        many = f"{lines:,} line{'s' * (lines > 1)}"
        return [Check("taken back", ok=True, text=f"{text}: the model is out of date by {many}")]
    return [Check("taken back", ok=False, text=f"{text}: go on with the campaign")]


def _before_growth(claim: ActiveClaim, ground: Sequence[Ground]) -> list[str]:
    """What speaks against the attempt that is evidence: it was drawn before the store had all rows.

    No draw of a later one can stand before the line that says so: that is refused as the log is read.
    """
    now = ground[-1]
    if claim.evidence is None or claim.evidence.attempt >= now.attempt:
        return []
    text = (
        f"attempt {claim.evidence.attempt} was drawn before line {now.line} says that the store has {now.rows:,} rows"
    )
    return [f"{text}: attempts that are drawn from them begin with {now.attempt}"]


def _final_attempt(claim: ActiveClaim, lines: Sequence[Line]) -> list[str]:
    """What speaks against the attempt that is evidence: it is new, and nothing else was answered while it was on."""
    evidence, drawn = claim.evidence, set(claim.draws_ids.tolist())
    if evidence is None or not drawn:
        return []
    attempt = evidence.attempt
    mine = (k for k, line in enumerate(lines) if line.attempt == attempt)  # who passes a draw over has seen it
    first = next(mine, None)
    if first is None:
        return [f"model claims attempt {attempt}, of which the log has no draw"]
    problems = [
        f"line {line.number} is about a draw of attempt {line.attempt}: attempt {attempt} is not the last"
        for line in lines
        if line.attempt is not None and line.attempt > attempt
    ][:1]
    seen, unsure, own = set[int](), unsure_of(lines[:first]), claim.hash
    for line in lines[first:]:
        if line.attempt == attempt and line.tried != own:
            said = "none" if line.tried is UNSET else f"{line.tried[:16]}..."
            text = f"line {line.number} is about a draw that is to try the model's hypothesis, of hash {own[:16]}..."
            problems.append(f"{text}, found {said}")
        if line.action in _ASIDE:
            new = {line.row} - seen - unsure if line.action == "unsure" else set[int]()
            if new and line.attempt != attempt:
                text = f"line {line.number} sets row {line.row} aside while attempt {attempt} was on: it is void"
                problems.append(text)
            unsure |= new
            continue
        if line.action != "label":
            text = f"line {line.number} ({line.action}) changes the answer about row {line.row}"
            problems.append(f"{text} while attempt {attempt} was on: it is void")
        elif line.row in unsure:
            text = f"line {line.number} answers about row {line.row}, which was set aside or taken back before,"
            problems.append(f"{text} while attempt {attempt} was on: it is void")
        elif line.attempt != attempt or line.row not in drawn:
            text = f"line {line.number} answers about row {line.row}, no draw of the model's,"
            problems.append(f"{text} while attempt {attempt} was on: it is void")
        seen.add(line.row)
        del problems[_TOLD:]
    if missing := sorted(drawn - seen):
        problems.append(f"{listed(missing)} answered before attempt {attempt} began, and yet draws of it")
    return problems[:_TOLD]


def _earlier(claim: ActiveClaim, rows: Rows, lines: Sequence[Line], ground: Sequence[Ground]) -> list[str]:
    """Which draws in the log no generator has drawn, of attempts that are not the model's evidence."""
    final = None if claim.evidence is None else claim.evidence.attempt
    wanted: dict[int, set[int]] = {}
    for line in lines:
        if line.attempt is not None and line.attempt != final:
            wanted.setdefault(line.attempt, set()).add(line.row)
    problems, walked = list[str](), _Walked(claim, _WALKED + 10 * len(lines))
    known, more = set[int](), sum(line.action == "unsure" for line in lines)
    for line in lines:
        those = wanted.pop(line.attempt, None) if line.attempt is not None else None
        if those is not None and line.attempt is not None:
            strange = sorted(
                those - _could_draw(walked, Then.at(rows, ground, line.attempt), line.attempt, those, known, more)
            )
            if strange:
                text = f"{listed(strange)} no draw of attempt {line.attempt} by seed {claim.seed} and the store"
                problems.append(text)
            if len(problems) == _TOLD:
                break
        if line.action != "skip":
            known.add(line.row)
    return problems


@dataclass
class _Walked:
    """How many draws may still be gone over for the attempts of a log, so that none takes for ever."""

    claim: ActiveClaim
    left: int

    def spend(self, draws: int) -> None:
        """Raises DataError where there have been too many."""
        self.left -= draws
        if self.left < 0:
            raise DataError(
                f"{self.claim.path}: expected draws among the first ones of their attempts, found attempts without "
                "number that name others; get an unaltered copy"
            )


def _could_draw(walked: _Walked, rows: Then, attempt: int, wanted: set[int], known: set[int], more: int) -> set[int]:
    """Which of the rows an attempt can have drawn.

    known: those that were answered, or unsure, when its first draw was told of. Rows that were answered since it began
    are passed over here and were not then; others take the places of unsure ones: so at most ``more`` are drawn. By
    class that leaves every row, as nobody knows which class the model gave it then.
    """
    claim, found, possible = replace(walked.claim, store_digest=rows.digest), set[int](), wanted - known
    if claim.by_class:
        ids = np.array(sorted(possible), np.int64)
        return set(ids[(ids < rows.rows) & rows.weigh(np.minimum(ids, rows.rows - 1))].tolist())
    log = math.log(attempt) + math.log(attempt + 1) - math.log(1.0 - claim.confidence)
    needed = claim.trial or 2 + log / claim.error * (1 + 1e-6)  # no attempt needs more draws, whatever the store has
    most = min(rows.rows, needed)
    for count, row in enumerate(fresh(claim, rows, attempt, known, walked.spend) if possible else (), 1):
        if row in possible:
            found.add(row)
        if count >= most + more or len(found) == len(possible):
            break
    return found
