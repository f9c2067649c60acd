"""Campaigns as people meet them: start, ask, tell, run, label, status."""

from __future__ import annotations

import html
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import termios
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest

from campaign_kit import three_classes, unlabelled
from coremargin.errors import Busy
from coremargin.formats.choices import Method
from coremargin.problems.active.spec import ActiveJob
from coremargin.problems.registry import write_report

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.data.store import Store

Cli = Callable[..., "Result"]
SAID = (
    "status", "labels_asked", "draws", "draws_wrong", "scans", "bytes_read", "store_bytes", "lower", "upper",
    "error_bound", "confidence",
)  # fmt: skip


@pytest.fixture
def pool(make_separable: Callable[..., Any], make_store: Callable[..., Store], tmp_path: Path) -> tuple[Store, Path]:
    """300 rows of 3 features without labels, and a file that has them."""
    X, y = make_separable(300, 3)
    words = ["spam" if one > 0 else "ham" for one in y]
    oracle = tmp_path / "labels.csv"
    oracle.write_text("row,label\n" + "".join(f"{row},{word}\n" for row, word in enumerate(words)))
    return make_store(X, None), oracle


def test_from_a_store_to_a_proof(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """A file plays the person: exit code 0, a model like any other, figures as JSON; a campaign that has ended says
    so.
    """
    store, oracle = pool
    out, model = tmp_path / "c", tmp_path / "c" / "model"
    begun = run_cli("active", "start", store.path, "--out", out, "--classes", "ham,spam", "--error", "0.05")
    assert f"`coremargin active label {out}`" in begun.stdout
    assert "Lemma 4.2 allows 4e+04 rows near the hyperplane and" in begun.stdout  # 4 (R / margin)^2 / epsilon^2
    ran = run_cli("active", "run", out, "--oracle", oracle, "--json")
    found = json.loads(ran.stdout.splitlines()[-1])
    assert set(SAID) <= set(found)
    assert (found["status"], found["confidence"]) == ("certified", 0.99)
    assert 0 <= found["error_bound"] <= 15
    assert found["labels_asked"] > found["draws"] > 0
    text = run_cli("active", "status", out).stdout
    assert "certified" in text
    assert f"at most {found['error_bound']:,} (" in text
    assert f"coremargin verify {out.resolve()} {store.path}" in text
    assert "nothing to ask: the campaign has ended (certified)" in run_cli("active", "ask", out).stdout
    shown = run_cli("show", model).stdout
    assert "are labelled wrongly: 0 of" in shown
    assert "'ham' (negative), 'spam' (positive)" in shown
    assert f"coremargin verify {out.resolve()} {store.path}" in run_cli("show", model.resolve()).stdout
    page = (model / "report.html").read_text(encoding="utf-8")
    assert re.search(r"of the [\d,]+ rows that had no answer when [\d,]+ of them were drawn are labelled wrongly", page)
    assert f"coremargin verify c {store.path}" in page
    write_report(model)
    assert f"coremargin verify c {store.path}" in (model / "report.html").read_text(encoding="utf-8")
    predicted = json.loads(run_cli("predict", model, store.path, tmp_path / "p.zarr", "--json").stdout)
    assert {one["label"]: one["rows"] for one in predicted["classes"]} == {
        word: oracle.read_text().count(word) for word in ("ham", "spam")
    }
    run_cli("export", model, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_size > 0


def test_questions_go_out_and_come_back_as_files(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """CSV and JSONL that people fill in: what is empty waits, what is asked again is the same, mistakes are refused."""
    store, oracle = pool
    labels = dict(line.split(",") for line in oracle.read_text().splitlines()[1:])
    out = tmp_path / "c"
    run_cli("active", "start", store.path, "--out", out, "--classes", "ham,spam", "--json")
    asked = run_cli("active", "ask", out, "-n", "6", "--to", tmp_path / "q.csv").stdout
    assert f"coremargin active tell {out} {tmp_path / 'q.csv'}" in asked
    head, *lines = (tmp_path / "q.csv").read_text().splitlines()
    assert (head, len(lines)) == ("row,why,attempt,label,action", 6)
    rows = [line.split(",")[0] for line in lines]
    filled = [f"{row},start,,{labels[row]}," for row in rows[:3]]
    (tmp_path / "q.csv").write_text("\n".join([head, *filled, f"{rows[3]},start,,,skip", *lines[4:]]) + "\n")
    told = json.loads(run_cli("active", "tell", out, tmp_path / "q.csv", "--who", "anna", "--json").stdout)
    assert (told["new"], told["labels_asked"], told["passed"], told["awaited"]) == (4, 3, 1, 2)
    assert "1 new answer\n" in run_cli("active", "tell", out, tmp_path / "q.csv").stdout  # put off once more
    run_cli("active", "ask", out, "--again", "--to", tmp_path / "again.jsonl")
    again = [json.loads(line) for line in (tmp_path / "again.jsonl").read_text().splitlines()]
    assert [str(one["row"]) for one in again] == rows[4:]
    (tmp_path / "again.jsonl").write_text(json.dumps({"row": again[0]["row"], "label": "egg"}) + "\n")
    refused = run_cli("active", "tell", out, tmp_path / "again.jsonl", exit_code=3)
    assert "expected 'ham' or 'spam', found 'egg'" in refused.stderr
    found = json.loads(run_cli("active", "ask", out, "-n", "2", "--json").stdout)
    assert len(found["questions"]) == 2
    assert {"row", "why", "attempt"} <= set(found["questions"][0])
    first = json.loads((out / "answers.jsonl").read_text().splitlines()[0])
    assert (first["who"], first["action"], first["why"]) == ("anna", "label", "start")


def test_questions_replace_no_file(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """Answers that people have typed are never written over, and no row is booked for a file that cannot be written;
    where there is no question, there is no file.
    """
    out, held = tmp_path / "c", tmp_path / "q.csv"
    run_cli("active", "start", pool[0].path, "--out", out, "--classes", "ham,spam")
    run_cli("active", "ask", out, "-n", "4", "--to", held)
    filled = held.read_bytes().replace(b"start,,,", b"start,,ham,")
    held.write_bytes(filled)
    booked = (out / "asked.json").read_bytes()
    for target, code in ((held, 2), (tmp_path / "nowhere" / "q.csv", 5)):
        for again in ([], ["--again"]):
            refused = run_cli("active", "ask", out, "-n", "4", "--to", target, *again, exit_code=code).stderr
            assert f"`coremargin active tell {out} {held}`" in refused or "nowhere" in refused
    assert (held.read_bytes(), (out / "asked.json").read_bytes()) == (filled, booked)
    run_cli("active", "tell", out, held)
    assert "nothing" in run_cli("active", "ask", out, "--again", "--to", tmp_path / "none.csv").stdout
    assert not (tmp_path / "none.csv").exists()


@pytest.mark.slow
def test_an_oracle_that_does_not_know_all(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """Exit code 4 where answers are missing; there is a model that says how far it came, and it can be gone on with."""
    store, oracle = pool
    out, some = tmp_path / "c", tmp_path / "some.csv"
    run_cli("active", "start", store.path, "--out", out, "--examples", oracle)
    assert json.loads(run_cli("active", "status", out, "--json").stdout)["labels_asked"] == 300
    out = tmp_path / "d"
    run_cli("active", "start", store.path, "--out", out)
    some.write_text("\n".join(oracle.read_text().splitlines()[:150]) + "\n")
    said = run_cli("active", "run", out, "--oracle", some, exit_code=4).stdout
    assert "the file has no label for rows " in said
    run_cli("active", "run", out, "--oracle", oracle, "--most", "40", exit_code=4)
    assert "status" in run_cli("active", "stop", out).stdout
    assert "nothing is shown of the rows without an answer" in run_cli("show", out / "model").stdout
    run_cli("active", "run", out, "--oracle", oracle, "--batch", "5")


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are read from the input that click's runner plays; test_a_terminal has a real one."""
    monkeypatch.setattr("coremargin.cli.terminal.at_terminal", lambda: True)


def pressed(out: Path, keys: str, who: str = "eva") -> str:
    """What `label` prints while these keys are pressed."""
    from click.testing import CliRunner

    from coremargin.cli import main

    done = CliRunner().invoke(main, ["active", "label", str(out), "--who", who], input=keys)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def lines_of(out: Path) -> list[dict[str, Any]]:
    """The log of a campaign."""
    return [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]


@pytest.mark.usefixtures("at_terminal")
def test_a_key_an_answer(tmp_path: Path, pool: tuple[Store, Path]) -> None:
    """In a terminal 1 and 2 answer, s puts off, ? gives up, u takes back, q ends; rows are shown with their numbers."""
    from click.testing import CliRunner

    from coremargin.cli import main

    store, _ = pool
    out = tmp_path / "c"
    CliRunner().invoke(main, ["active", "start", str(store.path), "--out", str(out), "--classes", "ham,spam"])
    done = CliRunner().invoke(main, ["active", "label", str(out), "--who", "eva"], input="x1s?2uu2q")
    assert done.exit_code == 0, done.stdout
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    assert [line["action"] for line in lines] == ["label", "skip", "unsure", "label", "undo", "undo", "label"]
    assert [line["label"] for line in lines if line["label"]] == ["ham", "spam", "spam"]
    assert {line["who"] for line in lines} == {"eva"}
    numbers = ", ".join(f"{k}: {value:.6g}" for k, value in enumerate(store.rows_at(np.array([lines[0]["row"]]))[0][0]))
    assert f"row {lines[0]['row']} (start)" in done.stdout
    assert numbers in done.stdout
    words = CliRunner().invoke(main, ["active", "start", str(store.path), "--out", str(tmp_path / "d")])
    assert words.exit_code == 0
    done = CliRunner().invoke(main, ["active", "label", str(tmp_path / "d")], input="one\ntwo\ny\n1q")
    assert done.exit_code == 0, done.stdout
    labels = [json.loads(line)["label"] for line in (tmp_path / "d" / "answers.jsonl").read_text().splitlines()]
    assert labels == ["one", "two", "one"]


@pytest.mark.usefixtures("at_terminal")
def test_a_key_for_each_of_nine_labels(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """Three classes have the keys 1 to 3; more than nine are typed, and a label that is a letter of a command, too, in
    quotes.
    """
    out, many = tmp_path / "c", tmp_path / "d"
    run_cli("active", "start", pool[0].path, "--out", out, "--classes", "a,b,c")
    said = pressed(out, "1439q")
    assert "1 'a'   2 'b'   3 'c'   s skip   ? unsure   u undo   q quit" in said
    assert [line["label"] for line in lines_of(out)] == ["a", "c"]
    run_cli("active", "start", pool[0].path, "--out", many, "--classes", ",".join("qrstuvwxyz"))
    said = pressed(many, "w\n'q'\negg\ns\nq\n")
    assert "type one of 10 labels, such as 'q', or s skip" in said
    assert "expected 'q' or 'r' or 's'" in said
    assert [(line["action"], line["label"]) for line in lines_of(many)] == [
        ("label", "w"), ("label", "q"), ("skip", None)
    ]  # fmt: skip


def test_a_contradiction_says_both_ways_on(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """Rows whose hulls meet are named with their answers, and the two commands that go on are right as they stand: an
    answer is taken back by a file, or a campaign with a loss begins with the answers that hold.
    """
    store, oracle = pool
    out, wrong, back = tmp_path / "c", tmp_path / "wrong.csv", tmp_path / "back.csv"
    head, *lines = oracle.read_text().splitlines()
    turned = [line.replace("ham", "x").replace("spam", "ham").replace("x", "spam") for line in lines[::20]]
    wrong.write_text("\n".join([head, *turned, *(line for line in lines if line not in lines[::20])]) + "\n")
    run_cli("active", "start", store.path, "--out", out, "--classes", "ham,spam", "--error", "0.1", "--examples", wrong)
    said = run_cli("active", "status", out).stdout
    assert "not_separable" in said
    found = json.loads(run_cli("active", "status", out, "--json").stdout)
    first = found["contradiction"][0]
    assert f"rows {first['row']} ({first['label']!r}), " in said
    assert "nothing to ask: the campaign has ended" in run_cli("active", "ask", out).stdout
    assert f"coremargin active tell {out.resolve()} FILE" in run_cli("active", "ask", out).stdout
    page = (out / "model" / "report.html").read_text(encoding="utf-8")
    assert f"coremargin active start {store.path} --out NEW --loss hinge --C auto --error 0.1 --examples c<" in page
    begin = next(line for line in said.splitlines() if "--loss" in line).split("coremargin ")[1]
    words = [str(tmp_path / "soft") if word == "NEW" else word for word in shlex.split(begin)]
    begun = json.loads(run_cli(*words, "--trial", "100", "--json").stdout)
    assert (begun["loss"], begun["labels"]) == ("hinge", 300)
    assert begun["C"] > 0
    back.write_text("row,label,action\n" + "".join(f"{line.split(',')[0]},,undo\n" for line in turned))
    assert json.loads(run_cli("active", "tell", out, back, "--json").stdout)["status"] == "running"
    run_cli("active", "run", out, "--oracle", oracle)


def test_what_ends_an_attempt_is_said(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """A row that is set aside when draws are known voids them: who does that hears of it, and not of answers else."""
    store, oracle = pool
    out, late = tmp_path / "c", tmp_path / "late.csv"
    run_cli("active", "start", store.path, "--out", out, "--error", "0.2", "--confidence", "0.9")
    run_cli("active", "run", out, "--oracle", oracle)
    known = {line["row"] for line in lines_of(out)}
    late.write_text(f"row,label,action\n{next(row for row in range(300) if row not in known)},,unsure\n")
    said = run_cli("active", "tell", out, late, "--examples").stdout
    assert "attempt 1 to try the model has ended, its draws are answers like any other: others will be drawn" in said
    assert "has ended" not in run_cli("active", "tell", out, late, "--examples").stdout


def test_the_way_on_asks_for_what_was_asked_for(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """The command that goes on from a contradiction has the options of the campaign, on the terminal and on the page,
    and a number for C where a class has too few answers for folds; it is right as it stands.
    """
    store, oracle = pool
    out, wrong = tmp_path / "c", tmp_path / "wrong.csv"
    head, *lines = oracle.read_text().splitlines()
    hams, spams = ([line.split(",")[0] for line in lines if line.endswith(one)] for one in ("ham", "spam"))
    rows = [*((row, "ham") for row in hams[:9]), *((row, "spam") for row in [*hams[9:12], spams[0]])]
    wrong.write_text("\n".join([head, *(f"{row},{label}" for row, label in rows)]) + "\n")
    asked = "--scaling standard --no-intercept --error 0.05 --by-class --seed 4 --confidence 0.95 --epsilon 0.2"
    begun = ("active", "start", store.path, "--out", out, "--classes", "ham,spam", "--method", "slab")
    run_cli(*begun, *shlex.split(asked), "--memory", "64 MiB")
    run_cli("active", "tell", out, wrong, "--examples")
    said = run_cli("active", "status", out).stdout
    assert "not_separable" in said
    page = html.unescape((out / "model" / "report.html").read_text(encoding="utf-8"))
    wanted = options(shlex.split(f"--loss hinge --C 1 {asked}"))
    begin = next(line for line in said.splitlines() if "--loss" in line).split("coremargin ")[1]
    for text, more in ((begin, ["memory 64 MiB"]), (page, [])):  # which no model has
        found = text.split("--out NEW ")[1].split(" --examples")[0]
        assert sorted(options(shlex.split(found))) == sorted(wanted + more)
    words = [str(tmp_path / "soft") if word == "NEW" else word for word in shlex.split(begin)]
    begun = json.loads(run_cli(*words, "--json").stdout)
    known = ("scaling", "intercept", "error", "confidence", "by_class", "seed", "epsilon", "memory", "C")
    assert [begun["parameters"][name] for name in known] == ["standard", False, 0.05, 0.95, True, 4, 0.2, 64 << 20, 1]


def options(words: list[str]) -> list[str]:
    """Each option with its value."""
    return [word.strip() for word in " ".join(words).split("--")]


@pytest.mark.slow
def test_a_class_that_no_row_has_is_left_out(tmp_path: Path, run_cli: Cli) -> None:
    """Where all rows are answered and none has a class, that is said and no bound; the command that begins without it
    is right as it stands. Where some are not, the bound is about these. The class has no answer, not nothing.
    """
    X, labels = three_classes(60)
    store = unlabelled(tmp_path / "three.zarr", X)
    for error, pattern in (
        ("0.01", "none of them 'd'; all rows are answered; begin another campaign without such classes: `(.*)`"),
        ("0.2", "at most (.*) of the other (.*) rows are labelled wrongly, and no more can have such a label; if you"),
    ):
        out, oracle = tmp_path / f"c{error}", tmp_path / "labels.csv"
        oracle.write_text("row,label\n" + "".join(f"{row},{label}\n" for row, label in enumerate(labels)))
        run_cli("active", "start", store, "--out", out, "--classes", "a,b,c,d", "--error", error)
        said = run_cli("active", "run", out, "--oracle", oracle, exit_code=3).stderr
        found = re.search(pattern, said)
        assert found is not None
        assert re.search(r"'d' +no answer", run_cli("show", out / "model").stdout)
        if error == "0.01":
            words = [str(tmp_path / "new") if word == "NEW" else word for word in shlex.split(found[1])[1:]]
            begun = json.loads(run_cli(*words, "--json").stdout)
            assert (begun["classes"], begun["labels"]) == (["a", "b", "c"], 60)
            run_cli("active", "run", tmp_path / "new", "--oracle", oracle)
            assert "all rows are answered" in run_cli("active", "status", tmp_path / "new").stdout
        else:
            left = 60 - json.loads(run_cli("active", "status", out, "--json").stdout)["labels"]
            assert int(found[2]) == left > 0
            assert int(found[1]) <= left


@pytest.mark.slow
def test_a_noisy_campaign_is_told(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """Draws, those that were wrong and the interval are in the status, its JSON, show and the page, as rows and shares;
    verify finds it true.
    """
    store, oracle = pool
    noisy, out = tmp_path / "noisy.csv", tmp_path / "c"
    text = oracle.read_text().splitlines()
    text[5::10] = [line.replace("ham", "x").replace("spam", "ham").replace("x", "spam") for line in text[5::10]]
    noisy.write_text("\n".join(text) + "\n")
    asked = ["--classes", "ham,spam", "--loss", "hinge", "--C", "1", "--error", "0.3", "--trial", "80"]
    begun = run_cli("active", "start", store.path, "--out", out, *asked).stdout
    assert "draws 80 rows of those without an answer, or all that there are" in begun
    assert "value    nothing is proven yet" in begun
    found = json.loads(run_cli("active", "run", out, "--oracle", noisy, "--json").stdout.splitlines()[-1])
    assert set(SAID) <= set(found)
    evidence = found["evidence"]
    assert (found["status"], evidence["draws"], found["draws"]) == ("certified", 80, 80)
    assert 0 < evidence["wrong"] <= found["draws_wrong"]
    share = f"at most {found['error_bound']:,} ({100 * found['error_bound'] / found['population']:.3g} %)"
    drawn = f"{evidence['wrong']} of 80 drawn were"
    for said in (run_cli("active", "status", out).stdout, run_cli("show", out / "model").stdout):
        assert share in said
        assert f"{drawn}, which are counted" in said
        assert "hinge, C 1.0" in said
    page = (out / "model" / "report.html").read_text(encoding="utf-8")
    assert share in page
    about = f"of the {found['population']:,} rows that had no answer when 80 of them were drawn are labelled wrongly"
    assert about in page
    assert about in run_cli("active", "status", out).stdout
    assert "are counted among those that can be wrong" in page
    run_cli("verify", out, store.path)
    predicted = run_cli("predict", out / "model", store.path, tmp_path / "p.zarr", "--json").stdout
    assert sum(one["rows"] for one in json.loads(predicted)["classes"]) == 300


@pytest.mark.slow
def test_three_classes_from_a_job_file(tmp_path: Path, run_cli: Cli) -> None:
    """A job names classes and examples; its model is shown, predicts, is exported and verified as any other."""
    X, labels = three_classes()
    store = unlabelled(tmp_path / "three.zarr", X)
    text = "row,label\n" + "".join(f"{row},{label}\n" for row, label in enumerate(labels))
    (tmp_path / "labels.csv").write_text(text)
    (tmp_path / "some.csv").write_text("\n".join(text.splitlines()[:10]) + "\n")
    job, model = tmp_path / "job.toml", tmp_path / "c" / "model"
    job.write_text(
        'job = "active"\nstore = "three.zarr"\nout = "c"\noracle = "labels.csv"\nexamples = "some.csv"\n'
        'classes = ["a", "b", "c"]\nby_class = true\nerror = 0.1\n'
    )
    found = json.loads(run_cli("run", job, "--json").stdout.splitlines()[-1])
    assert (found["status"], found["classes"]) == ("certified", ["a", "b", "c"])
    assert [part["label"] for part in found["evidence"]["strata"]] == ["a", "b", "c"]
    shown = run_cli("show", model).stdout
    assert "of each class against the rest" in shown
    assert "rows called so are not: 0 of" in shown
    assert "3 classes, each against the rest" in (model / "report.html").read_text(encoding="utf-8")
    predicted = json.loads(run_cli("predict", model, store, tmp_path / "p.zarr", "--json").stdout)
    assert {one["label"]: one["rows"] for one in predicted["classes"]} == dict(Counter(labels))
    run_cli("export", model, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_size > 0
    run_cli("verify", tmp_path / "c", store)
    run_cli("run", job)


def test_labelling_needs_a_terminal(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """Without a terminal `label` waits for no key: exit code 2, and what to use instead."""
    run_cli("active", "start", pool[0].path, "--out", tmp_path / "c")
    refused = run_cli("active", "label", tmp_path / "c", exit_code=2).stderr
    assert "active label: expected a terminal, found none; use `coremargin active ask CAMPAIGN --to FILE`" in refused


@pytest.mark.slow
def test_a_terminal(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """In a real terminal a word and keys are answers as soon as they are pressed; Ctrl-D ends like q."""
    out = tmp_path / "c"
    rows = dict(reversed(line.split(",")) for line in pool[1].read_text().splitlines()[:0:-1])
    (tmp_path / "two.csv").write_text(f"row,label\n{rows['ham']},ham\n{rows['spam']},spam\n")
    run_cli("active", "start", pool[0].path, "--out", out, "--examples", tmp_path / "two.csv")
    driver, terminal = pty.openpty()
    command = [sys.executable, "-m", "coremargin", "active", "label", str(out), "--who", "eva"]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True) as process:
        os.close(terminal)
        said = b""
        for keys in (b"1", b"s", b"\x04"):
            while said.count(b"q quit") < (1, 2, 3)[(b"1", b"s", b"\x04").index(keys)]:
                said += os.read(driver, 4096)
            while termios.tcgetattr(driver)[3] & termios.ICANON:  # click drops what is pressed before it listens
                time.sleep(0.01)
            os.write(driver, keys)
        with suppress(OSError):  # as the kernel says that the other end was closed
            while data := os.read(driver, 4096):
                said += data
        assert process.wait(30) == 0, said
    os.close(driver)
    assert [(line["action"], line["label"]) for line in lines_of(out)[2:]] == [("label", "ham"), ("skip", None)]
    assert b"3 of 300 rows" in said


@pytest.mark.slow
@pytest.mark.usefixtures("at_terminal")
def test_a_new_label_is_asked_about_twice(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """A second class is one only if somebody says so, and a number at a prompt for words, too; a typo that was taken
    back leaves nothing behind: the campaign comes to its proof, which verify finds true.
    """
    out = tmp_path / "c"
    run_cli("active", "start", pool[0].path, "--out", out, "--error", "0.05")
    said = pressed(out, "1\nn\nhma\nham\nn\nu\nq\n")
    assert "1 is new: is it one of the two labels? (y/n)" in said
    assert "'ham' is new: is it the other label? (y/n)" in said
    assert f"taken back: row {lines_of(out)[0]['row']} 'hma'" in said
    assert [line["label"] for line in lines_of(out)] == ["hma", None]
    ran = json.loads(run_cli("active", "run", out, "--oracle", pool[1], "--json").stdout.splitlines()[-1])
    assert (ran["status"], sorted(ran["classes"])) == ("certified", ["ham", "spam"])
    assert "status   certified\n" in run_cli("active", "status", out).stdout
    run_cli("verify", out, pool[0].path)


@pytest.mark.usefixtures("at_terminal")
def test_u_takes_back_what_oneself_has_answered(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """Another person's answer is left alone, the row and its label are named, and an attempt ends only after a word."""
    out = tmp_path / "c"
    run_cli("active", "start", pool[0].path, "--out", out, "--classes", "ham,spam", "--error", "0.05")
    pressed(out, "1q", who="eva")
    pressed(out, "2q", who="anna")
    first, second = lines_of(out)
    said = pressed(out, "uuq", who="eva")
    assert f"taken back: row {first['row']:,} 'ham'" in said
    assert "there is no answer of eva to take back" in said
    assert [(line["row"], line["action"]) for line in lines_of(out)[2:]] == [(first["row"], "undo")]
    run_cli("active", "run", out, "--oracle", pool[1], "--most", "40", exit_code=4)
    found = json.loads(run_cli("active", "status", out, "--json").stdout)
    assert found["draws_done"] > 0
    assert found["draws_open"] > 0
    count = len(lines_of(out))
    said = pressed(out, "un\nq", who="anna")
    assert f"this ends attempt 1 to try the model, with its {found['draws_done']} answers; take back? (y/n)" in said
    assert len(lines_of(out)) == count
    assert f"taken back: row {second['row']:,} 'spam'" in pressed(out, "uy\nq", who="anna")
    assert json.loads(run_cli("active", "status", out, "--json").stdout)["attempt"] == 2


@pytest.mark.usefixtures("at_terminal")
def test_what_was_taken_back_is_shown_at_once(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """The row of an answer that u takes back is the next one, whatever else waits, drawn or not; then comes that which
    was shown when u was pressed.
    """
    out = tmp_path / "c"
    run_cli("active", "start", pool[0].path, "--out", out, "--classes", "ham,spam", "--error", "0.05")
    run_cli("active", "ask", out, "-n", "4", "--who", "eva")
    pressed(out, "1q")
    run_cli("active", "ask", out, "-n", "1", "--who", "anna")  # the file of questions is written without the first
    said = pressed(out, "u2q")
    shown = [int(row.replace(",", "")) for row in re.findall(r"^row ([\d,]+) \(", said, re.MULTILINE)]
    first = lines_of(out)[0]["row"]
    assert (shown[1], shown[2]) == (first, shown[0])
    assert f"taken back: row {first:,} 'ham'; it is asked about again now" in said
    assert [(line["row"], line["label"]) for line in lines_of(out)] == [(first, "ham"), (first, None), (first, "spam")]
    run_cli("active", "tell", out, _labels(tmp_path, pool, [first]), "--who", "ben")
    run_cli("active", "run", out, "--oracle", pool[1], "--most", "40", exit_code=4)
    last = lines_of(out)[-1]
    assert last["why"] == "draw"
    said = pressed(out, "uy\nq", who=last["who"])
    assert re.findall(r"^row ([\d,]+) \(", said, re.MULTILINE)[1].replace(",", "") == str(last["row"])


def _labels(tmp_path: Path, pool: tuple[Store, Path], rows: list[int]) -> Path:
    """A file that corrects the answers of some rows to what they are."""
    words = dict(line.split(",") for line in pool[1].read_text().splitlines()[1:])
    file = tmp_path / "right.csv"
    file.write_text("row,label,action\n" + "".join(f"{row},{words[str(row)]},correct\n" for row in rows))
    return file


@pytest.mark.usefixtures("at_terminal")
@pytest.mark.parametrize("key", ["1", "2", "s", "?", "u"])
def test_a_row_that_somebody_else_answers_meanwhile(
    tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """The answer that came first stays, the session says so where it is another one, and goes on with the next row."""
    from coremargin.active import Campaign
    from coremargin.cli import terminal

    out, before, told = tmp_path / "c", terminal._read_key, list[int]()
    run_cli("active", "start", pool[0].path, "--out", out, "--classes", "ham,spam")

    def meanwhile(classes: list[Any]) -> Any:
        if not told:
            with Campaign(out) as other:
                [question] = other.ask(1, again=True)
                told.append(question.row)
                other.tell(told, ["spam"], who="anna")
        return before(classes)

    monkeypatch.setattr(terminal, "_read_key", meanwhile)
    said = pressed(out, f"{key}1q")
    lines = [(line["row"], line["label"], line["who"]) for line in lines_of(out)]
    assert lines[0] == (told[0], "spam", "anna")
    assert (f"row {told[0]:,} was answered meanwhile: 'spam' is kept" in said) == (key != "2")
    if key == "u":  # nothing of eva's is there to take back: the key after it answers the same row
        assert lines[1:] == []
    else:
        [(row, label, who)] = lines[1:]
        assert (row != told[0], label, who) == (True, "ham", "eva")


@pytest.mark.usefixtures("at_terminal")
def test_labelling_waits_for_others(
    tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is pressed while another process works on the campaign is an answer when that one has ended."""
    from coremargin.cli import terminal
    from coremargin.data.locked import Locked

    out = tmp_path / "c"
    run_cli("active", "start", pool[0].path, "--out", out, "--classes", "ham,spam")
    from coremargin.active import log

    monkeypatch.setattr(log, "PATIENCE_S", 0.1)
    others = Locked((out / "answers.jsonl").resolve(), "this campaign")
    key, wait = terminal._read_key, terminal.print_lines

    def taken(classes: list[Any]) -> str:
        others.__enter__()
        return key(classes)

    def freed(*lines: str) -> None:
        wait(*lines)
        if "another process works" in lines[0]:
            others.__exit__(None, None, None)

    monkeypatch.setattr(terminal, "_read_key", taken)
    monkeypatch.setattr(terminal, "print_lines", freed)
    said = pressed(out, "12")
    assert said.count("another process works on the campaign, and may be reading the store: waiting for it") == 3
    assert [line["label"] for line in lines_of(out)] == ["ham", "spam"]


@pytest.mark.parametrize("command", ["tell", "ask"])
def test_a_command_is_done_or_not(
    tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Whenever another process comes in between: what ends with an error has taken no answer and booked no row."""
    from coremargin.active import log

    out, real, codes = tmp_path / "c", log.Locked, []
    run_cli("active", "start", pool[0].path, "--out", out, "--classes", "ham,spam")
    run_cli("active", "ask", out, "-n", "3", "--to", tmp_path / "q.csv")
    text = (tmp_path / "q.csv").read_text().replace("start,,,", "start,,ham,")
    (tmp_path / "q.csv").write_text(text)
    words = ["tell", out, tmp_path / "q.csv"] if command == "tell" else ["ask", out, "--to", tmp_path / "more.csv"]
    for refused in range(1, 6):
        turns = iter([False] * (refused - 1) + [True])

        def busy(*words: Any, turns: Iterator[bool] = turns, **options: Any) -> Any:
            if next(turns, False):
                raise Busy("somebody else")
            return real(*words, **options)

        before = [(out / name).read_bytes() for name in ("answers.jsonl", "asked.json")]
        with monkeypatch.context() as patched:
            patched.setattr(log, "Locked", busy)
            done = run_cli("active", *words, exit_code=None)
        after = [(out / name).read_bytes() for name in ("answers.jsonl", "asked.json")]
        assert (done.exit_code, before == after) in [(5, True), (0, False)]
        codes.append(done.exit_code)
        if done.exit_code == 0:
            break
    assert codes[0] == 5
    assert codes[-1] == 0


def test_options_of_a_campaign_are_those_of_its_job(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """Every method has a word of explanation in the help; what is not said is what a job file leaves out, and sizes may
    be texts.
    """
    shown = " ".join(run_cli("active", "start", "--help", env={"COLUMNS": "200"}).stdout.split())
    explained = shown.split("How rows are chosen: ")[1].split(" --error")[0]
    assert {method for method in get_args(Method) if method not in explained} == set()
    assert "[default: the store's, else the first two answered]" in shown
    run_cli("active", "start", pool[0].path, "--out", tmp_path / "c", "--memory", "64 MiB", "--expires", "1 h")
    facts = tomllib.loads((tmp_path / "c" / "campaign.toml").read_text())
    job = ActiveJob(store=Path("s"), out=Path("c"))
    assert (facts["memory"], facts["expires"]) == (64 << 20, 3600.0)
    assert {name: facts[name] for name in job.parameters()} == job.parameters()
    assert facts["block"] == job.block
    refused = run_cli("active", "start", pool[0].path, "--out", tmp_path / "d", "--block", "much", exit_code=2)
    assert "block: not a size: 'much'" in refused.stderr


@pytest.mark.slow
def test_rows_that_nobody_can_tell_are_named(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """Draws that no annotator could label are named, others take their places, and the campaign is certified without
    them; what is claimed says so in the status, in the model and on its page. A label for one of them is taken.
    """
    out, asked = tmp_path / "c", tmp_path / "q.csv"
    run_cli("active", "start", pool[0].path, "--out", out, "--classes", "ham,spam", "--error", "0.1")
    run_cli("active", "run", out, "--oracle", pool[1], "--most", "30", exit_code=4)
    run_cli("active", "ask", out, "-n", "15", "--to", asked)
    head, *lines = asked.read_text().splitlines()
    assert {line.split(",")[1] for line in lines} == {"draw"}
    asked.write_text("\n".join([head, *(f"{line}unsure" for line in lines)]) + "\n")
    run_cli("active", "tell", out, asked)
    rows = sorted(int(line.split(",")[0]) for line in lines)
    said = run_cli("active", "status", out).stdout
    assert f"rows {', '.join(map(str, rows[:12]))} and 3 more: a label for one of them is taken at any time" in said
    found = json.loads(run_cli("active", "run", out, "--oracle", pool[1], "--json").stdout.splitlines()[-1])
    assert (found["status"], found["attempt"], found["unsure_rows"]) == ("certified", 1, rows)
    claim = "15 rows that no annotator could label, or whose answer was taken back: nothing is claimed of them"
    for text in (run_cli("active", "status", out).stdout, run_cli("show", out / "model").stdout):
        assert claim in text
    assert claim in (out / "model" / "report.html").read_text(encoding="utf-8")
    run_cli("verify", out, pool[0].path)
    asked.write_text(f"row,label,action\n{rows[0]},ham,correct\n")
    assert (
        "found none; give its label with the action 'label'"
        in run_cli("active", "tell", out, asked, exit_code=3).stderr
    )
    labels = dict(line.split(",") for line in pool[1].read_text().splitlines()[1:])
    asked.write_text("row,label\n" + "".join(f"{row},{labels[str(row)]}\n" for row in rows))
    assert json.loads(run_cli("active", "tell", out, asked, "--json").stdout)["unsure"] == 0


def test_a_job_file(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """`coremargin run` begins the campaign that a file describes, or goes on with it; another one is refused."""
    store, _ = pool
    job = tmp_path / "job.toml"
    text = f'job = "active"\nstore = "{store.path}"\nout = "c"\noracle = "labels.csv"\nerror = 0.05\nbatch = 3\n'
    job.write_text(text)
    found = json.loads(run_cli("run", job, "--json").stdout)
    assert set(SAID) <= set(found)
    assert found["status"] == "certified"
    assert json.loads(run_cli("run", job, "--resume", "--json").stdout)["labels_asked"] == found["labels_asked"]
    assert json.loads(run_cli("plan", job, "--json").stdout)["rows"] == 300
    job.write_text(text.replace("0.05", "0.04"))
    assert "error: expected 0.05 as in the campaign there, found 0.04" in run_cli("run", job, exit_code=2).stderr
    for line, message in [
        ("max_scans = 3", "max_scans: a campaign has none"),
        ("folds = 3", "folds: a campaign has none, found 3; it belongs to"),
    ]:
        job.write_text(text + line + "\n")
        assert message in run_cli("run", job, exit_code=2).stderr
    job.write_text(text.replace("oracle", "# oracle"))
    assert "oracle: required key is missing" in run_cli("run", job, exit_code=2).stderr
    assert "it belongs to a campaign" in run_cli("run", bad_job(job, store), exit_code=2).stderr


def bad_job(job: Path, store: Store) -> Path:
    """A training job with a word that only campaigns have."""
    job.write_text(f'job = "train"\nstore = "{store.path}"\nout = "m"\nconfidence = 0.9\n')
    return job
