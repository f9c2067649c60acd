"""CoNLL files as a table: a token a line in columns, a blank line after each sentence, labels in the last column.

A row is a token, a group a sentence. The features of a token are categories, those of CRFsuite's example for chunking:
words and tags around it, and pairs and triples of them. Each is a column of the table, named after what it has::

    word[-2] word[-1] word[0] word[1] word[2]   word[-1]|word[0]   word[0]|word[1]
    tag[-2] ... tag[2]   tag[-2]|tag[-1] ... tag[1]|tag[2]   tag[-2]|tag[-1]|tag[0] ... tag[0]|tag[1]|tag[2]

``word`` is the first column of the file, ``tag`` the second, ``tag2`` the third, and so on, without the last one.
Outside of a sentence there are ``<s>`` and ``</s>``. Values that occur once share a feature with those that come later
and are not known (``VOCABULARY``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from coremargin.data.sources.base import AscendingNumbers
from coremargin.data.sources.paths import file_bytes
from coremargin.data.sources.text import LONGEST_LINE, read_pieces
from coremargin.data.tables.column_options import Vocabulary
from coremargin.data.tables.table import NO_HINTS, Hint, Table, TableBatch
from coremargin.errors import BadRow, DataError, NoRows

if TYPE_CHECKING:
    from coremargin.data.sources.paths import FilePath
    from coremargin.formats.columns import ColumnsRecord

LABEL, GROUP = "label", "sentence"
VOCABULARY = Vocabulary(one_hot=1 << 18, counted=1 << 18, least=2, buckets=1 << 18)
BEFORE, AFTER = "<s>", "</s>"
_WORD = re.compile(r"([a-z]+[0-9]*)\[(-?[0-9])\]")
_DOCUMENT = "-DOCSTART-"  # a line of CoNLL-2003 between documents
_PIECE_BYTES = 1 << 20
_PIECE_TOKENS = 1 << 15


@dataclass(frozen=True)
class _Sentences:
    """Whole sentences of a file: its lines from number ``line`` on. number: of the first sentence."""

    path: FilePath
    lines: list[str]
    line: int
    number: int
    done_bytes: int


def input_names(count: int) -> list[str]:
    """Names of so many columns of a file, without that of labels."""
    return ["word", "tag", *(f"tag{number}" for number in range(2, count))][:count]


def made_from_conll(columns: ColumnsRecord) -> bool:
    """Whether columns are those of CoNLL files."""
    count = sum(name.endswith("[0]") and "|" not in name for name in columns.names)
    return columns.group == GROUP and list(columns.names) == templates(input_names(count))


def templates(inputs: Sequence[str]) -> list[str]:
    """Names of the features of a token, from the names of the file's columns."""
    found = list[str]()
    for name in inputs:
        runs: list[tuple[int, ...]] = [(at,) for at in range(-2, 3)]
        if name == "word":
            runs += [(-1, 0), (0, 1)]
        else:
            runs += [(at, at + 1) for at in range(-2, 2)] + [(at, at + 1, at + 2) for at in range(-2, 1)]
        found += ["|".join(f"{name}[{at}]" for at in run) for run in runs]
    return found


class ConllTable(Table):
    """Files of one kind, read one after the other; labelled: the last column of each has labels.

    known: the columns that features must have; then files may lack labels. first: the number of the first sentence.
    """

    def __init__(
        self,
        paths: Sequence[FilePath],
        *,
        labelled: bool,
        known: ColumnsRecord | None = None,
        first: int = 0,
    ) -> None:
        import pyarrow as pa

        self._paths, self._first = paths, first
        self._widths = [_width(path) for path in paths]
        self.name = str(paths[0]) if len(paths) == 1 else f"{len(paths)} files ({paths[0]}, ...)"
        self.total_bytes = sum(file_bytes(path) for path in paths)
        wanted = None if known is None else [name for name in known.names if name.endswith("[0]") and "|" not in name]
        width = self._widths[0]
        count = width - labelled if wanted is None else len(wanted)
        if wanted is not None and width == count:
            labelled = False  # of rows to be predicted
        if count < 1 or count + labelled != width:
            raise DataError(
                f"{paths[0]}, line 1: found {width} columns, expected {max(1, count) + labelled}: a token, maybe tags, "
                "and the label; a blank line ends a sentence"
            )
        for path, found in zip(paths, self._widths, strict=True):
            if found != width:
                raise DataError(f"{path}, line 1: found {found} columns, expected {width} as in {paths[0]}")
        self._inputs = input_names(count)
        own = [*templates(self._inputs), *([LABEL] if labelled else []), GROUP]
        self.names: tuple[str, ...] = tuple(own)
        self.width, self.types = len(own), [pa.string()] * (len(own) - 1) + [pa.int64()]

    def pieces(self, columns: Sequence[int]) -> Iterator[_Sentences]:
        """Whole sentences, some thousand tokens at a time."""
        number, before = self._first, 0
        for path in self._paths:
            held, line = list[str](), 1  # lines of a sentence that may go on; the number of the first
            for piece in read_pieces(path, _PIECE_BYTES):
                held += piece.text().removesuffix("\n").split("\n")
                cut = _last_blank(held)
                if cut == 0 and sum(map(len, held)) > LONGEST_LINE:
                    raise BadRow(
                        f"{path}, line {line}: found no blank line in {LONGEST_LINE:,} bytes, expected one after each "
                        "sentence"
                    )
                for part in _in_parts(held[:cut]):
                    yield _Sentences(path, part, line, number, before + piece.done_bytes)
                    line, number = line + len(part), number + _count(part)
                held = held[cut:]
            before += file_bytes(path)
            if held:
                yield _Sentences(path, held, line, number, before)
                number += _count(held)
        if number == self._first:
            raise NoRows(f"{self.name}: no rows: expected a token in each line, and blank lines after sentences")

    def batch(self, piece: _Sentences, columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS) -> TableBatch:
        """Some columns of a piece. Raises BadRow for a line with more or fewer columns than the first."""
        import pyarrow as pa

        fields, sentence = list[list[str]](), list[int]()
        present = np.zeros(len(piece.lines), bool)
        number, inside = piece.number - 1, False
        for at, text in enumerate(piece.lines):
            if not text.strip():
                inside = False
                continue
            found = _split(text)
            if found is None:
                continue
            if len(found) != self._widths[0]:
                _refuse(piece, at, len(found), self._widths[0])
            number += not inside
            inside = True
            fields.append(found)
            present[at] = True
            sentence.append(number)
        groups = np.array(sentence, np.int64)
        inputs = {name: np.array([one[at] for one in fields], object) for at, name in enumerate(self._inputs)}
        made: dict[int, Any] = {}
        for position in columns:
            name = self.names[position]
            if name == GROUP:
                made[position] = pa.array(groups)
            elif name == LABEL:
                made[position] = pa.array([one[-1] for one in fields], pa.string())
            else:
                made[position] = pa.array(_feature(name, inputs, groups), pa.string())
        path, places = piece.path, AscendingNumbers(piece.line, present)  # kept, unlike the piece
        return TableBatch(
            made, len(fields), str(piece.path), lambda row: f"{path}, line {places[row]}", piece.done_bytes, False
        )


def _feature(name: str, inputs: Mapping[str, np.ndarray], groups: np.ndarray) -> np.ndarray:
    """Values (m,) of a feature of tokens; groups (m,): numbers of their sentences, ascending."""
    found: Any = None
    for column, at in _WORD.findall(name):
        values, step = inputs[column], int(at)
        shifted = np.full(len(values), BEFORE if step < 0 else AFTER, object)
        if step < 0:
            same = groups[:step] == groups[-step:]
            shifted[-step:][same] = values[:step][same]
        elif step > 0:
            same = groups[step:] == groups[:-step]
            shifted[:-step][same] = values[step:][same]
        else:
            shifted = values
        found = shifted if found is None else found + "|" + shifted
    return np.asarray(found)


def _split(text: str) -> list[str] | None:
    """The columns of a line; None: it is a comment, or separates documents. Tabs separate them, or white space."""
    if "\t" in text:
        return [one.strip() for one in text.split("\t")]
    found = text.split()
    return None if found[0] == _DOCUMENT or (found[0] == "#" and len(found) > 1 and "=" in found) else found


def _width(path: FilePath) -> int:
    for piece in read_pieces(path, 1 << 16):
        for text in piece.text().split("\n"):
            found = _split(text) if text.strip() else None
            if found is not None:
                return len(found)
    raise NoRows(f"{path}: no rows: expected a token in each line, and blank lines after sentences")


def _refuse(piece: _Sentences, at: int, found: int, expected: int) -> NoReturn:
    raise BadRow(
        f"{piece.path}, line {piece.line + at}: found {found} columns, expected {expected} as in the first line; "
        "correct the line"
    )


def _last_blank(lines: Sequence[str]) -> int:
    """How many lines there are up to the last blank one."""
    return next((at + 1 for at in range(len(lines) - 1, -1, -1) if not lines[at].strip()), 0)


def _in_parts(lines: list[str]) -> Iterator[list[str]]:
    """Lines that end with a blank one, in parts that do."""
    start = 0
    while start < len(lines):
        stop = min(len(lines), start + _PIECE_TOKENS)
        while lines[stop - 1].strip():
            stop += 1
        yield lines[start:stop]
        start = stop


def _count(lines: Sequence[str]) -> int:
    """How many sentences lines have."""
    count, inside = 0, False
    for text in lines:
        if not text.strip():
            inside = False
        elif _split(text) is not None:
            count += not inside
            inside = True
    return count
