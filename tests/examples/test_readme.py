"""What README and its guides tell people to type works: their commands run, in their order, and print what they say."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import boto3
import click
import pytest

from cloud_kit import KEYS as KEYS_OF_BUCKET
from cloud_kit import moto_server

#: The front page and its guides, in the order in which a reader comes to them: later ones use what earlier ones made.
PAGES = (
    "README.md",
    *(f"pipeline/coremargin/{room}/README.md" for room in ("data", "learn", "registry", "estimators", "active")),
)

#: What the pages have in front of their commands and do not say how to make: small data by the names that they use.
GIVEN = (
    "python jobs/demo_data.py demo",
    f"python {Path(__file__).with_name('readme_data.py')} .",
    "coremargin synth rows.zarr --rows 3000 --features 8 --noise 0.05 --seed 2",
    "coremargin synth test.zarr --rows 1000 --features 8 --noise 0.05 --seed 2",
    "coremargin ingest demo/digits.X.npy digits.zarr --labels demo/digits.y.npy",
    "coremargin ingest demo/digits.X.npy new.zarr --labels demo/digits.y.npy --only 3,5",
)

#: Sizes that would take minutes, and what stands in for them here.
SMALLER = {
    '--size "8 GB"': '--size "100 MB"',  # more than a first stage: read in several, as the large one
    "--C 0.01,0.1,1,10 --folds 5": "--C 0.01,0.1 --folds 2",
}

#: Commands that are not run here, each with its reason.
NOT_RUN = {
    "pip install .": "the tests run what is installed already",
    "make demo": "test_demo.py runs what it runs; before that it makes a virtual environment, from the network",
    "make test": "it would run this",
}

#: Commands that ask in a terminal, and the keys that answer, one for each time that they offer to quit.
KEYS = {"coremargin active label zeros.campaign": "1q"}
OFFER = b"q quit"

#: Commands that go on until somebody ends them, and the last line that they print before.
SERVES = {"coremargin active page zeros.campaign --pixels 8x8": "Ctrl-C ends it"}

COMMAND = re.compile(r"(?:coremargin|make|python|pip) ")
NUMBER = re.compile(r"(?:(?<=\s)-)?\d[\d,.]*(?: × 10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?")
UNIT = re.compile(r"# (?:[KMGT]i?B|bytes?|scans?)\b")


@dataclass(frozen=True)
class Step:
    """A command, or a script in Python, and the lines that README says it prints."""

    code: str
    python: bool
    printed: tuple[str, ...]


def blocks(page: str) -> Iterator[tuple[str, list[str]]]:
    """The language ("" where none is said) and the lines of each block of code."""
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL):
        yield language, text.splitlines()


def steps(page: str) -> Iterator[Step]:
    """Everything that can be run, in the page's order.

    A command begins with "$ ", or, in blocks without one, with the name of a program in the first column; what follows
    it is what it prints, up to the next.
    """
    for language, lines in blocks(page):
        if language == "python":
            yield Step("\n".join(lines), True, ())
            continue
        if language == "toml":  # a job file, whose first line is its name
            yield Step(f"cat > {lines[0].removeprefix('# ')} << end\n" + "\n".join([*lines, "end"]), False, ())
            continue
        shown = any(line.startswith("$ ") for line in lines)
        starts = [k for k, line in enumerate(lines) if (line.startswith("$ ") if shown else COMMAND.match(line))]
        for start, stop in pairwise([*starts, len(lines)]):
            code = re.split(r"\s{2,}", lines[start].removeprefix("$ "))[0].split("  #")[0].strip()
            yield Step(code, False, tuple(line for line in lines[start + 1 : stop] if line.strip(" .")))


def pattern(text: str) -> str:
    """A text without what depends on the size of the data: its numbers, the units and the number of scans."""
    return UNIT.sub("#", NUMBER.sub("#", " ".join(text.split())))


def run(step: Step, folder: Path) -> str:
    """What a step prints in ``folder``, which must go well."""
    code = step.code
    for large, small in SMALLER.items():
        code = code.replace(large, small)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if step.code in KEYS:
        return typed(code, KEYS[step.code], folder, environment)
    if step.code in SERVES:
        return served(code, SERVES[step.code], folder, environment)
    words = [sys.executable, "-c", code] if step.python else ["bash", "-euc", code]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, f"README says {code!r}; it ends with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return f"{done.stdout}\n{done.stderr}"


def served(code: str, last: str, folder: Path, environment: dict[str, str]) -> str:
    """What a command prints until it serves; Ctrl-C must end it well."""
    command = ["bash", "-euc", f"exec {code}"]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        shown = ""
        while last not in shown and (line := process.stdout.readline()):
            shown += line
        process.send_signal(signal.SIGINT)
        shown += process.communicate(timeout=60)[0]
    assert process.returncode in {0, 130}, shown
    return shown


def typed(code: str, keys: str, folder: Path, environment: dict[str, str]) -> str:
    """What a command shows on a terminal on which a person presses ``keys``; it must go well."""
    driver, terminal = pty.openpty()
    command = ["bash", "-euc", code]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        shown, waiting = b"", list(keys)
        while part := read(driver):
            shown += part
            if shown.count(OFFER) > len(keys) - len(waiting) and waiting:
                time.sleep(0.3)  # what is typed before a key is waited for is thrown away
                os.write(driver, waiting.pop(0).encode())
    os.close(driver)
    assert (process.returncode, waiting) == (0, []), shown.decode()
    return shown.decode()


def read(terminal: int) -> bytes:
    """What has come; nothing at the end."""
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


@pytest.fixture
def page(repository: Path) -> str:
    """The text of README.md and its guides."""
    return "\n".join((repository / name).read_text(encoding="utf-8") for name in PAGES)


def test_links_lead_somewhere(repository: Path) -> None:
    """Each link of a page within the repository leads to a file, and to a heading of it where it names one."""
    pages = [page for page in repository.rglob("*.md") if ".venv" not in page.parts]
    assert {repository / name for name in PAGES} <= set(pages)
    for page in pages:
        for target, heading in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8")):
            aim = page.parent / target if target else page
            assert aim.exists(), f"{page} leads to {target}, which is not there"
            if heading:
                assert heading in headings(aim), f"{page} leads to {target}#{heading}, which is not there"


def headings(page: Path) -> set[str]:
    """The names by which a page's headings are linked to, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_the_front_page_is_short(repository: Path) -> None:
    """README has at most 1,500 words: how things work stands in the guides."""
    assert len((repository / "README.md").read_text(encoding="utf-8").split()) <= 1500


def test_commands_are_found(page: str) -> None:
    """The blocks of README hold commands and Python, each one once, and those that are not run here are among them."""
    found = [step.code for step in steps(page)]
    assert {'coremargin synth big.zarr --size "8 GB" --features 100 --margin 0.5 --seed 1', *NOT_RUN, *KEYS} <= set(
        found
    )
    assert sum(step.python for step in steps(page)) == 8
    assert len(set(found)) == len(found) >= 11
    assert all(any(large in code for code in found) for large in SMALLER)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_commands_work_and_print_what_is_said(
    repository: Path, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command and script of README succeeds, in its order, and prints the lines below it but for numbers."""
    for room in ("jobs", "cluster"):
        shutil.copytree(repository / room, tmp_path / room)
    for code in GIVEN:
        run(Step(code, False, ()), tmp_path)
    with moto_server() as endpoint:
        for name, value in (KEYS_OF_BUCKET | {"AWS_ENDPOINT_URL": endpoint}).items():
            monkeypatch.setenv(name, value)
        bucket = boto3.resource("s3", endpoint_url=endpoint).create_bucket(Bucket="bucket")
        table = "".join(["a,b,outcome\n", *(f"{row}.5,{row % 7}.25,{row % 2}\n" for row in range(50))])
        for month in ("10", "11"):
            bucket.put_object(Key=f"2026/{month}/part-0.csv", Body=table.encode())
        for step in steps(page):
            if step.code in NOT_RUN:
                continue
            said = pattern(run(step, tmp_path))
            for line in step.printed:
                wanted = pattern(line.removesuffix("..."))
                assert wanted in said, f"README says that {step.code!r} prints {line!r}"


def test_options_exist(page: str) -> None:
    """Every option that README names is one that a command has."""
    from coremargin.cli import main

    known: set[str] = set()
    waiting: list[click.Command] = [main]
    while waiting:
        command = waiting.pop()
        options = command.get_params(click.Context(command))
        known |= {word for option in options for word in (*option.opts, *option.secondary_opts)}
        if isinstance(command, click.Group):
            waiting += command.commands.values()
    named = set(re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*", page))
    assert {"--loss", "--scaling", "--resume"} <= named
    assert sorted(named - known) == []
