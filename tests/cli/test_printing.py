"""What comes out of files is shown, never obeyed: by a terminal, a page, a shell that reads JSON."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.cli.printing import LONGEST_LINE, Formatter, Records, print_error, print_lines, rich_text
from coremargin.cli.progress_line import live_line
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.report.numbers import visible
from coremargin.report.text import LONGEST_CELL, facts, table

if TYPE_CHECKING:
    from click.testing import Result


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(coremargin.__path__[0]).parent)}
COMMAND = [sys.executable, "-m", "coremargin"]
#: Labels that do something where they are not taken for text.
LABELS = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31m", "a\nverified: all claims hold\rb",
    "\u202egnp.exe\u2066", "[bold red]x[/] [link=http://x]y[/link]",
    "half", "zero\0",
    "\x9b31m\x85\u2028", "<script>alert(1)</script>]]>",
    "'\"`$(reboot)`\\", "../../etc/passwd",
    "x" * 1000, "%s {0} {{}}",
    "\u00a0a\u00a0", "\U0001f600\u200d\u0301",
    "-rf", "null",
)  # fmt: skip


def harmless(text: str) -> bool:
    """Whether a text has nothing in it but printable characters and ends of lines."""
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.slow
def test_every_character_is_shown_or_spelled_out(capfd: pytest.CaptureFixture[str]) -> None:
    """Of all characters that there are, printable ones pass; of the others not one reaches stdout or stderr."""
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    parts = [everything[k : k + 1000] for k in range(0, len(everything), 1000)]
    for err in (False, True):
        print_lines(*parts, err=err)
        shown = capfd.readouterr()[err]
        assert harmless(shown)
        assert shown.count("\n") == len(parts)
        for part, line in zip(parts, shown.split("\n"), strict=False):
            assert line == "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in part)
    assert visible(visible("\x1b[31m\n")) == visible("\x1b[31m\n") == r"\x1b[31m\n"


def test_an_error_cannot_forge_a_line_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    """Lines of an error that are not its first are indented, so that none can be taken for another message."""
    print_error("rows\nverified: true\n\x1b[2Kerror: false")
    assert capfd.readouterr().err == "error: rows\n  verified: true\n  \\x1b[2Kerror: false\n"


def test_what_is_endless_is_cut(capfd: pytest.CaptureFixture[str]) -> None:
    """A megabyte in a line, a cell or an error takes a screen at most, and says how much is missing."""
    long = "x" * 1_000_000
    print_lines(long, "short")
    print_error(long)
    out, err = capfd.readouterr()
    assert out.endswith("x... (1,000,000 characters)\nshort\n")
    assert len(out) < LONGEST_LINE + 100
    assert len(err) < LONGEST_LINE + 100
    assert max(map(len, table([(long, "1"), ("y", long)]))) < 2 * LONGEST_CELL + 100


def test_a_row_of_a_table_is_a_line() -> None:
    """A line break in a cell or a fact is spelled out, and does not widen other columns."""
    lines = table([("a\nb", "1"), ("c", "2")])
    assert lines == [r"  a\nb  1", "  c     2"]
    assert len(facts([("name", "a\nb")])) == 1


def test_a_live_line_has_no_markup() -> None:
    """What looks like markup stays as it is, on a line that is written over."""
    from rich.console import Console

    file = io.StringIO()
    Console(file=file, force_terminal=True, width=200, color_system="truecolor").print(
        rich_text("[red]a[/red] [link=http://x]b[/link] :bomb: \x1b[31m")
    )
    assert file.getvalue() == "[red]a[/red] [link=http://x]b[/link] :bomb: \\x1b[31m\n"


class Screen(io.TextIOWrapper):
    """A terminal that keeps what it is told."""

    def __init__(self) -> None:
        self.told = io.BytesIO()
        super().__init__(self.told, encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        """As rich asks."""
        return True

    def wait_for(self, text: str) -> None:
        """Until a text was told: the live line is drawn by a thread, twelve times a second."""
        end = time.monotonic() + 30
        while text.encode() not in self.told.getvalue():
            assert time.monotonic() < end, text
            time.sleep(0.01)

    def lines(self) -> list[str]:
        """What stands on it in the end."""
        rows, at, column = [""], 0, 0
        for said in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|.", self.told.getvalue().decode(), flags=re.DOTALL):
            if said == "\n":
                at, column = at + 1, 0
                rows += [""] * (at == len(rows))
            elif said == "\r":
                column = 0
            elif said == "\x1b[2K":
                rows[at] = ""
            elif said.endswith("A") and len(said) > 1:
                at -= int(said[2:-1])
            elif len(said) == 1:
                rows[at] = rows[at][:column].ljust(column) + said + rows[at][column + 1 :]
                column += 1
        return [row.rstrip() for row in rows]


def test_lines_stand_above_the_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed or logged under a live line has a line of its own, with nothing left of what was written over."""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    handler = Records()
    handler.setFormatter(Formatter("%(message)s"))
    with live_line() as show:
        screen.wait_for("solving")
        print_lines("sample: short", err=True)
        show("a live line that is long")
        screen.wait_for("is long")
        handler.emit(logging.LogRecord("x", logging.INFO, "x.py", 1, "logged", (), None))
        show("brief")
        print_lines("scan 1: bounds", err=True)
    print_lines("the end", err=True)
    assert screen.lines() == ["sample: short", "logged", "scan 1: bounds", "the end", ""]


def test_log_records_are_shown_like_everything_else() -> None:
    """A record of a library, its arguments and its traceback have no control characters but ends of lines."""
    try:
        raise ValueError("\x1b[31mred")
    except ValueError:
        record = logging.LogRecord("x", logging.INFO, "x.py", 1, "read %s", ("\x1b]0;owned\x07\r",), sys.exc_info())
    text = Formatter("%(levelname)s %(message)s").format(record)
    assert text.startswith("INFO read \\x1b]0;owned\\x07\\r\nTraceback")
    assert harmless(text)


def test_a_bug_is_shown_like_everything_else(tmp_path: Path) -> None:
    """What nobody foresaw ends a command with exit code 1 and a traceback, in which nothing is obeyed either."""
    code = (
        "import coremargin.data.store as store\n"
        "def fail(*_, **__): raise ZeroDivisionError('\\x1b[31mred')\n"
        "store.Store.open = fail\n"
        "from coremargin.cli import main\n"
        "main(['info', 'x'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("ZeroDivisionError: \\x1b[31mred\n")
    assert harmless(done.stderr)


def test_only_the_printing_layer_prints(repository: Path) -> None:
    """No module of the command line writes to stdout or stderr but by the functions of printing.py."""
    offenders = []
    for path in (repository / "pipeline" / "coremargin" / "cli").glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            said = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
            if said == "file.write":  # an output that was opened
                continue
            if path.name != "printing.py" and said.endswith(("echo", "print", ".write", "print_exc", "json.dumps")):
                offenders.append(f"{path.name}:{call.lineno}: {said}")
    assert offenders == []


def write_store(path: Path, labels: tuple[str, ...]) -> Path:
    """Twelve rows of each label around a point of its own."""
    rng, codes = np.random.default_rng(3), np.repeat(np.arange(len(labels)), 12)
    X = rng.standard_normal((len(codes), 4)) + 8 * rng.standard_normal((len(labels), 4))[codes]
    with StoreWriter.create(path, features=4, chunk_bytes=1 << 10) as writer:
        writer.write(X, [labels[code] for code in codes])
    return path


@pytest.fixture
def run_safely(run_cli: Callable[..., Result]) -> Callable[..., str]:
    """Runs a command: it ends by an exit code that is foreseen, and prints no control character."""

    def run(*words: Any, codes: tuple[int, ...] = (0,)) -> str:
        result = run_cli(*words, exit_code=None)
        assert result.exit_code in codes, result.stderr[:1000]
        assert harmless(result.stdout)
        assert harmless(result.stderr)
        if "--json" in words and result.exit_code == 0:
            assert result.stdout.isascii()
            json.loads(result.stdout)
        return str(result.stdout)

    return run


def everything_about(model: Path, store: Path, run: Callable[..., str]) -> None:
    """All that commands say about a model."""
    for words in (("show", model), ("verify", model, store), ("evaluate", model, store)):
        run(*words)
        run(*words, "--json")
    for name in ("p.zarr", "p.parquet", "p.csv", "p.jsonl"):
        run("predict", model, store, model.with_name(f"{model.name}.{name}"))
    run("outliers", model, codes=(0, 2))
    cut = any("\0" in label for label in Store.open(store).classes)  # a graph would end the label there: refused
    run("export", model, model.with_name(f"{model.name}.onnx"), codes=(2,) if cut else (0,))
    run("export", model, model.with_name(f"{model.name}.skops"), "--format", "sklearn-skops")


@pytest.mark.specimens(1)
@pytest.mark.parametrize("pair", range(0, len(LABELS), 2))
def test_no_label_of_two_is_obeyed(tmp_path: Path, run_safely: Callable[..., str], pair: int) -> None:
    """From ingest to export nothing crashes over two hostile labels, and nothing in them reaches the terminal."""
    for package in ("pyarrow", "onnx", "skops"):
        pytest.importorskip(package)
    store = write_store(tmp_path / "s\x1b[31m\n.zarr", LABELS[pair : pair + 2])
    for words in (("info", store), ("check", store), ("info", store, "--json")):
        run_safely(*words)
    for number, kind in enumerate(((), ("--loss", "squared_hinge"), ("--outliers", "1"))):
        model = tmp_path / f"m{number}\u202e\x07"
        run_safely("train", store, "--out", model, "--cluster", "threads", *kind, codes=(0, 4))
        everything_about(model, store, run_safely)
    campaign = tmp_path / "c\x1b[31m"
    run_safely("active", "start", store, "--out", campaign, "--error", "0.3")
    run_safely("active", "ask", campaign, "-n", 2)
    run_safely("active", "run", campaign, "--oracle", store, codes=(0, 4))
    for words in (("active", "status", campaign), ("verify", campaign, store), ("show", campaign / "model")):
        run_safely(*words)
        run_safely(*words, "--json")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [("ovr", "--C", "0.1,1", "--folds", "2"), ("ovr",), ("crammer-singer",)])
def test_no_label_of_many_is_obeyed(tmp_path: Path, run_safely: Callable[..., str], kind: tuple[str, ...]) -> None:
    """The same of all labels at once, in fleets and in one model of several classes."""
    for package in ("pyarrow", "onnx", "skops"):
        pytest.importorskip(package)
    store, model = write_store(tmp_path / "s.zarr", LABELS), tmp_path / "m"
    run_safely("train", store, "--out", model, "--cluster", "threads", "--loss", "hinge", "--classes", *kind)
    everything_about(model, store, run_safely)


def test_names_that_are_not_utf8(tmp_path: Path, run_safely: Callable[..., str]) -> None:
    """A store, a model and predictions whose paths are bytes of no encoding are written, read, shown and replaced."""
    pytest.importorskip("pyarrow")
    folder = tmp_path / os.fsdecode(b"\xff\x1b")
    folder.mkdir()
    store, model = write_store(folder / os.fsdecode(b"s\xfe.zarr"), ("a", "b")), folder / os.fsdecode(b"m\xfe")
    for _ in range(2):
        run_safely("train", store, "--out", model, "--cluster", "threads", "--overwrite")
        for name in ("p.zarr", "p.parquet", "p.csv", "p.jsonl"):
            run_safely("predict", model, store, folder / os.fsdecode(b"\xfe" + name.encode()), "--overwrite")
    run_safely("train", store, "--out", model, "--cluster", "threads", "--resume")
    for words in (("show", model), ("verify", model, store), ("info", store), ("check", store)):
        run_safely(*words)
    (folder / "job.toml").write_text('job = "train"\nstore = "no.zarr"\nout = "m"\n')
    run_safely("plan", folder / "job.toml", codes=(3,))


def test_paths_that_nobody_can_open(
    tmp_path: Path, run_safely: Callable[..., str], run_cli: Callable[..., Result]
) -> None:
    """Names that are too long and circles of links are said, without a traceback."""
    store = write_store(tmp_path / "s.zarr", ("a", "b"))
    run_safely("train", store, "--out", tmp_path / "m", "--cluster", "threads")
    (tmp_path / "circle").symlink_to("circle")
    for bad in ("n" * 300, str(tmp_path / "circle")):
        for words in (
            ("show", bad), ("info", bad), ("check", bad), ("verify", bad, store), ("verify", tmp_path / "m", bad),
            ("predict", bad, store, tmp_path / "p"), ("predict", tmp_path / "m", bad, tmp_path / "p"),
            ("predict", tmp_path / "m", store, bad), ("export", tmp_path / "m", bad),
            ("train", bad, "--out", tmp_path / "q"), ("train", store, "--out", bad),
            ("train", store, "--out", tmp_path / "q", "--cluster", bad), ("run", bad), ("plan", bad),
            ("synth", bad, "--rows", "9"), ("ingest", bad, tmp_path / "z.zarr"),
        ):  # fmt: skip
            run_safely(*words, codes=(2, 3, 5))
            assert run_cli(*words, exit_code=None).stderr.startswith("error: ")
    assert {path.name for path in tmp_path.iterdir()} == {"s.zarr", "m", "circle"}


@pytest.mark.specimens(1)
@pytest.mark.parametrize("locale", [{"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_a_terminal_that_knows_ascii_only(tmp_path: Path, locale: dict[str, str]) -> None:
    """Where stdout cannot have a character it is spelled out, and no command fails over it."""
    store = write_store(tmp_path / "\u00e9\u4e2d.zarr", ("\u00e9", "\u4e2d"))
    environment = ENVIRONMENT | locale
    done = subprocess.run([*COMMAND, "info", store], env=environment, capture_output=True, check=True, timeout=60)
    assert done.stdout.isascii()
    assert rb"\xe9" in done.stdout
    for command in ((), ("train",), ("verify",)):
        words = [*COMMAND, *command, "--help"]
        shown = subprocess.run(words, env=environment, capture_output=True, check=True, timeout=60).stdout
        assert shown.isascii()


@pytest.mark.slow
def test_a_live_line_obeys_nothing(tmp_path: Path) -> None:
    """On a real terminal what a name says to it does not arrive, while the live line's own commands do."""
    store = write_store(tmp_path / "\x1b]0;owned\x07[red].zarr", LABELS[:2])
    driver, terminal = pty.openpty()
    words = ["train", os.fspath(store), "--out", os.fspath(tmp_path / "m\x1b[35m"), "--cluster", "threads"]
    environment = ENVIRONMENT | {"TERM": "xterm-256color", "COLUMNS": "200"}
    with subprocess.Popen(
        [*COMMAND, *words], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    ) as process:
        os.close(terminal)
        shown = b"".join(iter(lambda: read(driver), b""))
    os.close(driver)
    assert process.returncode == 0
    assert b"\x1b[2K" in shown
    assert b"\\x1b]0;owned\\x07[red].zarr" in shown
    assert b"\x1b]0" not in shown
    assert b"\x1b[35m" not in shown


def read(terminal: int) -> bytes:
    """What has come; nothing at the end."""
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""
