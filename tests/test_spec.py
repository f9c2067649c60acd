"""Specs: what TOML files may say, how they are refused, and that what is written reads back the same."""

from __future__ import annotations

import time
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coremargin.errors import SpecError
from coremargin.spec import (
    Seconds,
    Size,
    SizeWithUnit,
    Spec,
    dump,
    format_seconds,
    format_size,
    load,
    parse,
    parse_toml,
    read_toml,
)
from coremargin.units import exact_size, parse_seconds, parse_size, parse_size_with_unit


class Shape(Enum):
    """An enumerated value."""

    ROUND = "round"
    SQUARE = "square"


class Limits(Spec, frozen=True, kw_only=True):
    """A table."""

    memory: Size = Size(2**31)
    walltime: Seconds | None = None
    environment: dict[str, str] = msgspec.field(default_factory=dict)


class Queue(Spec, frozen=True, kw_only=True):
    """A table whose size needs a unit."""

    memory: SizeWithUnit


class Job(Spec, frozen=True, kw_only=True):
    """A spec with one field of each kind."""

    epsilon: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    rounds: int = 10
    strategy: Literal["fast", "paper"] = "fast"
    store: Path | None = None
    shape: Shape = Shape.ROUND
    verbose: bool = False
    names: tuple[str, ...] = ()
    limits: Limits = Limits()
    stages: tuple[Limits, ...] = ()


class Cat(Spec, frozen=True, kw_only=True, tag_field="kind", tag="cat"):
    """One of two kinds."""

    lives: int = 9


class Dog(Spec, frozen=True, kw_only=True, tag_field="kind", tag="dog"):
    """The other."""


ANY_PET: Any = Cat | Dog


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2 GiB", 2 * 2**30),
        ("500MB", 500_000_000),
        ("1.5 KiB", 1536),
        ("8 mib", 8 * 2**20),
        ("3 TB", 3 * 10**12),
        ("17 B", 17),
        ("17", 17),
        (17, 17),
        (0, 0),
        ("1.3 GiB", 1395864371),
        ("1e9", 10**9),
        (np.int64(5), 5),
        (2**63 - 1, 2**63 - 1),
    ],
)
def test_sizes(text: object, size: int) -> None:
    """Sizes are whole bytes, or numbers with a binary or decimal unit."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["2 GiB", "4 B", "0 B", "1.5kb", "3e3 kB", " 8191 tib "])
def test_sizes_with_a_unit(text: str) -> None:
    """Where a unit is required, text with one means what it means elsewhere."""
    assert parse_size_with_unit(text) == parse_size(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (4, '"4 GiB", or "4 B" for bytes'),
        ("4", '"4 GiB", or "4 B" for bytes'),
        (np.int64(2**35), '"32 GiB", or "34359738368 B" for bytes'),
        ("15e8", '"1500 MB", or "1500000000 B" for bytes'),
        (10**9 + 1, 'write "1000000001 B" for bytes'),
        *(
            (odd, '"2 GiB" (1 GiB = 1024^3')
            for odd in (0, -1, True, 1.5, None, "", "GiB", "2 G", "4 parsec", "9999 PiB")
        ),
    ],
)
def test_sizes_without_a_unit_say_what_to_write(text: object, hint: str) -> None:
    """A number alone is refused, with what was probably meant; so is what is no size at all."""
    with pytest.raises(SpecError) as caught:
        parse_size_with_unit(text)
    assert hint in str(caught.value)


@pytest.mark.parametrize("size", [0, 1, 1000, 1234567, 2**30, 3 * 10**9, 2**62 + 1])
@pytest.mark.parametrize("kind", [int, SizeWithUnit])
def test_sizes_with_a_unit_are_written_with_one(size: int, kind: type[int]) -> None:
    """Whatever number Python gave, ``parse`` reads what ``dump`` wrote."""
    queue = Queue(memory=kind(size))  # type: ignore[arg-type]
    assert parse(dump(queue), Queue) == queue


@pytest.mark.parametrize(
    "text",
    [
        *("2 G", "GiB", "-1 MB", "2 GiB extra", "", "1e3.5 MB", "2.5", "8192 PiB", "1e999999999", "9" * 5000),
        *(-1, True, 1.5, 2**63, None, [1]),
    ],
)
def test_wrong_sizes_say_what_to_write(text: object) -> None:
    """Anything else is a SpecError that explains GiB and GB, at once: also numbers that would fill the memory."""
    with pytest.raises(SpecError, match=r"1 GiB = 1024\^3 bytes\) or \"2 GB\" \(1 GB = 1000\^3"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("10 min", 600.0),
        ("1 h 30 min", 5400.0),
        ("2 days", 172800.0),
        ("250 ms", 0.25),
        ("90", 90.0),
        ("2.0", 2.0),
        (" 1e3 ", 1000.0),
        (1.5, 1.5),
        (0, 0.0),
        (np.int64(3), 3.0),
        (np.float32(0.5), 0.5),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    """Durations are seconds, or numbers with units that add up."""
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("ten minutes", "5 weeks", "1 h 30", "-1", "1e-3", "inf", "nan", "", "1e400 s", "1e999999999 s", "9" * 5000),
        *(-1, True, 10**400, float("inf"), float("nan"), np.float64("nan"), "31710 years", "1e13", None),
    ],
)
def test_wrong_durations_say_what_to_write(text: object) -> None:
    """Anything else is a SpecError with examples, at once: also numbers that would fill the memory."""
    with pytest.raises(SpecError, match='write seconds as a number, or text such as "90 s"'):
        parse_seconds(text)


@pytest.mark.parametrize("text", ["1e5s" * 40 + "!", "1e5s" * 50_000, "1" + " " * 50_000 + "!", "1s" * 50_000 + "!"])
def test_long_sizes_and_durations_are_refused_at_once(text: str) -> None:
    """No text takes a time that grows faster than its length, and messages are short."""
    began = time.process_time()
    for read in (parse_size, parse_seconds):
        with pytest.raises(SpecError) as refused:
            read(text)
        assert len(str(refused.value)) < 500
    assert time.process_time() - began < 0.1


KEYS = ".".join(["a"] * 20_000)


@pytest.mark.parametrize(
    "text",
    [
        f"{KEYS} = 1", f"[{KEYS}]", f"[[{KEYS}]]", f"a = {{{KEYS} = 1}}", KEYS.replace("a", '"a"') + " = 1",
        KEYS.replace("a", "'a'") + " = 1", KEYS.replace(".", "\t. ") + " = 1", "a = " + "[" * 20_000,
        "a = " + "[" * 300 + "]" * 300, "a = " + "{b = " * 20_000, "a = " + "9" * 20_000,
        "a = " + "_".join("1" * 20_000), "'''" + "x'" * 20_000, '"""x' + 'x"x\\"""' * 20_000, "[a]\n" * 20_000,
        'a = "x' + "\\" * 40_000, "x" * 40_000, "a" * ((1 << 24) + 1),
    ],
    ids=range(18),
)  # fmt: skip
def test_deep_and_endless_toml_is_refused_at_once(text: str) -> None:
    """Tens of kilobytes cost no seconds, whatever is in them, and messages are short."""
    began = time.process_time()
    with pytest.raises(SpecError) as refused:
        parse_toml(text, where="job.toml")
    assert time.process_time() - began < 0.2
    assert len(str(refused.value)) < 500


def test_dots_in_texts_and_comments_are_no_keys() -> None:
    """Only keys are counted: texts of all four kinds, and comments, may hold any number of dots and quotes."""
    three, double = "'" * 3, '"' * 3
    for text in (KEYS, KEYS.replace("a", "é"), f"{KEYS} # {KEYS}"):
        assert parse_toml(f'a = "\\" {text}"  # {KEYS} \' "')["a"] == f'" {text}'
        assert parse_toml(f"a = '{text} \" \\'\n# ' {KEYS}")["a"] == f'{text} " \\'
        assert parse_toml(f'a = {double}\n" "" {text}\n\\"{double}""')["a"] == f'" "" {text}\n"""'
        assert parse_toml(f"a = {three}' '' {text}\n\\{three}'")["a"] == f"' '' {text}\n\\'"
    assert parse_toml(".".join("a" * 32) + " = 1\nb = [1.5, 2.5]")["b"] == [1.5, 2.5]


def test_names_that_look_like_addresses(tmp_path: Path) -> None:
    """With ./ in front they are names in the folder of the file; without it they are refused, naming the key."""
    for name in ("~", "~x", "s3:/rows"):
        assert parse(f"epsilon = 0.5\nstore = './{name}'", Job, base=tmp_path).store == tmp_path / name
    for name, found in (("s3://b/rows", "'s3://b/rows'"), ("~nobody-of-this-name/x", "no user of that name")):
        with pytest.raises(SpecError, match=f"store: .*found {found}"):
            parse(f"epsilon = 0.5\nstore = '{name}'", Job, base=tmp_path)


def test_a_byte_order_mark_is_no_key(tmp_path: Path) -> None:
    """Files that Windows' editors have saved are read, with their line ends."""
    (tmp_path / "job.toml").write_bytes(b"\xef\xbb\xbfepsilon = 0.5\r\nrounds = 3\r\n")
    assert load(tmp_path / "job.toml", Job) == Job(epsilon=0.5, rounds=3)


def test_endless_files_are_refused() -> None:
    """A device is no job."""
    with pytest.raises(SpecError, match="expected at most 16,777,216 characters"):
        read_toml("/dev/zero")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, 0),
        (999, 999),
        (1000, "1 kB"),
        (1024, "1 KiB"),
        (2 * 2**30, "2 GiB"),
        (32 * 10**9, "32 GB"),  # also 31250000 KiB
        (1024 * 10**6, "1024 MB"),  # also 1000000 KiB
        (10**6 * 2**20, "1000000 MiB"),  # also 1048576 MB
        (2**63 - 1, 2**63 - 1),
    ],
)
def test_exact_sizes(size: int, text: object) -> None:
    """In the unit with the smallest number, and the size can be read back."""
    assert exact_size(size) == text
    assert parse_size(exact_size(size)) == size


def test_people_read_sizes_and_durations() -> None:
    """Formatted values carry the unit that suits their size."""
    assert [format_size(n) for n in (0, 1023, 1024, 1536, 2**31, 10**15)] == [
        *("0 B", "1023 B", "1.0 KiB", "1.5 KiB", "2.0 GiB", "909.5 TiB")
    ]
    assert [format_seconds(s) for s in (0.416, 9.99, 12.4, 59.6, 185, 7800, 86400 * 3 + 3600 * 4)] == [
        *("0.42 s", "9.99 s", "12 s", "1 min 00 s", "3 min 05 s", "2 h 10 min", "3 d 4 h")
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epsilom = 0.1", "job.toml: unknown key 'epsilom'; did you mean 'epsilon'\\? known: epsilon"),
        ("epsilon = 0.1\n[limits]\nmemroy = 3", "job.toml, \\[limits\\]: unknown key 'memroy'; did you mean 'memory'"),
        ("epsilon = 0.1\n[[stages]]\n[[stages]]\nwal = 1", "job.toml, \\[stages #2\\]: unknown key 'wal'"),
        ("epsilon = 2.0", "job.toml: epsilon: expected float < 1.0; found 2.0"),
        ("epsilon = nan", "job.toml: epsilon: expected float > 0.0; found nan"),
        ('epsilon = "x"', "job.toml: epsilon: expected float, got str; found 'x'"),
        ("epsilon = true", "job.toml: epsilon: expected float, got bool"),
        ("rounds = 3", "job.toml: required key 'epsilon' is missing"),
        ("epsilon = 0.1\nrounds = 1.5", "job.toml: rounds: expected int, got float; found 1.5"),
        ("epsilon = 0.1\nlimits = 3", "job.toml: limits: expected a table, got int"),
        ('epsilon = 0.1\nnames = "a"', "job.toml: names: expected a list, got str"),
        ('epsilon = 0.1\nnames = ["a", 2]', "job.toml, \\[names\\]: #2: expected str, got int; found 2"),
        ('epsilon = 0.1\nstrategy = "slow"', "job.toml: strategy: invalid enum value 'slow'"),
        ('epsilon = 0.1\n[limits]\nmemory = "3G"', "job.toml, \\[limits\\]: memory: not a size: '3G'"),
        ('epsilon = 0.1\n[limits]\nwalltime = "soon"', "walltime: not a duration: 'soon'"),
        ("epsilon = 0.1\nstore = 3", "store: not a path: 3"),
        ("epsilon = ", "job.toml: not valid TOML"),
        ("epsilon = 1\nepsilon = 2", "job.toml: not valid TOML"),
        ("epsilon = 0.1\nx = " + "[" * 5000, "job.toml: not valid TOML"),
    ],
)
def test_refusals_name_file_table_key_expected_and_found(text: str, message: str) -> None:
    """A file that cannot be used is refused with the place, what was expected and what was found."""
    with pytest.raises(SpecError, match=message):
        parse(text, Job, where="job.toml")


def test_unreadable_files_are_refused_by_name(tmp_path: Path) -> None:
    """A missing file, a folder and a file that is not UTF-8 are SpecErrors with their path."""
    with pytest.raises(SpecError, match="absent.toml: cannot be read: No such file"):
        load(tmp_path / "absent.toml", Job)
    with pytest.raises(SpecError, match="cannot be read: Is a directory"):
        load(tmp_path, Job)
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'epsilon = 0.1\nstrategy = "\xe9"')
    with pytest.raises(SpecError, match=r"latin.toml: not UTF-8 at byte 26"):
        load(latin, Job)


def test_paths_start_from_the_folder_of_the_file(tmp_path: Path) -> None:
    """Relative paths are relative to the file they stand in, absolute ones stay."""
    file = tmp_path / "jobs" / "job.toml"
    file.parent.mkdir()
    file.write_text('epsilon = 0.1\nstore = "../data/rows.zarr"')
    assert load(file, Job).store == tmp_path / "data" / "rows.zarr"
    assert parse('epsilon = 0.1\nstore = "/data/x"', Job).store == Path("/data/x")


def test_tagged_kinds_are_told_apart() -> None:
    """The tag chooses the spec; a wrong or missing one is refused with the known ones."""
    assert parse('kind = "cat"\nlives = 3', ANY_PET) == Cat(lives=3)
    with pytest.raises(SpecError, match="kind = 'dgo' is not known; did you mean 'dog'\\? known: cat, dog"):
        parse('kind = "dgo"', ANY_PET)
    with pytest.raises(SpecError, match="key 'kind' is missing; expected one of cat, dog"):
        parse("lives = 3", ANY_PET)
    with pytest.raises(SpecError, match="unknown key 'lives'"):
        parse('kind = "dog"\nlives = 3', ANY_PET)


def test_specs_are_frozen() -> None:
    """A spec cannot be changed after it was read."""
    job = parse("epsilon = 0.1", Job)
    with pytest.raises(AttributeError):
        job.epsilon = 0.2  # type: ignore[misc]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LIMITS = st.builds(
    Limits,
    memory=st.one_of(st.integers(0, 2**50), st.integers(0, 4000).map(lambda n: n * 2**20)).map(Size),
    walltime=st.none() | st.floats(0, 1e9).map(Seconds),
    environment=st.dictionaries(TEXTS, TEXTS, max_size=3),
)
JOBS = st.builds(
    Job,
    epsilon=st.floats(0, 1, exclude_min=True, exclude_max=True),
    rounds=st.integers(-(2**63), 2**63 - 1),
    strategy=st.sampled_from(["fast", "paper"]),
    store=st.none()
    | TEXTS.filter(lambda text: text and "\0" not in text and "/" not in text).map(
        lambda text: Path("/data") / ("x" + text)
    ),
    shape=st.sampled_from(Shape),
    verbose=st.booleans(),
    names=st.lists(TEXTS, max_size=3).map(tuple),
    limits=LIMITS,
    stages=st.lists(LIMITS, max_size=3).map(tuple),
)


@given(JOBS)
def test_what_is_dumped_reads_back_equal(job: Job) -> None:
    """``dump`` then ``parse`` is the identity."""
    assert parse(dump(job), Job) == job


def test_dump_is_readable() -> None:
    """Sizes and durations keep their units, None is left out, tables come last."""
    job = Job(epsilon=1e-3, names=("a",), limits=Limits(memory=Size(3 * 2**30), walltime=Seconds(90)))
    assert dump(job) == (
        'epsilon = 0.001\nrounds = 10\nstrategy = "fast"\nshape = "round"\nverbose = false\nnames = [\n    "a",\n]\n'
        'stages = []\n\n[limits]\nmemory = "3 GiB"\nwalltime = "90 s"\n\n[limits.environment]\n'
    )
    assert dump(Dog()) == 'kind = "dog"\n'


def test_dump_refuses_what_toml_cannot_say() -> None:
    """A value that is no text, number, list or table is a SpecError."""
    with pytest.raises(SpecError, match="a spec cannot hold"):
        dump({"x": object()})


@pytest.mark.parametrize(
    "number", ["0x" + "f" * 20_000, "1" * 400, "-" + "7" * 5000, "0b" + "1" * 301, "0." + "3" * 400]
)
def test_numbers_of_many_digits_are_refused(number: str) -> None:
    """Python reads such numbers, and raises an error where a message is to show one; texts and comments may be long."""
    with pytest.raises(SpecError, match="numbers of at most 300 digits"):
        parse_toml(f'job = "train"\nC = {number}\n')
    assert parse_toml(f'a = "{number}"  # {number}\nb = 0xff\n') == {"a": number, "b": 255}
