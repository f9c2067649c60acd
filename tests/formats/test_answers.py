"""The log of answers and campaign.toml as they lie on disk."""

from __future__ import annotations

import hashlib
import json
import tomllib
from typing import Any

import pytest
import tomli_w

from coremargin.errors import DataError
from coremargin.formats.answers import read_answers
from coremargin.formats.campaign import first_hash, read_campaign
from coremargin.formats.chained import bytes_of
from coremargin.formats.current_answers import check_lines, classes_of, effective, same

FIRST = hashlib.sha256(b"campaign").hexdigest()
FACTS = f"""format = "coremargin-campaign"
version = 1
store = "rows.zarr"
digest = "sha256:{"0" * 64}"
rows = 100
features = 3
method = "coreset"
epsilon = 0.1
error = 0.01
confidence = 0.99
seed = 0
intercept = true
memory = 1000
block = 1000
"""


def log_of(*entries: dict[str, Any]) -> bytes:
    """Lines with numbers and hashes, made with nothing but json and hashlib."""
    data, before = b"", FIRST
    for number, entry in enumerate(entries, start=1):
        values = {
            "number": number, "row": 0, "label": "a", "action": "label", "who": "anna", "when": "2026-11-22T14:00:00Z",
            "why": "query", "attempt": None, "scans": 0, "before": before,
        }  # fmt: skip
        text = json.dumps(values | entry).encode()
        before = hashlib.sha256(text).hexdigest()
        data += text + b"\n"
    return data


def test_a_log_is_read_line_by_line() -> None:
    """Lines come with their hashes; half a line is none; what follows is read on from what is known; written lines have
    the bytes of what was read.
    """
    data = log_of({"row": 3}, {"row": 4, "label": 'b"ü'}, {"row": 3, "label": None, "action": "undo"})
    found = read_answers(data + b'{"number"', FIRST, "log")
    assert [line.row for line in found.lines] == [3, 4, 3]
    assert found.whole == len(data)
    lines = data.split(b"\n")[:-1]
    assert list(found.hashes) == [hashlib.sha256(line).hexdigest() for line in lines]
    assert bytes_of(found.lines[0]) == lines[0]
    head = read_answers(lines[0] + b"\n", FIRST, "log")
    assert read_answers(data[head.whole :], FIRST, "log", after=head) == found
    assert effective(found.lines) == {4: 'b"ü'}
    assert classes_of(found.lines[:2], None) == ["a", 'b"ü']
    assert classes_of(found.lines, None) == ['b"ü']
    assert classes_of(found.lines, ["x", "y"]) == ["x", "y"]
    assert read_answers(b"", FIRST, "log").lines == ()
    assert not same(True, 1)
    assert same(1, 1.0)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"number": 3}, "log, line 2: number: expected 2, found 3"),
        ({"before": "0" * 64}, "log, line 2: hash of the line before: expected [0-9a-f]{64}, found 0000"),
        ({"action": "eat"}, "log, line 2: action: invalid enum value 'eat'"),
        ({"colour": 3}, "log, line 2: unknown key 'colour'"),
        ({"row": -1}, "log, line 2: row: expected int >= 0"),
        ({"row": True}, "log, line 2: row: expected int"),
        ({"label": None}, "expected a label with label and correct only, found None with label"),
        ({"action": "skip"}, "expected a label with label and correct only, found 'a' with skip"),
        ({"why": "draw"}, "expected an attempt with draws only, found None with draw"),
        ({"attempt": 1}, "expected an attempt with draws only, found 1 with query"),
        ({"tried": "5" * 64}, "expected a hypothesis that is tried with draws only, found one with query"),
        ({"when": "today"}, "log, line 2: when: expected str matching regex"),
    ],
)
def test_a_line_that_is_none(entry: dict[str, Any], message: str) -> None:
    """A line with a wrong key, kind or value is refused by its number."""
    with pytest.raises(DataError, match=message):
        read_answers(log_of({}, entry), FIRST, "log")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([{"row": 100}], "line 1: expected a row below 100, found 100"),
        ([{}, {"label": "b"}], "line 2: label: expected one without an answer, found row 0"),
        ([{"action": "undo", "label": None}], "line 1: undo: expected one with an answer, found row 0"),
        ([{"action": "correct"}], "line 1: correct: expected one with an answer"),
        ([{}, {"row": 1, "label": "b"}, {"row": 2, "label": "c"}], "line 3: label: expected 'a' or 'b', found 'c'"),
        ([{}, {"row": 1, "label": 1}], "line 2: label: expected 'a', found 1"),
        ([{"scans": 2}, {"row": 1, "scans": 1}], "line 2: scans: expected at least 2, found 1"),
    ],
)  # fmt: skip
def test_answers_that_do_not_go_together(entries: list[dict[str, Any]], message: str) -> None:
    """Rows beyond the store, a third label and answers that change what is not there are refused by their line."""
    lines = read_answers(log_of(*entries), FIRST, "log").lines
    with pytest.raises(DataError, match=message):
        check_lines(lines, 100, None, "log")


def growth(**values: Any) -> dict[str, Any]:
    """What a line of growth has beside number, who, when and hash; the keys of an answer are taken away."""
    return {"action": "grow", "rows": 150, "digest": f"sha256:{'1' * 64}", "attempt": 1, **values}


def grown(*entries: dict[str, Any]) -> bytes:
    """A log in which lines of growth have no keys of answers."""
    data, before = b"", FIRST
    for line in log_of(*entries).splitlines():
        values = json.loads(line) | {"before": before}
        if values["action"] == "grow":
            values = {key: value for key, value in values.items() if key not in ("row", "label", "why")}
        text = json.dumps(values).encode()
        before = hashlib.sha256(text).hexdigest()
        data += text + b"\n"
    return data


def test_a_line_of_growth_is_none_about_a_row() -> None:
    """It is read among the others, in its place, and written with the same bytes; answers are those about rows; rows
    that it brings may be answered after it and not before.
    """
    data = grown({}, growth(), {"row": 120, "label": "b"})
    found = read_answers(data, FIRST, "log")
    assert [line.number for line in found.entries] == [1, 2, 3]
    assert [line.row for line in found.lines] == [0, 120]
    assert [(line.rows, line.number) for line in found.growths] == [(150, 2)]
    assert json.loads(bytes_of(found.entries[1])) == json.loads(data.splitlines()[1])
    check_lines(found.entries, 100, None, "log")
    assert effective(found.lines) == {0: "a", 120: "b"}
    early = read_answers(grown({}, {"row": 120, "label": "b"}, growth()), FIRST, "log").entries
    with pytest.raises(DataError, match="line 2: expected a row below 100, found 120"):
        check_lines(early, 100, None, "log")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([growth(rows=100)], "line 1: grow: expected more than the 100 rows before, found 100"),
        ([growth(), growth(rows=140)], "line 2: grow: expected more than the 150 rows before, found 140"),
        ([{"why": "draw", "attempt": 2}, growth(attempt=2)], "line 2: grow: attempt: expected one above 2"),
        ([growth(attempt=3), growth(rows=160, attempt=2)], "line 2: grow: attempt: expected one above 2, .* found 2"),
        ([{"scans": 2}, growth(scans=1)], "line 2: scans: expected at least 2, found 1"),
    ],
)  # fmt: skip
def test_growth_that_does_not_go_with_what_was_before(entries: list[dict[str, Any]], message: str) -> None:
    """Fewer rows, or attempts that were drawn before, are refused by their line."""
    lines = read_answers(grown(*entries), FIRST, "log").entries
    with pytest.raises(DataError, match=message):
        check_lines(lines, 100, None, "log")


def test_undone_answers_may_be_given_again() -> None:
    """A row whose answer was taken back is answered again; skipped and unsure rows, too."""
    undo = {"action": "undo", "label": None}
    entries = [
        {},
        undo,
        {},
        {"action": "correct", "label": "b"},
        {"row": 1, "action": "skip", "label": None},
        {"row": 1},
    ]
    lines = read_answers(log_of(*entries), FIRST, "log").lines
    check_lines(lines, 100, ["a", "b"], "log")
    assert effective(lines) == {0: "b", 1: "a"}


def test_a_mistyped_label_is_no_class_for_good() -> None:
    """A class lasts as long as an answer holds it; corrected, the new label has its place; named classes stay."""
    undo = {"action": "undo", "label": None}
    entries = [
        {"label": "hma"}, {"row": 1, "label": "spam"}, {"action": "correct", "label": "ham"},
        {"row": 2, "label": "ham"},
        {"row": 1} | undo, {"row": 3, "label": "eggs"}, {} | undo, {"row": 2} | undo, {"row": 4, "label": "bacon"},
    ]  # fmt: skip
    lines = read_answers(log_of(*entries), FIRST, "log").lines
    check_lines(lines, 100, None, "log")
    assert [classes_of(lines[:count], None) for count in range(1, 10)] == [
        ["hma"], ["hma", "spam"], ["ham", "spam"], ["ham", "spam"], ["ham"], ["ham", "eggs"], ["ham", "eggs"], ["eggs"],
        ["eggs", "bacon"],
    ]  # fmt: skip
    with pytest.raises(DataError, match="line 1: label: expected 'x' or 'y', found 'hma'"):
        check_lines(lines, 100, ["x", "y"], "log")
    third = read_answers(log_of(*entries[:2], {"row": 2, "label": "ham"}), FIRST, "log").lines
    with pytest.raises(DataError, match="line 3: label: expected 'hma' or 'spam', found 'ham'"):
        check_lines(third, 100, None, "log")


def test_a_campaign_is_read_strictly() -> None:
    """Every key is known, every value in its range; a newer format asks for an upgrade; the log goes on from it."""
    found = read_campaign(FACTS.encode(), "campaign.toml")
    assert (found.rows, found.classes, found.scaling) == (100, None, None)
    assert first_hash(FACTS.encode()) == hashlib.sha256(FACTS.encode()).hexdigest()
    for old, new, message in [
        ("version = 1", "version = 2", "expected version 1, found 2; it was made by a newer coremargin: upgrade"),
        ("coremargin-campaign", "coremargin-model", "expected a record of format 'coremargin-campaign'"),
        ("error = 0.01", "error = 1.5", "error: expected float < 1.0; found 1.5"),
        ("seed = 0", "seed = -1", "seed: expected int >= 0; found -1"),
        ("seed = 0", "seed = 0\ncolour = 1", "unknown key 'colour'"),
        ("rows = 100", "", "key 'rows' is missing"),
        ("method = ", "method == ", "expected TOML, cannot be read"),
        ("seed = 0", 'seed = 0\nclasses = ["a", "a"]', "expected different labels of one kind"),
        ("seed = 0", 'seed = 0\nclasses = ["a"]', "classes: expected an? (list|array) of length"),
    ]:
        with pytest.raises(DataError, match=message):
            read_campaign(FACTS.replace(old, new).encode(), "campaign.toml")
    with pytest.raises(DataError, match="expected TOML"):
        read_campaign(b"\xff", "campaign.toml")


@pytest.mark.parametrize(
    "classes", [["no", "yes"], [-1, 1], [False, True], [-0.5, 1e300], ['a"b\\', "]{x.y=\n#é\u2028"]]
)
def test_what_is_written_is_read(classes: list[Any]) -> None:
    """Lists over several lines, and labels with signs that mean something in TOML."""
    facts = tomllib.loads(FACTS) | {"classes": classes, "scaling": "standard", "expires": 60.0}
    assert read_campaign(tomli_w.dumps(facts).encode(), "campaign.toml").classes == classes
