"""The page of a registry: who is the champion, all versions, what gates found, how rows drifted, the last nights."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from coremargin.data.files import write_whole
from coremargin.errors import DataError, ExpiryRefused, FilesQuarantined, GateRefused, raise_if_limit
from coremargin.formats.versions import CHAMPION, MOVES, Night
from coremargin.registry.charts import NightMark, ScoreMark, nights, scores
from coremargin.registry.difference import difference
from coremargin.report import charts, numbers, page
from coremargin.report.influence import influence
from coremargin.report.view import moment
from coremargin.version import version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from coremargin.formats.versions import Line, VersionRecord
    from coremargin.registry.difference import Difference
    from coremargin.registry.registry import Registry, Standing

NIGHTS, VERSIONS, LINES, FEATURES = 30, 40, 25, 10  # that are shown
_DECIDED = ("passed", "refused")


def write_page(registry: Registry, out: Path, *, store: Path | None = None) -> None:
    """Write the page, a file that appears whole; store: where rows are, if not where they were. Raises OutputError."""
    write_whole(out, [render(registry, store=store).encode("utf-8", "backslashreplace")])


def render(registry: Registry, *, store: Path | None = None) -> str:
    """The page as text. Raises DataError."""
    standing = registry.standing()
    records = {number: registry.record(number, standing) for number in standing.numbers}
    alias = standing.aliases.get(CHAMPION)
    champion = None if alias is None else alias.version
    newest = standing.numbers[-1] if standing.numbers else None
    found = _drift(registry, standing, champion, newest, store)
    decisions = [line for line in standing.lines if line.did in _DECIDED and line.version in records]
    past = [(line, line.night) for line in standing.lines if isinstance(line.night, Night)][-NIGHTS:]
    view: dict[str, Any] = {
        "name": registry.path.name,
        "path": str(registry.path),
        "place": shlex.quote(str(registry.path)),
        "software": version(),
        "champion": records.get(champion or 0),
        "since": _since(standing, champion),
        "before": standing.before(CHAMPION),
        "versions": _versions(standing, records),
        "left_out": max(0, len(records) - VERSIONS),
        "decisions": [_decision(line) for line in reversed(decisions[-6:])],
        "refused": _refused(standing),
        "nights": [_night(line, night) for line, night in reversed(past)],
        "nights_chart": _nights_chart(past),
        "scores": _scores(decisions),
        "drift": found,
        "drift_chart": _drift_chart(found),
        "lines": [_told(line) for line in reversed(standing.lines[-LINES:])],
        "aliases": {name: one.version for name, one in standing.aliases.items()},
        "count": len(records),
    }
    return page.template("registry/page.html.j2").render(view)


def _since(standing: Standing, champion: int | None) -> str:
    """When the champion became it."""
    moves = (line for line in reversed(standing.lines) if line.did in MOVES and line.alias == CHAMPION)
    line = next(moves, None)
    return numbers.DASH if line is None or champion is None else moment(line.when)


def _refused(standing: Standing) -> int:
    return len({line.version for line in standing.lines if line.did == "refused"})


def _versions(standing: Standing, records: Mapping[int, VersionRecord]) -> list[dict[str, Any]]:
    found = []
    for number in reversed(standing.numbers[-VERSIONS:]):
        record, decision = records[number], standing.decision(number)
        gates = [] if decision is None or decision.gates is UNSET else decision.gates
        found.append(
            {
                "record": record,
                "names": standing.names(number),
                "made": moment(record.made),
                "problem": record.problem.replace("_", " "),
                "decision": None if decision is None else decision.did,
                "why": "" if decision is None else decision.why,
                "gates": f"{sum(gate.ok for gate in gates)} of {len(gates)}" if gates else numbers.DASH,
            }
        )
    return found


def _decision(line: Line) -> dict[str, Any]:
    gates = [] if line.gates is UNSET else line.gates
    figures = [[] if gate.figures is UNSET else list(gate.figures.items()) for gate in gates]
    return {
        "version": line.version,
        "did": line.did,
        "when": moment(line.when),
        "was": line.was if isinstance(line.was, int) else None,
        "gates": [{"gate": gate, "figures": own} for gate, own in zip(gates, figures, strict=True)],
    }


_DONE_ALL_THE_SAME = {error.exit_code for error in (GateRefused, FilesQuarantined, ExpiryRefused)}


def _kind(night: Night) -> str:
    return "good" if not night.exit_code else "refused" if night.exit_code in _DONE_ALL_THE_SAME else "failed"


def _night(line: Line, night: Night) -> dict[str, Any]:
    return {"when": moment(line.when), "night": night, "kind": _kind(night)}


def _nights_chart(past: Sequence[tuple[Line, Night]]) -> Markup | None:
    if not past:
        return None
    marks = [
        NightMark(moment(line.when)[5:10], night.rows, _kind(night), f"{moment(line.when)}: {night.told}")
        for line, night in past
    ]
    return charts.drawings(charts.FULL, partial(nights, marks))


def _scores(decisions: Sequence[Line]) -> list[dict[str, Any]]:
    """A chart for each score that gates ask for, where there are two versions at least."""
    found = []
    for name, title in (("accuracy", "Accuracy"), ("f1", "F1"), ("balanced_accuracy", "Balanced accuracy")):
        marks = dict[int, ScoreMark]()
        for line in decisions:
            gate = next((one for one in line.gates or () if one.name == name), None)
            if gate is not None and gate.found is not None and line.version is not None:
                marks[line.version] = ScoreMark(
                    line.version, float(gate.found), float(gate.asked or 0.0), line.did == "passed"
                )
        shown = list(marks.values())[-NIGHTS:]
        if len(shown) > 1:
            chart = charts.drawings(charts.HALF, partial(scores, shown, title))
            found.append({"title": title, "chart": chart})
    return found


def _drift(
    registry: Registry, standing: Standing, champion: int | None, newest: int | None, store: Path | None
) -> Difference | None:
    """From the champion's rows to the newest version's or, where that is the champion, from its predecessor's."""
    if champion is None or newest is None:
        return None
    old = champion if champion != newest else standing.before(CHAMPION)
    if old is None or old == newest or old not in standing.numbers:
        return None
    try:
        return difference(registry, old, newest, store=store)
    except (DataError, OSError) as error:
        raise_if_limit(error)
        return None


def _drift_chart(found: Difference | None) -> Markup | None:
    if found is None or found.drift is None:
        return None
    moved = [
        (one.feature, one.moved) for one in found.drift.features[:FEATURES] if numbers.finite(one.moved) is not None
    ]
    if not any(by for _, by in moved):
        return None
    title = "How far means of features moved, in standard deviations of the rows before"
    return charts.drawings(charts.FULL, partial(influence, "drift", moved, "the rows that came", title=title))


def _told(line: Line) -> dict[str, Any]:
    """A line of the log, in words."""
    words = {"passed": "passed its gates", "refused": "was refused", "trained": "was trained", "removed": "was removed"}
    text = f"Version {line.version} {words.get(line.did, line.did)}"
    if line.alias is not UNSET:
        became = "became" if line.did == "promoted" else "became again"
        text = f"Version {line.version} {became} the {line.alias}"
    if line.out is not UNSET:
        text = f"Version {line.version} labelled {line.out}"
    if isinstance(line.night, Night):
        text = f"A night, exit code {line.night.exit_code}"
    why = line.night.told if isinstance(line.night, Night) else line.why
    return {"number": line.number, "when": moment(line.when), "who": line.who, "text": text, "why": why}
