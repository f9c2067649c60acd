"""What a campaign tells, and the model that it leaves."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.active.facts import said_of
from coremargin.active.labels import counts_of, lacking
from coremargin.active.queried_rows import passed_of
from coremargin.active.transitions import lacks_classes
from coremargin.data.folder import recover
from coremargin.data.view import columns_of, root
from coremargin.errors import DataError, UsageError
from coremargin.formats.strict_json import cut
from coremargin.learn.record import run_record
from coremargin.maths.margin import ratio
from coremargin.models.files import MODEL
from coremargin.models.registry import load
from coremargin.problems.active.model import evidence_of, found_of, model_of, reason_of
from coremargin.problems.active.warm_start import options_of, started
from coremargin.problems.registry import write_report

if TYPE_CHECKING:
    from coremargin.active.player import Player
    from coremargin.models.active import ActiveModel
    from coremargin.models.active_classes import ActiveClassesModel

PLACE = "model"


def figures(player: Player, awaited: int) -> dict[str, Any]:
    """Where a campaign stands, flat, for machines; awaited: questions without an answer.

    labels_asked: labels that were given, those that were corrected or taken back since, too; labels: those that hold.
    """
    player.count_fetched()
    state, found, lines = player.state, found_of(player.problem, player.state), player.log.lines
    evidence = evidence_of(player.problem, state, player.classes) or {}
    both = found.lower is not None and found.upper is not None and found.upper > 0
    draws = {line.row for line in lines if line.why == "draw"} & set(player.labels)
    passed, lacks = passed_of(lines), lacks_classes(player.problem, state)
    ended = "running" if state.status == "running" else found.status
    return {
        "status": "stopped" if lacks else ended,
        "reason": _lacking(player) if lacks else reason_of(player.problem, state, found),
        "labels_asked": sum(line.label is not None for line in lines),
        "labels": len(player.labels),
        "draws": len(draws),
        "draws_wrong": player.mark.wrong,
        "scans": player.meters.scans,
        "bytes_read": player.meters.bytes_read,
        "store_bytes": root(player.problem.source).nbytes,
        "lower": found.lower,
        "upper": found.upper,
        "ratio": ratio(found.lower, found.upper) if both else None,  # type: ignore[arg-type]
        "error_bound": evidence.get("error_bound"),
        "population": evidence.get("population"),
        "confidence": player.problem.confidence,
        "attempt": state.attempt,
        "draws_open": _draws_open(player),
        "draws_done": int(state.draws.seen.sum()),
        "awaited": awaited,
        "passed": len(passed),
        "passed_rows": sorted(passed),
        "classes": player.classes,
        "rows": player.problem.source.rows,
        "grown": len(player.log.answers.growths),
        "contradiction": _contradiction(player),
        "against_rest": _against(player),
        "answered_by_class": counts_of(player.labels, player.classes),
        "parameters": said_of(player.job),
        "loss": player.job.loss,
        "C": player.job.cost,
        "trial": player.job.trial,
        "by_class": player.job.by_class,
        "evidence": evidence or None,
        "error_least": evidence.get("error_least"),
        "unsure": len(state.unsure),
        "unsure_rows": state.unsure.tolist(),
        "seconds": player.meters.seconds,
        "peak_rss_bytes": player.ran.peak_rss_bytes(),
        "store": player.facts.store,
        "out": str(player.path),
    }


def all_the_same(player: Player) -> str:
    """What is known where there is a class that no answer has, however long people are asked."""
    state, problem = player.state, player.problem
    places, left = state.answered.seen, state.scanned.population - len(state.draws)
    seen = [player.classes[code] for code in places]
    most = _of_the_others(player, left) if left else ""
    head = f"{player.path}: {lacking(player.classes, places, problem.classes, len(player.labels), most)}"
    if left:
        tell = f"give it with `coremargin active tell {player.path} FILE --examples`"
        return f"{head}; if you know one of them, {tell}"
    unsure = len(state.unsure)
    some = " that count" if len(player.labels) + unsure < problem.source.rows else ""  # others are of weight 0
    nobody = f"{some} but those that nobody could label" if unsure else some
    begin = f"begin another campaign without such classes: `{_without(player, seen)}`"
    return f"{head}; all rows{nobody} are answered; {begin if len(seen) > 1 else 'there is nothing to tell apart'}"


def _of_the_others(player: Player, left: int) -> str:
    """How many rows of those left without an answer can be labelled wrongly."""
    state, problem = player.state, player.problem
    parts = problem.trials.parts(state.scanned.sides, state.draws, state.attempt)
    most = sum(part["error_bound"] - part["wrong"] for part in parts)
    return f"with confidence {problem.confidence} at most {most:,} of the other {left:,} rows"


def _without(player: Player, classes: list[Any]) -> str:
    """The command that begins again with these classes."""
    named = ["--classes", ",".join(map(str, classes))]
    return started(player.facts.store, str(player.path), [*named, *options_of(said_of(player.job))])


def _lacking(player: Player) -> str:
    """Which classes no answer has."""
    seen = player.state.answered.seen
    missing = [repr(label) for code, label in enumerate(player.classes) if code not in seen]
    if missing:
        return f"no answer has {cut(', '.join(missing))}"
    return f"all answers are {cut(repr(player.classes[0]))}: no row of a second class is known"


def _draws_open(player: Player) -> int:
    """Draws of the attempt that is on the way which have no answer yet."""
    return int((~player.state.draws.seen).sum())


def _contradiction(player: Player) -> list[dict[str, Any]]:
    """The rows whose hulls meet, and their labels."""
    if player.state.status != "contradiction":
        return []
    pool = player.state.answered
    meeting = pool.ids[pool.weights[:, player.state.failed] > 0]
    return [{"row": int(row), "label": player.labels.get(int(row))} for row in meeting]


def _against(player: Player) -> Any:
    """Of several classes the one that cannot be told from the rest, where answers contradict each other."""
    state = player.state
    return player.classes[state.failed] if state.status == "contradiction" and player.problem.planes > 1 else None


def model_now(player: Player) -> ActiveModel | ActiveClassesModel:
    """The model of the answers so far. Raises UsageError where they are of one class only."""
    if not player.state.answered.both_classes:
        seen = f"{len(player.labels):,}, all of them {player.classes[0]!r}" if player.labels else "none"
        raise UsageError(f"{player.path}: expected answers of two classes, found {seen}; answer more questions")
    found = model_of(player.problem, player.state, player.classes, player.job.parameters(), player.mark.about)
    return found.with_columns(columns_of(player.problem.source))


def save(player: Player, path: Path) -> bool:
    """Write the model of the state; False where there is none."""
    if not player.state.answered.both_classes:
        return False
    model = model_now(player)
    player.count_fetched()
    run = run_record(player.job, player.problem, player.state, player.meters, player.ran)
    report = partial(write_report, name=f"{path.name}/{PLACE}")
    model.save(path / PLACE, run, player.meters.rounds, report=report, overwrite=True)
    return True


def settle_model(player: Player, path: Path) -> None:
    """Leave the model of a campaign that has ended, and none that claims more than the answers say by now.

    Where no answer of one of the classes is left there is no model.
    """
    running = player.state.status == "running"
    if running and not (path / PLACE).exists():
        return
    recover(path / PLACE, MODEL)
    known: tuple[str, str | None] | None = None
    claims = False  # of rows without an answer
    with suppress(DataError):
        model = load(path / PLACE)
        known = model.status, model.record.get("log")
        claims = model.status != "stopped" or model.record.get("evidence") is not None
    ended = found_of(player.problem, player.state).status
    if running:
        if claims and not save(player, path):
            MODEL.remove(path / PLACE)
    elif known != (ended, player.mark.about) and not save(player, path) and known is not None:
        MODEL.remove(path / PLACE)
