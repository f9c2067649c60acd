"""The HTML page of a registry: champion, versions, gates, drift, recent runs and the log."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from coremargin.data.files import write_whole
from coremargin.errors import DataError, ExpiryRefused, FilesQuarantined, GateRefused, raise_if_limit
from coremargin.formats.location import last_name, storage_words
from coremargin.formats.versions import CHAMPION, MOVES, ScheduledRun
from coremargin.registry.difference import difference
from coremargin.report import charts, numbers, page, svg
from coremargin.report.influence import influence
from coremargin.report.svg import Frame, Scale
from coremargin.report.view import moment
from coremargin.version import version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from markupsafe import Markup

    from coremargin.formats.location import Location
    from coremargin.formats.versions import Line, VersionRecord
    from coremargin.registry.difference import Difference
    from coremargin.registry.registry import Registry, RegistryState

RUNS, VERSIONS, LINES, FEATURES, DECISIONS = 30, 40, 25, 10, 6  # shown at most
_DATE_SPACING, _NUMBER_SPACING = 76.0, 34.0  # pixels between two labels of an axis, at least
_PARTLY_DONE = {error.exit_code for error in (GateRefused, FilesQuarantined, ExpiryRefused)}


def write_page(registry: Registry, out: Path, *, store: Path | Location | None = None) -> None:
    """Write the page atomically; store: path of the store, if it has moved. Raises OutputError."""
    write_whole(out, [render(registry, store=store).encode("utf-8", "backslashreplace")])


def render(registry: Registry, *, store: Path | Location | None = None) -> str:
    """The page as HTML. Raises DataError."""
    state = registry.state()
    records = {number: registry.record(number, state) for number in state.numbers}
    champion = state.version_of(CHAMPION)
    promotion = next((line for line in reversed(state.lines) if line.action in MOVES and line.alias == CHAMPION), None)
    drift = _compare_with_champion(registry, state, store)
    decisions = [line for line in state.lines if line.action in ("passed", "refused") and line.version in records]
    runs = [(line, line.run) for line in state.lines if isinstance(line.run, ScheduledRun)][-RUNS:]
    view: dict[str, Any] = {
        "name": last_name(registry.path),
        "path": str(registry.path),
        "place": shlex.quote(str(registry.path)),
        "options": "".join(f" {shlex.quote(word)}" for word in storage_words(registry.path)),
        "software": version(),
        "champion": records.get(champion or 0),
        "since": numbers.DASH if promotion is None or champion is None else moment(promotion.when),
        "previous": state.previous_version(CHAMPION),
        "versions": _version_rows(state, records),
        "omitted": max(0, len(records) - VERSIONS),
        "decisions": [_decision_row(line) for line in reversed(decisions[-DECISIONS:])],
        "refused": len({line.version for line in state.lines if line.action == "refused"}),
        "runs": [{"when": moment(line.when), "run": run, "outcome": _outcome(run)} for line, run in reversed(runs)],
        "runs_chart": _runs_chart(runs),
        "scores": _score_charts(decisions),
        "drift": drift,
        "drift_chart": _drift_chart(drift),
        "lines": [_log_row(line) for line in reversed(state.lines[-LINES:])],
        "aliases": {name: one.version for name, one in state.aliases.items()},
        "count": len(records),
    }
    return page.template("registry/page.html.j2").render(view)


def _version_rows(state: RegistryState, records: Mapping[int, VersionRecord]) -> list[dict[str, Any]]:
    rows = []
    for number in reversed(state.numbers[-VERSIONS:]):
        record, decision = records[number], state.decision(number)
        gates = [] if decision is None or decision.gates is UNSET else decision.gates
        rows.append(
            {
                "record": record,
                "aliases": state.aliases_of(number),
                "created": moment(record.created),
                "problem": record.problem.replace("_", " "),
                "decision": None if decision is None else decision.action,
                "reason": "" if decision is None else decision.comment,
                "gates": f"{sum(gate.ok for gate in gates)} of {len(gates)}" if gates else numbers.DASH,
            }
        )
    return rows


def _decision_row(line: Line) -> dict[str, Any]:
    gates = [] if line.gates is UNSET else line.gates
    figures = [[] if gate.figures is UNSET else list(gate.figures.items()) for gate in gates]
    return {
        "version": line.version,
        "action": line.action,
        "when": moment(line.when),
        "previous": line.previous if isinstance(line.previous, int) else None,
        "gates": [{"gate": gate, "figures": own} for gate, own in zip(gates, figures, strict=True)],
    }


def _log_row(line: Line) -> dict[str, Any]:
    if isinstance(line.run, ScheduledRun):
        text, comment = f"Run, exit code {line.run.exit_code}", line.run.text
    elif line.alias is not UNSET:
        became = "became" if line.action == "promoted" else "became again"
        text, comment = f"Version {line.version} {became} the {line.alias}", line.comment
    elif line.out is not UNSET:
        text, comment = f"Version {line.version} labelled {line.out}", line.comment
    else:
        actions = {"passed": "passed its gates"}
        text, comment = f"Version {line.version} {actions.get(line.action, f'was {line.action}')}", line.comment
    return {"number": line.number, "when": moment(line.when), "who": line.who, "text": text, "comment": comment}


def _outcome(run: ScheduledRun) -> str:
    return "good" if not run.exit_code else "refused" if run.exit_code in _PARTLY_DONE else "failed"


@dataclass(frozen=True)
class RunMark:
    """A run in its chart; outcome: "good", "refused" or "failed"; tip: tooltip."""

    date: str
    rows: int
    outcome: str
    tip: str


def _runs_chart(runs: Sequence[tuple[Line, ScheduledRun]]) -> Markup | None:
    if not runs:
        return None
    marks = [
        RunMark(moment(line.when)[5:10], run.rows, _outcome(run), f"{moment(line.when)}: {run.text}")
        for line, run in runs
    ]
    return charts.drawings(charts.FULL, partial(draw_runs, marks))


def draw_runs(marks: Sequence[RunMark], width: int) -> Markup:
    """A bar for the new rows of each run, coloured by the outcome, with a mark below for runs without rows."""
    frame = Frame(width, 210, 56, 10, 14, 52)
    most = max((mark.rows for mark in marks), default=0)
    y = Scale(0.0, float(max(most, 1)), frame.height - frame.bottom, frame.top)
    step = (frame.width - frame.left - frame.right) / len(marks)
    ticks = [tick for tick in svg.nice_ticks(0.0, float(max(most, 1)), 4) if tick == int(tick)]
    parts = [svg.value_axis(frame, y, ticks, [f"{int(tick):,}" for tick in ticks])]
    base, last_date = frame.height - frame.bottom, -_DATE_SPACING
    for number, mark in enumerate(marks):
        left, wide = frame.left + number * step + step * 0.14, step * 0.72
        top = y(float(mark.rows))
        parts.append(svg.rect(left, top, wide, base - top, f"run-{mark.outcome}"))
        parts.append(svg.rect(left, base + 7, wide, 7.0, f"run-{mark.outcome}"))
        parts.append(svg.rect(frame.left + number * step, frame.top, step, base - frame.top + 16, "hover", mark.tip))
        if left - last_date >= _DATE_SPACING:
            parts.append(svg.text(left + wide / 2, base + 32, mark.date))
            last_date = left
    parts.append(svg.line(frame.left, base, frame.width - frame.right, base, "axis"))
    middle = frame.left + (frame.width - frame.left - frame.right) / 2
    parts.append(svg.text(middle, frame.height - 2, "new rows", "axis-name"))
    bad = sum(mark.outcome != "good" for mark in marks)
    text = f"{len(marks)} runs, {bad} of which failed or were refused by a gate; up to {most:,} new rows."
    return svg.drawing("runs", frame, "The last runs", text, parts)


@dataclass(frozen=True)
class ScoreMark:
    """The score of a version, its limit, and whether the version passed all gates."""

    version: int
    score: float
    limit: float
    passed: bool


def _score_charts(decisions: Sequence[Line]) -> list[dict[str, Any]]:
    """A chart for each score with results of two versions or more."""
    found = []
    for name, title in (("accuracy", "Accuracy"), ("f1", "F1"), ("balanced_accuracy", "Balanced accuracy")):
        marks = dict[int, ScoreMark]()
        for line in decisions:
            gate = next((one for one in line.gates or () if one.name == name), None)
            if gate is not None and gate.value is not None and line.version is not None:
                limit = float(gate.limit or 0.0)
                marks[line.version] = ScoreMark(line.version, float(gate.value), limit, line.action == "passed")
        shown = list(marks.values())[-RUNS:]
        if len(shown) > 1:
            found.append({"title": title, "chart": charts.drawings(charts.HALF, partial(draw_scores, shown, title))})
    return found


def draw_scores(marks: Sequence[ScoreMark], name: str, width: int) -> Markup:
    """A dot for the score of each version, and a line at its limit."""
    frame = Frame(width, 210, 62, 14, 14, 40)
    limits = [mark.limit for mark in marks if mark.limit > 0.0]
    low, high = svg.padded([*(mark.score for mark in marks), *limits])
    y = Scale(low, min(high, 1.0 + (high - low) * 0.05), frame.height - frame.bottom, frame.top)
    step = (frame.width - frame.left - frame.right) / len(marks)
    ticks = [tick for tick in svg.nice_ticks(y.low, y.high, 4) if tick <= 1.0]
    parts = [svg.value_axis(frame, y, ticks, svg.tick_labels(ticks)[0])]
    centres = [frame.left + (number + 0.5) * step for number in range(len(marks))]
    parts.append(svg.path([(x, y(mark.score)) for x, mark in zip(centres, marks, strict=True)], "line-score"))
    base, last_number = frame.height - frame.bottom, -1000.0
    for x, mark in zip(centres, marks, strict=True):
        if mark.limit > 0.0:
            parts.append(svg.line(x - step * 0.36, y(mark.limit), x + step * 0.36, y(mark.limit), "mark-limit"))
        outcome = "run-good" if mark.passed else "run-refused"
        parts.append(svg.tag("circle", cx=x, cy=y(mark.score), r=4.0, class_=outcome))
        tip = f"version {mark.version}: {mark.score:.6g}, required at least {mark.limit:.6g}"
        parts.append(svg.rect(x - step / 2, frame.top, step, base - frame.top, "hover", tip))
        if x - last_number >= _NUMBER_SPACING:
            parts.append(svg.text(x, base + 18, str(mark.version)))
            last_number = x
    parts.append(svg.line(frame.left, base, frame.width - frame.right, base, "axis"))
    parts.append(svg.text((frame.left + frame.width - frame.right) / 2, frame.height - 4, "version", "axis-name"))
    last = marks[-1]
    text = f"{name} of {len(marks)} versions on the held-out rows; version {last.version} has {last.score:.6g}."
    return svg.drawing(f"scores-{name}", frame, f"{name} by version", text, parts)


def _compare_with_champion(
    registry: Registry, state: RegistryState, store: Path | Location | None
) -> Difference | None:
    """From the champion to the newest version; if they are the same, from the previous champion."""
    champion, newest = state.version_of(CHAMPION), state.newest
    if champion is None or newest is None:
        return None
    old = champion if champion != newest else state.previous_version(CHAMPION)
    if old is None or old == newest or old not in state.numbers:
        return None
    try:
        return difference(registry, old, newest, store=store)
    except (DataError, OSError) as error:
        raise_if_limit(error)
        return None


def _drift_chart(found: Difference | None) -> Markup | None:
    if found is None or found.drift is None:
        return None
    features = found.drift.features[:FEATURES]
    shifts = [(one.feature, one.mean_shift) for one in features if numbers.finite(one.mean_shift) is not None]
    if not any(shift for _, shift in shifts):
        return None
    title = "Shift of feature means, in standard deviations of the earlier rows"
    return charts.drawings(charts.FULL, partial(influence, "drift", shifts, "the new rows", title=title))
