"""The SVMlight parser, which works on whole pieces of text, against one that reads line by line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from coremargin.data.sources.svmlight import Survey, parse, survey
from coremargin.data.sources.text import Piece
from coremargin.errors import BadRow

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?")

Row = tuple[int, float | str, dict[int, float]]


def line_by_line(text: str) -> list[Row] | None:
    """(line, label, {index: value}) of every row; None when a line is not SVMlight.

    Labels are words where one of them is no number.
    """
    rows: list[tuple[int, str, dict[int, float]]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        tokens = line.split("#")[0].split()
        if not tokens:
            continue
        pairs: dict[int, float] = {}
        for token in tokens[1:]:
            index, colon, value = token.partition(":")
            if not (re.fullmatch(r"\d{1,9}", index) and colon and NUMBER.fullmatch(value)) or int(index) in pairs:
                return None
            pairs[int(index)] = float(value)
        if ":" in tokens[0]:
            return None
        rows.append((number, tokens[0], pairs))
    numeric = all(NUMBER.fullmatch(label) for _, label, _ in rows)
    return [(number, float(label) if numeric else label, pairs) for number, label, pairs in rows]


def at_once(text: str) -> list[Row] | None:
    """The same from the parser of the package."""
    try:
        parsed = parse(Piece(Path("x.svm"), text.encode(), 1, len(text)))
    except BadRow:
        return None
    rows: list[Row] = []
    for k, label in enumerate((parsed.texts if parsed.words else parsed.labels.tolist()) or []):
        part = slice(parsed.starts[k], parsed.starts[k + 1])
        indices, values = parsed.indices[part].tolist(), parsed.values[part].tolist()
        assert indices == sorted(indices)
        rows.append((int(parsed.lines[k]), label, dict(zip(indices, values, strict=True))))
    return rows


@given(st.text(alphabet="019:.-e# \t\n", max_size=40))
@example("1 1:2:3 7\n-1 1:2\n")
@example("1 1:2\n\n\n# all\n2")
@example(" 1:2")
@example("1 :2")
@example("1 1: 2")
@example("1 1:2 999999999:1 1000000000:1")
@example("1 3:1 2:5 3:1")
@example("\r\n1 1:1\r\n")
def test_any_text_is_read_as_line_by_line(text: str) -> None:
    """Whatever the text, both parsers accept it with the same rows, or both refuse it."""
    assert at_once(text) == line_by_line(text)


SPACES = st.sampled_from([" ", "  ", "\t", " \t "])
PAIRS = st.dictionaries(st.integers(0, 10**9 - 1), st.floats(allow_nan=False, allow_infinity=False), max_size=5)


@given(st.lists(st.tuples(st.integers(-3, 3), PAIRS, SPACES), min_size=1, max_size=8))
def test_any_rows_survive_their_text(rows: list[tuple[int, dict[int, float], str]]) -> None:
    """Rows written as text, in any order of indices, are read back to the bit."""
    lines = [space.join([str(y), *(f"{i}:{v!r}" for i, v in x.items())]) for y, x, space in rows]
    expected = [(k, float(y), x) for k, (y, x, _) in enumerate(rows, start=1)]
    assert at_once("\n".join(lines)) == expected


def test_the_first_pass_counts_rows_and_indices(tmp_path: Path) -> None:
    """The survey finds the smallest and largest index and the rows of each file, and hears of its progress."""
    (tmp_path / "a.svm").write_text("1 2:1 7:1\n# nothing\n\n-1\n")
    (tmp_path / "b.svm").write_text("1 0:1")
    heard: list[tuple[int, int, int]] = []
    found = survey([tmp_path / "a.svm", tmp_path / "b.svm"], lambda *step: heard.append(step))
    assert found == [Survey(1, 7, 2, 2), Survey(0, 0, 1, 1)]
    assert heard == [(2, 24, 29), (3, 29, 29)]


def test_rows_of_zeros_are_rows() -> None:
    """A line with a label only is a row; a piece without rows is no error."""
    assert at_once("1\n-1\n") == [(1, 1.0, {}), (2, -1.0, {})]
    assert at_once("# nothing\n\n") == []
    assert np.isnan(parse(Piece(Path("x.svm"), b"1 1:nan", 1, 7)).values).all()
