"""Whether the log of a campaign says what its model does: answers, attempts, draws. That it is a chain was read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.answers import classes_of, effective, same
from coremargin.verify.active.claim import Signed
from coremargin.verify.active.draws import fresh
from coremargin.verify.checks import Check
from coremargin.verify.store import listed

if TYPE_CHECKING:
    from coremargin.formats.answers import Line
    from coremargin.verify.active.claim import ActiveClaim, History
    from coremargin.verify.rows import Rows

_ASIDE = ("skip", "unsure")  #: what says nothing of a row's label


def last_line(claim: ActiveClaim, history: History) -> int | None:
    """How many lines of the log the model is about, None for lines that are not there."""
    hashes = history.answers.hashes
    return hashes.index(claim.log) + 1 if claim.log in hashes else None


def with_late(claim: ActiveClaim) -> ActiveClaim:
    """The claim with the rows that were answered after the lines that the model is about."""
    history = claim.history
    last = None if history is None else last_line(claim, history)
    if history is None or last is None:
        return claim
    before, now = (effective(lines) for lines in (history.answers.lines[:last], history.answers.lines))
    rows = sorted(set(now) - set(before))
    signs = np.array([_sign(claim, now[row]) for row in rows], np.int64)
    return replace(claim, late=Signed(np.array(rows, np.int64), signs))


def history_checks(claim: ActiveClaim, rows: Rows) -> list[Check]:
    """What is checked of a campaign without the store's rows; nothing for a model by itself."""
    history = claim.history
    if history is None:
        return []
    last, lines = last_line(claim, history), history.answers.lines
    if last is None:
        text = "none" if claim.log is None else f"one with the hash {claim.log[:16]}..., which is not there"
        text = f"the last of {len(lines):,} lines that the model is about: expected one of them, found {text}"
        return [same_campaign(claim, history, lines), Check("log", ok=False, text=text)]
    known, later = lines[:last], lines[last:]
    text = f"{last:,} lines, each with the hash of the one before; {len(later):,} came after the model"
    return [
        same_campaign(claim, history, known), Check("log", ok=True, text=text),
        same_answers(claim, known), *untouched(claim, later),
        Check("attempt", *_told(_final_attempt(claim, known), "no answer but those to its draws came in meanwhile")),
        Check("earlier draws", *_told(_earlier(claim, rows, known), "those that the seed and the store draw")),
    ]  # fmt: skip


def _told(problems: list[str], text: str) -> tuple[bool, str]:
    return not problems, "; ".join(problems) or text


def same_campaign(claim: ActiveClaim, history: History, lines: Sequence[Line]) -> Check:
    """Whether the campaign's file names the parameters, the store and the classes that the model does."""
    asked = history.campaign
    names = ("rows", "features", "method", "epsilon", "error", "confidence", "seed", "intercept")
    pairs = {name: (getattr(claim, name), getattr(asked, name)) for name in names}
    pairs["store"] = (claim.store_digest, asked.digest)
    pairs["scaling"] = (claim.scaling or None, asked.scaling)
    problems = [f"{name}: model says {mine}, campaign {its}" for name, (mine, its) in pairs.items() if mine != its]
    classes, mine = classes_of(lines, asked.classes), [claim.negative, claim.positive]
    if len(classes) != len(mine) or not all(map(same, classes, mine)):
        problems.append(f"classes: model says {mine}, campaign and log {classes}")
    text = f"seed {claim.seed}, a share of {claim.error}, confidence {claim.confidence}"
    return Check("campaign", *_told(problems, f"the model is that of {text}"))


def _sign(claim: ActiveClaim, label: Any) -> int:
    """The side of a label, 0 for a strange one."""
    return -1 if same(label, claim.negative) else 1 if same(label, claim.positive) else 0


def _used(claim: ActiveClaim) -> dict[int, int]:
    """Row -> side, of all rows that the model says are answered."""
    pairs = (claim.answered, claim.draws)
    return {int(row): int(sign) for part in pairs for row, sign in zip(part.ids, part.signs, strict=True)}


def same_answers(claim: ActiveClaim, lines: Sequence[Line]) -> Check:
    """Whether the model's answers are those of the log: every one, and no others."""
    used, logged = _used(claim), {row: _sign(claim, label) for row, label in effective(lines).items()}
    problems = []
    if strange := sorted(set(used) - set(logged)):
        problems.append(f"{listed(strange)} answered as the model says, not as the log does")
    if left_out := sorted(set(logged) - set(used)):
        problems.append(f"{listed(left_out)} answered in the log, and not in the model")
    if other := sorted(row for row in set(used) & set(logged) if used[row] != logged[row]):
        problems.append(f"{listed(other)} answered otherwise in the log")
    return Check("answers", *_told(problems, f"all {len(used):,} are in the log, as the model has them"))


def untouched(claim: ActiveClaim, later: Sequence[Line]) -> list[Check]:
    """A failed check if an answer that the model uses was changed after it was made."""
    used = _used(claim)
    changed = [line for line in later if line.action in ("undo", "correct") and line.row in used]
    if not changed:
        return []
    one = changed[0]
    text = f"line {one.number} ({one.action}) changes the answer about row {one.row}, which the model uses"
    return [Check("taken back", ok=False, text=f"{text}: go on with the campaign")]


def _final_attempt(claim: ActiveClaim, lines: Sequence[Line]) -> list[str]:
    """What speaks against the attempt that is evidence: it is new, and nothing else was answered while it was on."""
    evidence, drawn = claim.evidence, set(claim.draws_ids.tolist())
    if evidence is None or not drawn:
        return []
    attempt = evidence.attempt
    mine = (k for k, line in enumerate(lines) if line.attempt == attempt and line.action not in _ASIDE)
    first = next(mine, None)
    if first is None:
        return [f"model claims attempt {attempt}, of which the log has no draw"]
    problems = [
        f"line {line.number} is about a draw of attempt {line.attempt}: attempt {attempt} is not the last"
        for line in lines
        if line.attempt is not None and line.attempt > attempt
    ][:1]
    seen = set[int]()
    for line in lines[first:]:
        if line.action in _ASIDE:
            continue
        if line.action != "label":
            text = f"line {line.number} ({line.action}) changes the answer about row {line.row}"
            problems.append(f"{text} while attempt {attempt} was on: it is void")
        elif line.attempt != attempt or line.row not in drawn:
            text = f"line {line.number} answers about row {line.row}, no draw of the model's,"
            problems.append(f"{text} while attempt {attempt} was on: it is void")
        seen.add(line.row)
    if missing := sorted(drawn - seen):
        problems.append(f"{listed(missing)} answered before attempt {attempt} began, and yet draws of it")
    return problems[:3]


def _earlier(claim: ActiveClaim, rows: Rows, lines: Sequence[Line]) -> list[str]:
    """Which draws in the log no generator has drawn, of attempts that are not the model's evidence."""
    final = None if claim.evidence is None else claim.evidence.attempt
    wanted: dict[int, set[int]] = {}
    before: dict[int, int] = {}
    for k, line in enumerate(lines):
        if line.attempt is not None and line.attempt != final:
            wanted.setdefault(line.attempt, set()).add(line.row)
            before.setdefault(line.attempt, k)
    problems = []
    for attempt, those in wanted.items():
        if strange := sorted(those - _could_draw(claim, rows, attempt, lines[: before[attempt]], those)):
            problems.append(f"{listed(strange)} no draw of attempt {attempt} by seed {claim.seed} and the store")
    return problems[:3]


def _could_draw(claim: ActiveClaim, rows: Rows, attempt: int, lines: Sequence[Line], wanted: set[int]) -> set[int]:
    """Which of the rows an attempt can have drawn that began before these lines ended.

    Rows that were answered since are passed over here and were not then, and those taken back since were: so at most as
    many more are drawn as were taken back.
    """
    log = math.log(attempt) + math.log(attempt + 1) - math.log(1.0 - claim.confidence)
    most = min(rows.rows, 2 + log / claim.error * (1 + 1e-6))  # no attempt needs more draws, whatever the store has
    most += sum(line.action == "undo" for line in lines)
    found = set[int]()
    for count, row in enumerate(fresh(claim, rows, attempt, effective(lines)), 1):
        if row in wanted:
            found.add(row)
        if count >= most or len(found) == len(wanted):
            break
    return found
