"""Checks that the log of a campaign agrees with its model; reading the log has checked its hash chain."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from coremargin.errors import DataError
from coremargin.formats.answers import Vote
from coremargin.formats.current_answers import classes_of, effective, replay, same
from coremargin.verify.active.draws import draw_order
from coremargin.verify.checks import Check
from coremargin.verify.store import listed

if TYPE_CHECKING:
    from coremargin.formats.answers import Line
    from coremargin.formats.campaign import CampaignSettings
    from coremargin.formats.model_record import StoreHash
    from coremargin.verify.active.claim import ActiveClaim, History
    from coremargin.verify.rows import Rows


@dataclass(frozen=True)
class Commit:
    """A commit; line: of the log that names it, 0 for that of the campaign's file; attempt: the first drawn from it."""

    line: int
    rows: int
    digest: str
    attempt: int
    sha256: StoreHash | None

    @property
    def place(self) -> str:
        """The place in the log or file that names it."""
        return f"line {self.line} (grow)" if self.line else "the campaign"


def commits_of(history: History, last: int) -> list[Commit]:
    """The commits named up to a line of the log."""
    begun = history.settings
    first = Commit(0, begun.rows, begun.digest, 1, begun.store_sha256)
    growths = (line for line in history.answers.growths if line.number <= last)
    later = (Commit(one.number, one.rows, one.digest, one.attempt, one.store_sha256 or None) for one in growths)
    return [first, *later]


def growth_checks(rows: Rows, commits: Sequence[Commit]) -> list[Check]:
    """Whether each commit but the last, which is the model's own, is the beginning of the rows; after a scan of them.

    Nothing if there is only one.
    """
    problems, known = list[str](), {(commit.rows, commit.digest) for commit in rows.commits}
    for one in commits[:-1]:
        if len(problems) == _SHOWN:
            break
        if (one.rows, one.digest) not in known:
            problems.append(f"{one.place} names {one.rows:,} rows, {one.digest}: the store has no such commit")
        elif (found := rows.beginning(one.digest)) != one.digest:
            text = f"the store's first {one.rows:,} rows are {found}: more was done than to append rows"
            problems.append(f"{one.place} names {one.digest}, {text}")
        elif one.sha256 is not None:
            sha256 = rows.sha256_of_beginning(one.digest, one.sha256.chunk_rows)
            if sha256 not in (one.sha256.digest, ""):
                text = f"the store's first {one.rows:,} rows have {sha256}, with the same CRC-32C: some were replaced"
                problems.append(f"{one.place} names SHA-256 {one.sha256.digest}, {text}")
    if len(commits) < 2:
        return []
    steps = f"from {commits[0].rows:,} rows to {commits[-1].rows:,}, those from before unchanged"
    return [Check("growth", not problems, "; ".join(problems) or steps)]


@dataclass(frozen=True)
class RowsThen:
    """The rows of a store at an earlier commit."""

    now: Rows
    rows: int
    digest: str

    @classmethod
    def at(cls, rows: Rows, commits: Sequence[Commit], attempt: int) -> RowsThen:
        """The commit that an attempt was drawn from."""
        of = commits[bisect_right(commits, attempt, key=lambda one: one.attempt) - 1]
        return cls(rows, of.rows, of.digest)

    def weigh(self, rows: np.ndarray) -> np.ndarray:
        """Whether each of these rows (n,) has a weight above 0."""
        return self.now.weigh(rows)


_NAMES = 200  #: characters of the names that a line has


def votes_checks(history: History, lines: Sequence[Line]) -> list[Check]:
    """Whether votes have settled each label of these lines; nothing where one person is asked about a row.

    Examples, and labels of the one who settles what people disagree about, need no votes, and are counted apart.
    """
    settings = history.settings
    if settings.people is None or history.votes is None:
        return []
    votes, settled, others, problems = dict[int, list[Vote]](), 0, 0, list[str]()
    for vote in history.votes.entries:
        votes.setdefault(vote.row, []).append(vote)
    for line in lines:
        if line.action != "label":
            continue
        if line.who == settings.settle or (line.why == "example" and line.id is UNSET):
            others += 1
        else:
            settled += 1
            problem = _unsettled(settings, line, votes.get(line.row, []))
            if problem:
                problems.append(f"line {line.number} gives row {line.row} the label {line.label!r}: {problem}")
    text = f"{settled:,} labels were settled by those of {settings.people} people or more"
    if others:
        text += f"; {others:,} are examples, or of the annotator who settles the rest, which are not voted on"
    text = "; ".join(problems[:_SHOWN]) or text
    return [Check("votes", not problems, text)]


def _unsettled(settings: CampaignSettings, line: Line, votes: Sequence[Vote]) -> str:
    """What speaks against a label, in the light of all votes about its row, in their order; "" for nothing.

    The vote that has settled it was the last one that held then: others may have been taken back after it.
    """
    current, found = dict[str, Vote](), "no vote has settled it"
    for vote in votes:
        current.pop(vote.who, None)
        if vote.action == "label":
            current[vote.who] = vote
        if not current or list(current.values())[-1].id != line.id:
            continue
        agree = [one.who for one in current.values() if same(one.label, line.label)]
        needed = len(current) if settings.settle is not None else len(current) // 2 + 1
        names = ", ".join(agree)[:_NAMES]
        if len(current) < (settings.people or 1) or len(agree) < needed:
            found = f"{len(agree)} of {len(current)} people had voted for it"
        elif names != line.who:
            found = f"{names} had voted for it, not {line.who}"
        else:
            return ""
    return found


_WITHOUT_LABEL = ("skip", "unsure")  #: actions that give no label
_SHOWN = 3  #: problems of one kind that are reported
_WALKED = 4_000_000  #: draws of earlier attempts that are recomputed, and ten a line


def history_checks(claim: ActiveClaim, rows: Rows) -> list[Check]:
    """Checks of a campaign's log; none for a model by itself."""
    history = claim.history
    if history is None:
        return []
    last, lines = claim.last_line, history.answers.lines
    many = len(history.answers.entries)
    if last is None:
        text = "none" if claim.log is None else f"one with the hash {claim.log[:16]}..., which is not there"
        text = f"the last of {many:,} lines that the model is about: expected one of them, found {text}"
        return [same_campaign(claim, history, many), Check("log", ok=False, text=text)]
    known, later = claim.known_lines, [line for line in lines if line.number > last]
    text = f"{last:,} lines, each with the hash of the one before; {many - last:,} came after the model"
    commits = commits_of(history, last)
    final = [*_before_growth(claim, commits), *_final_attempt(claim, known)][:_SHOWN]
    earlier = _earlier(claim, rows, known, commits)
    return [
        same_campaign(claim, history, last),
        Check("log", ok=True, text=text),
        *growth_checks(rows, commits),
        same_answers(claim, known),
        *votes_checks(history, known),
        *same_unsure(claim, known),
        *changed_answers_checks(claim, later),
        Check("attempt", *_outcome(final, "no answer but those to its draws came in meanwhile")),
        Check("earlier draws", *_outcome(earlier, "those that the seed and the store draw")),
    ]


def _outcome(problems: list[str], text: str) -> tuple[bool, str]:
    return not problems, "; ".join(problems) or text


def same_campaign(claim: ActiveClaim, history: History, last: int) -> Check:
    """Whether the campaign's file names the parameters, the store and the classes that the model does.

    Of a store that has grown the log does, by the line that the model is about.
    """
    asked, now, lines = history.settings, commits_of(history, last)[-1], history.lines_up_to(last)
    names = ("method", "epsilon", "error", "confidence", "seed", "intercept")
    pairs = {name: (getattr(claim, name), getattr(asked, name)) for name in names}
    pairs |= {
        "by_class": (claim.by_class, bool(asked.by_class)),
        "hypothesis": (claim.centre, asked.hypothesis == "centre"),
        "multi_class": (claim.at_once is not None, asked.multi_class is not None),
        "loss": (claim.loss or None, asked.loss),
        "C": (claim.cost or None, asked.C),
        "trial": (claim.trial or None, asked.trial),
    }
    pairs["features"] = (claim.stored_features, asked.features)
    pairs["rows"] = (claim.rows, now.rows)
    pairs["store"] = (claim.store_digest, now.digest)
    found, named = claim.store_sha256, now.sha256
    if named is not None and (found is None or found.chunk_rows == named.chunk_rows):
        pairs["SHA-256 of the store"] = (found and found.digest, named.digest)
    pairs["scaling"] = (claim.scaling or None, asked.scaling)
    maps = asked.asked_map
    pairs["map"] = (dict(claim.asked_map), {} if maps is None else maps.parameters())
    pairs["digest of the map"] = (claim.map_digest, asked.map_digest)
    problems = [f"{name}: model says {mine}, campaign {its}" for name, (mine, its) in pairs.items() if mine != its]
    classes, mine = classes_of(lines, asked.classes), list(claim.labels)
    if len(classes) != len(mine) or not all(map(same, classes, mine)):
        problems.append(f"classes: model says {mine}, campaign and log {classes}")
    text = f"seed {claim.seed}, a share of {claim.error}, confidence {claim.confidence}"
    return Check("campaign", *_outcome(problems, f"the model is that of {text}"))


def _used(claim: ActiveClaim) -> dict[int, int]:
    """Maps each row that the model records as answered to the index of its class."""
    pairs = (claim.answered, claim.draws)
    return {int(row): int(code) for part in pairs for row, code in zip(part.ids, part.codes, strict=True)}


def same_answers(claim: ActiveClaim, lines: Sequence[Line]) -> Check:
    """Check that the model's answers are exactly those of the log."""
    used, logged = _used(claim), {row: claim.code_of(label) for row, label in effective(lines).items()}
    problems = []
    if strange := sorted(set(used) - set(logged)):
        problems.append(f"{listed(strange)} answered as the model says, not as the log does")
    if left_out := sorted(set(logged) - set(used)):
        problems.append(f"{listed(left_out)} answered in the log, and not in the model")
    if other := sorted(row for row in set(used) & set(logged) if used[row] != logged[row]):
        problems.append(f"{listed(other)} answered otherwise in the log")
    return Check("answers", *_outcome(problems, f"all {len(used):,} are in the log, as the model has them"))


def same_unsure(claim: ActiveClaim, lines: Sequence[Line]) -> list[Check]:
    """Check that the rows that no annotator could label are those of the log; no check if there are none."""
    mine, logged = set(claim.unsure.tolist()), replay(lines).unsure
    problems = []
    if strange := sorted(mine - logged):
        problems.append(f"{listed(strange)} unsure as the model says, not as the log does")
    if left_out := sorted(logged - mine):
        problems.append(f"{listed(left_out)} unsure by the log, and not in the model")
    text = f"all {len(mine):,} that no annotator could label, or that were taken back, are in the log"
    return [Check("unsure rows", *_outcome(problems, text))] if mine or logged else []


def changed_answers_checks(claim: ActiveClaim, later: Sequence[Line]) -> list[Check]:
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
        lines = sum(line.action not in _WITHOUT_LABEL for line in later)
        many = f"{lines:,} line{'s' * (lines > 1)}"
        return [Check("taken back", ok=True, text=f"{text}: the model is out of date by {many}")]
    return [Check("taken back", ok=False, text=f"{text}: continue the campaign")]


def _before_growth(claim: ActiveClaim, commits: Sequence[Commit]) -> list[str]:
    """Problems of the attempt that is evidence: it was drawn before the store had all rows.

    No draw of a later one can stand before the line that says so: that is refused as the log is read.
    """
    now = commits[-1]
    if claim.evidence is None or claim.evidence.attempt >= now.attempt:
        return []
    text = (
        f"attempt {claim.evidence.attempt} was drawn before line {now.line} says that the store has {now.rows:,} rows"
    )
    return [f"{text}: attempts that are drawn from them begin with {now.attempt}"]


def _final_attempt(claim: ActiveClaim, lines: Sequence[Line]) -> list[str]:
    """Problems of the attempt that is evidence: it is not the last, or other answers came while it was on."""
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
    seen, unsure, own = set[int](), replay(lines[:first]).unsure, claim.hash
    for line in lines[first:]:
        if line.attempt == attempt and line.tried != own:
            checksum = "none" if line.tried is UNSET else f"{line.tried[:16]}..."
            text = f"line {line.number} is about a draw that is to try the model's hypothesis, of hash {own[:16]}..."
            problems.append(f"{text}, found {checksum}")
        if line.action in _WITHOUT_LABEL:
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
        del problems[_SHOWN:]
    if missing := sorted(drawn - seen):
        problems.append(f"{listed(missing)} answered before attempt {attempt} began, and yet draws of it")
    return problems[:_SHOWN]


def _earlier(claim: ActiveClaim, rows: Rows, lines: Sequence[Line], commits: Sequence[Commit]) -> list[str]:
    """Draws of earlier attempts in the log that the generator does not produce."""
    final = None if claim.evidence is None else claim.evidence.attempt
    wanted: dict[int, set[int]] = {}
    for line in lines:
        if line.attempt is not None and line.attempt != final:
            wanted.setdefault(line.attempt, set()).add(line.row)
    problems, budget = list[str](), _DrawBudget(claim, _WALKED + 10 * len(lines))
    known, more = set[int](), sum(line.action == "unsure" for line in lines)
    for line in lines:
        those = wanted.pop(line.attempt, None) if line.attempt is not None else None
        if those is not None and line.attempt is not None:
            then = RowsThen.at(rows, commits, line.attempt)
            strange = sorted(those - _could_draw(budget, then, line.attempt, those, known, more))
            if strange:
                text = f"{listed(strange)} no draw of attempt {line.attempt} by seed {claim.seed} and the store"
                problems.append(text)
            if len(problems) == _SHOWN:
                break
        if line.action != "skip":
            known.add(line.row)
    return problems


@dataclass
class _DrawBudget:
    """The number of draws that may still be recomputed for a log, which bounds the time."""

    claim: ActiveClaim
    left: int

    def spend(self, draws: int) -> None:
        """Count recomputed draws. Raises DataError beyond the limit."""
        self.left -= draws
        if self.left < 0:
            raise DataError(
                f"{self.claim.path}: expected draws among the first ones of their attempts, found attempts without "
                "number that name others; get an unaltered copy"
            )


def _could_draw(
    budget: _DrawBudget, rows: RowsThen, attempt: int, wanted: set[int], known: set[int], more: int
) -> set[int]:
    """Which of the rows an attempt can have drawn.

    known: those that were answered, or unsure, when its first draw was logged. Rows that were answered since it began
    are skipped here and were not then; others take the places of unsure ones: so at most ``more`` are drawn. By
    class that leaves every row, as the class that the model gave it then is unknown.
    """
    claim, found, possible = replace(budget.claim, store_digest=rows.digest), set[int](), wanted - known
    if claim.by_class:
        ids = np.array(sorted(possible), np.int64)
        return set(ids[(ids < rows.rows) & rows.weigh(np.minimum(ids, rows.rows - 1))].tolist())
    log = math.log(attempt) + math.log(attempt + 1) - math.log(1.0 - claim.confidence)
    needed = claim.trial or 2 + log / claim.error * (1 + 1e-6)  # no attempt needs more draws, whatever the store has
    most = min(rows.rows, needed)
    for count, row in enumerate(draw_order(claim, rows, attempt, known, budget.spend) if possible else (), 1):
        if row in possible:
            found.add(row)
        if count >= most + more or len(found) == len(possible):
            break
    return found
