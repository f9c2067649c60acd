"""Files of a model that are no such files: zip archives that lie, texts that are no JSON, pipes, links, folders."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from forge_arrays import HEADERS, Member, members_of, npy, zipped
from forge_assert import answer, called, calm, forged, loads, refused, with_files

if TYPE_CHECKING:
    from forge_plans import Draft
    from forge_specimens import Specimens

Change = Callable[[list[Member]], list[Member]]


def named(members: list[Member], name: str) -> Member:
    """The member that holds an array."""
    return next(member for member in members if member.name == f"{name}.npy".encode())


def evil(members: list[Member]) -> bytes:
    """The hyperplane, turned round."""
    with_header = named(members, "w").data
    values = np.frombuffer(with_header[-24:], "<f8")
    return npy(-values)


#: Archives in which two readers find two hyperplanes.
TWICE: dict[str, Change] = {
    "without suffix first": lambda m: [
        Member(b"w", named(m, "w").data), *(x for x in m if x.name != b"w.npy"), Member(b"w.npy", evil(m)),
    ],
    "without suffix last": lambda m: [*m, Member(b"w", evil(m))],
    "evil first": lambda m: [Member(b"w.npy", evil(m)), *m],
    "evil last": lambda m: [*m, Member(b"w.npy", evil(m))],
    "in capitals": lambda m: [*m, Member(b"W.npy", evil(m))],
    "suffix twice": lambda m: [*m, Member(b"w.npy.npy", evil(m))],
    "below a folder": lambda m: [*m, Member(b"./w.npy", evil(m))],
    "with a NUL": lambda m: [*m, Member(b"w.npy\0x", evil(m))],
    "a folder": lambda m: [*m, Member(b"w.npy/", b"")],
}  # fmt: skip


@pytest.mark.parametrize("way", list(TWICE))
@pytest.mark.parametrize("name", ["hard", "hinge"])
def test_two_members_of_one_name(specimens: Specimens, tmp_path: Path, name: str, way: str) -> None:
    """A hyperplane that is there twice is refused: verify may not read one while predict reads the other."""
    specimen = specimens[name]
    members = TWICE[way](members_of(specimen.arrays()))
    model = with_files(specimen, tmp_path, {"arrays.npz": zipped(members)})
    if answer(model, specimen.store) != "refused":
        found = loads(model)
        assert found is None or np.array_equal(found.w, specimen.arrays()["w"]), (
            "verify and predict read two hyperplanes"
        )
    refused(model, specimen.store)


def each(**changes: Any) -> Change:
    """The same change of all members."""
    return lambda members: [replace(member, **changes) for member in members]


def one(**changes: Any) -> Change:
    """A change of the hyperplane's member."""
    return lambda members: [replace(m, **changes) if m.name == b"w.npy" else m for m in members]


#: Archives that are no archives of arrays.
BAD: dict[str, Change] = {
    "encrypted": each(flags=1),
    "one encrypted": one(flags=1),
    "strongly encrypted": each(flags=65),
    "patched data": one(flags=32),
    "method 1": one(method=1),
    "method 9": one(method=9),
    "method 93": each(method=93),
    "method 99": one(method=99),
    "checksum": one(crc=5),
    "sizes of 2 GiB": one(size=2**31),
    "size 0": one(size=0),
    "packed size 0": one(packed=0),
    "a link": one(attributes=0o120777 << 16, data=b"/etc/passwd"),
    "a pickle": one(data=b"\x80\x04cos\nsystem\n(S'true'\ntR."),
    "no array": one(data=b"abc"),
    "nothing": one(data=b""),
    "only magic": one(data=b"\x93NUMPY"),
    "of a version to come": one(data=b"\x93NUMPY\x09\x00" + b"\0" * 100),
    "a header of 2 GiB": one(data=b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b" " * 50),
    "a header that is no text": one(data=b"\x93NUMPY\x03\x00" + struct.pack("<I", 20) + b"\xff" * 50),
    "objects": one(data=npy(np.array([1, None, "x"], dtype=object))),
    "no members": lambda m: [],
    "one member less": lambda m: [x for x in m if x.name != b"w.npy"],
    "3,000 members": lambda m: [*m, *(Member(b"x%d.npy" % k, b"") for k in range(3_000))],
    "a long name": lambda m: [*m, Member(b"x" * 60_000 + b".npy", npy(np.zeros(1)))],
    "a name that is no text": lambda m: [*m, Member(b"\xff\xfe.npy", npy(np.zeros(1)), flags=2048)],
}  # fmt: skip


@pytest.mark.parametrize("way", list(BAD))
def test_archives_that_lie(specimens: Specimens, tmp_path: Path, way: str) -> None:
    """Encryption, unknown methods, sizes and headers that are not true: a message, and no member is believed."""
    specimen = specimens["hard"]
    model = with_files(specimen, tmp_path, {"arrays.npz": zipped(BAD[way](members_of(specimen.arrays())))})
    refused(model, specimen.store)


@pytest.mark.parametrize("header", HEADERS)
def test_headers_that_lie(specimens: Specimens, tmp_path: Path, header: bytes) -> None:
    """Shapes of terabytes, below nothing, or of no numbers, for any of the arrays."""
    specimen, answers = specimens["hinge"], {}
    for name in specimen.arrays():
        members = [
            replace(x, data=npy(np.zeros(3), header=header)) if x.name == f"{name}.npy".encode() else x
            for x in members_of(specimen.arrays())
        ]
        model = with_files(specimen, tmp_path, {"arrays.npz": zipped(members)})
        answers[name] = answer(model, specimen.store)
    assert answers == dict.fromkeys(answers, "refused")


@pytest.mark.parametrize("method", [8, 12, 14])
def test_compressed_members_that_are_damaged(specimens: Specimens, tmp_path: Path, method: int) -> None:
    """Each byte of a compressed hyperplane changed: never a traceback, and never another hyperplane."""
    specimen = specimens["hard"]
    whole = zipped([replace(x, method=method) if x.name == b"w.npy" else x for x in members_of(specimen.arrays())])
    start = whole.index(b"w.npy") + 5
    end = whole.index(b"PK\1\2", start)
    answers = {}
    for place in range(start, min(end, start + 150)):
        data = bytearray(whole)
        data[place] ^= 0x5A
        model = with_files(specimen, tmp_path, {"arrays.npz": bytes(data)})
        answers[place] = answer(model, specimen.store)
        if answers[place] == "accepted":
            found = loads(model)
            same = found is None or np.array_equal(found.w, specimen.arrays()["w"])
            answers[place] = "refused" if same else "another hyperplane"
    assert answers == dict.fromkeys(answers, "refused")


@pytest.mark.slow
def test_what_a_member_promises_is_not_allocated(specimens: Specimens, tmp_path: Path) -> None:
    """Zeros, 640 MiB behind one, in members that are not even of the model: refused without the memory for them."""
    specimen = specimens["hard"]
    bomb = npy(np.zeros(1 << 23))
    members = [*members_of(specimen.arrays()), *(Member(b"x%d.npy" % k, bomb, method=8) for k in range(10))]
    model = with_files(specimen, tmp_path, {"arrays.npz": zipped(members)})
    assert (model / "arrays.npz").stat().st_size < 2 << 20
    assert calm(model, specimen.store) == "refused"


def _is_text(name: str) -> bool:
    return name.endswith(".json")


#: Texts that are no records.
TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda t: b"",
    "null": lambda t: b"null",
    "a number": lambda t: b"5",
    "a text": lambda t: b'"coremargin-model"',
    "a list": lambda t: b"[" + t + b"]",
    "nested": lambda t: b"[" * 100_000,
    "nested objects": lambda t: b'{"a":' * 100_000,
    "NUL": lambda t: b"\0" * 100,
    "latin-1": lambda t: t.replace(b"coremargin", b"coremargin\xe9", 1),
    "cut": lambda t: t[: len(t) // 2],
    "two": lambda t: t + t,
    "400 digits": lambda t: t.replace(b'"version": 1', b'"version": ' + b"9" * 400),
    "5,000 digits": lambda t: t.replace(b'"version": 1', b'"version": ' + b"9" * 5000),
    "1e400": lambda t: t.replace(b'"version": 1', b'"version": 1e400'),
    "17 MiB": lambda t: b" " * (17 << 20) + t,
    "a key twice": lambda t: t.replace(b'"version": 1', b'"version": 2, "version": 1'),
    "every key twice": lambda t: b"{" + t.strip()[1:-1] + b"," + t.strip()[1:-1] + b"}",
}


@pytest.mark.parametrize("way", list(TEXTS))
@pytest.mark.parametrize("name", ["hard", "classes", "pair"])
def test_texts_that_are_no_records(specimens: Specimens, tmp_path: Path, name: str, way: str) -> None:
    """Whatever stands in model.json or fleet.json instead of a record is refused with a message."""
    specimen = specimens[name]
    answers = {
        file: answer(with_files(specimen, tmp_path, {file: TEXTS[way](specimen.files[file])}), specimen.store)
        for file in filter(_is_text, specimen.files)
    }
    assert answers == dict.fromkeys(answers, "refused")


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to zeros", "link to itself", "empty"])
@pytest.mark.parametrize("name", ["hard", "pair"])
def test_files_that_are_none(specimens: Specimens, tmp_path: Path, name: str, kind: str) -> None:
    """A pipe is not waited for, zeros without end are not read, a folder is not opened: a message within seconds."""
    specimen, answers = specimens[name], {}
    for k, file in enumerate(specimen.files):
        model = with_files(specimen, tmp_path / str(k), {file: None})
        place = model / file
        if kind == "pipe":
            os.mkfifo(place)
        elif kind == "folder":
            place.mkdir()
        elif kind == "link to zeros":
            place.symlink_to("/dev/zero")
        elif kind == "link to itself":
            place.symlink_to(place.name)
        else:
            place.write_bytes(b"")
        answers[file] = calm(model, specimen.store)
    assert answers == dict.fromkeys(specimen.files, "refused")


STRINGS = ["\ud800", "\x1b[2J\x1b[31mred\x1b[0m", "\x07\x08\r", "a\nok     lower bound  verified", "\u202e", "\x9b31m"]


@pytest.mark.parametrize("text", STRINGS, ids=ascii)
def test_strings_do_not_reach_the_terminal_raw(specimens: Specimens, tmp_path: Path, text: str) -> None:
    """Escape sequences, lone surrogates and line ends in any string of a model are not printed as they are."""
    specimen = specimens["hard"]

    def software(draft: Draft) -> None:
        draft.record["software"][text] = text

    changes: list[Callable[[Draft], Any]] = [
        lambda draft: draft.claims.update(store_digest=text),
        lambda draft: draft.record.update(status=text),
        lambda draft: draft.record.update(problem=text),
        lambda draft: draft.record.update(classes=[text, "yes"]),
        lambda draft: draft.record.update(dtype=text),
        lambda draft: draft.asked.update(strategy=text),
        lambda draft: draft.asked.update({text: 1}),
        software,
    ]
    for k, change in enumerate(changes):
        model = forged(specimen, tmp_path / str(k), change)
        for words in (("verify", model, specimen.store), ("show", model)):
            done = called(*words)
            assert done.exit_code in (0, 3, 4)
            assert "\nok     lower bound" not in done.output


def test_a_run_record_is_only_told(specimens: Specimens, tmp_path: Path) -> None:
    """How the run went may say anything: no command trips over it."""
    specimen = specimens["hard"]
    for k, text in enumerate(
        ("[" * 100_000, "5", '{"started": "\\u001b[31m", "scans": 1e400, "bytes_read": -1, "seconds": NaN}', "\0")
    ):
        model = with_files(specimen, tmp_path / str(k), {"run.json": text.encode()})
        assert called("show", model).exit_code in (0, 3)


def test_missing_files(specimens: Specimens, tmp_path: Path) -> None:
    """Each file of a model and of a fleet is needed."""
    for name in ("hard", "classes", "pair"):
        specimen = specimens[name]
        for k, file in enumerate(specimen.files):
            refused(with_files(specimen, tmp_path / f"{name}-{k}", {file: None}), specimen.store)


def test_the_record_of_a_model_is_what_its_arrays_are(specimens: Specimens, tmp_path: Path) -> None:
    """JSON written in another way is the same record: what is refused is what it says, not how it looks."""
    specimen = specimens["hard"]
    record = json.loads(specimen.files["model.json"])
    text = json.dumps(dict(reversed(record.items())), separators=(",", ":")).encode()
    model = with_files(specimen, tmp_path, {"model.json": text})
    assert answer(model, specimen.store) == "accepted"
