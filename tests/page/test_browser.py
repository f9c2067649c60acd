"""The page in a browser: hundreds of answers by keyboard, a program that is killed, markup, a screen reader."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser_kit import program
from campaign_kit import CLASSES, rows_and_labels
from coremargin.active import Campaign
from page_kit import ROW, WHO, begun, lines_of, row_of, served, until

if TYPE_CHECKING:
    from browser_kit import Browser

pytestmark = [
    pytest.mark.slow, pytest.mark.timeout(900),
    pytest.mark.skipif(program() is None, reason="no Chromium is installed"),
]  # fmt: skip


def test_three_hundred_answers_by_keyboard(tmp_path: Path, chromium: Browser) -> None:
    """One key an answer, with skips and undos between: no error, and all in the log once."""
    X, labels = rows_and_labels(3000, 12)
    path = begun(tmp_path, X, error=0.005)
    with served(path) as (_, url):
        tab = chromium.tab(url + WHO)
        row_of(tab)
        told = 0
        while told < 300:
            row = row_of(tab)
            tab.press(str(1 + CLASSES.index(labels[row])))
            told += 1
            tab.until(f"{ROW} !== {row} || document.body.classList.contains('ended')")
            if told % 60 == 0:
                row = row_of(tab)
                tab.press("s")
                tab.until(f"!view.question || {ROW} !== {row}")
        last = tab.until("view.last && view.last.row + 1") - 1
        tab.press("u")
        if tab.until(f"(confirming && 'ends') || ({ROW} === {last} && 'back')") == "ends":
            tab.press("y")
        tab.until(f"{ROW} === {last}")
        tab.press(str(1 + CLASSES.index(labels[last])))
        tab.until(f"{ROW} !== {last}")
        assert tab.errors() == []
        until(lambda: Campaign(path).status["labels"] >= 300)
    lines = lines_of(path)
    held = Campaign(path)
    assert all(
        held.answer_of(row) == labels[row] for row in {line["row"] for line in lines if line["action"] == "label"}
    )
    ids = [line["id"] for line in lines]
    assert len(ids) == len(set(ids)) >= 307


def test_markup_is_shown_and_not_run(tmp_path: Path, chromium: Browser) -> None:
    """Texts, names and labels with tags in them are what is read; nothing else is loaded, and nothing of it runs."""
    X, _ = rows_and_labels(40, 3)
    evil = "<img src=x onerror=document.title='run'><script>document.title='run'</script>"
    classes = ("<b>ham</b>", "<script>document.title='run'</script>")
    path = begun(tmp_path, X, classes=classes)
    (tmp_path / "t.txt").write_text(f"{evil}\n" * 40)
    with served(path, "--text", str(tmp_path / "t.txt")) as (_, url):
        tab = chromium.tab(url + "?who=%3Cscript%3Edocument.title%3D'run'%3C/script%3E")
        row_of(tab)
        assert evil in tab.text()
        assert "<b>ham</b>" in tab.text()
        assert tab.run("document.title") == "c · coremargin"
        assert tab.run("document.querySelectorAll('blockquote *, #labels b, main script').length") == 0
        tab.press("2")
        tab.until("view.last")
        asked = [one["params"]["request"]["url"] for one in tab.events if one["method"] == "Network.requestWillBeSent"]
        assert [one for one in asked if not one.startswith((url, "data:"))] == []
        assert tab.errors() == []


def test_a_page_that_is_stale(tmp_path: Path, chromium: Browser) -> None:
    """The program is killed and started again: the tab says so, goes on with it, and sends the key that was pressed in
    between once.
    """
    X, labels = rows_and_labels(300, 3)
    path = begun(tmp_path, X)
    with served(path) as (process, url):
        tab = chromium.tab(url + WHO)
        row = row_of(tab)
        process.send_signal(signal.SIGKILL)
        process.wait()
        tab.press(str(1 + CLASSES.index(labels[row])))
        tab.until("document.querySelector('#notices').textContent.includes('kept in this tab')")
    with served(path) as (_, again):
        assert again == url
        tab.until("typeof view !== 'undefined' && view && !away && !sending && view.last")
        assert tab.run("view.last.row") == row
        until(lambda: any(line["row"] == row for line in lines_of(path)))
    assert [line["label"] for line in lines_of(path) if line["row"] == row] == [labels[row]]


def test_a_row_that_is_exchanged_under_the_finger(tmp_path: Path, chromium: Browser) -> None:
    """A key that was pressed for the row before labels none; a moment later the next one counts."""
    X, labels = rows_and_labels(300, 3)
    path = begun(tmp_path, X)
    with served(path) as (_, url):
        tab = chromium.tab(url + WHO)
        row = row_of(tab)
        tab.run("shownRow = view.question.row + 1; see(view); 0")  # as if that row had been there until now
        tab.press("1")
        tab.until("document.querySelector('#notices').textContent.includes('the key was taken for the one before')")
        assert (row_of(tab), lines_of(path)) == (row, [])
        time.sleep(0.5)
        tab.press(str(1 + CLASSES.index(labels[row])))
        tab.until(f"{ROW} !== {row}")
        until(lambda: any(line["row"] == row for line in lines_of(path)))


def test_what_was_said_of_a_row_that_has_gone(tmp_path: Path, chromium: Browser) -> None:
    """A word that was typed, or asked back about, counts for no other row, nor does a key after a pause between rows;
    a button that is held down is pressed once.
    """
    X, _ = rows_and_labels(300, 3)
    path = begun(tmp_path, X, classes=None)
    typed = "part('word').value = '{}'; part('word').dispatchEvent(new Event('input')); 0"
    sent, notices = "part('typed').requestSubmit(); 0", "document.querySelector('#notices').textContent"
    with served(path) as (_, url):
        tab = chromium.tab(url + WHO)
        row = row_of(tab)
        tab.run(typed.format("ham"))
        tab.run(sent)
        tab.until(f"{ROW} !== {row}")
        row = row_of(tab)
        tab.run(
            "look = () => new Promise(() => {}); see({...view, version: view.version + 1000}); 0"
        )  # no news from here on
        other = f"see({{...view, question: {{...view.question, row: {row} + 1}}}}); 0"
        tab.run(typed.format("spam"))
        tab.run(other)  # as if somebody else had answered
        time.sleep(0.5)
        tab.run(sent)
        tab.until(f"{notices}.includes('What was said of row {row} counts for none')")
        tab.run(f"see({{...view, question: {{...view.question, row: {row}}}}}); 0")
        time.sleep(0.5)
        tab.run(typed.format("") + ";" + typed.format("spam"))
        tab.run(sent)
        tab.until("confirming !== null")
        tab.run(other)
        tab.press("y")
        tab.until(f"{notices}.includes('What was said of row {row} counts for none')")
        shown = "{row: 7, missing: [], reason: '', why: ''}"
        tab.run(f"see({{...view, question: null}}); see({{...view, question: {shown}}}); answer('label', 'ham'); 0")
        assert "the key was taken for the one before" in tab.run(notices)
        held = "new KeyboardEvent('keydown', {key: 'Enter', repeat: true, cancelable: true, bubbles: true})"
        assert tab.run(f"part('skip').dispatchEvent({held})") is False
        assert tab.run(f"part('skip').dispatchEvent({held.replace('true', 'false', 1)})") is True
        assert tab.errors() == []
    assert [line["label"] for line in lines_of(path)] == ["ham"]


def test_a_screen_reader_hears_each_question(tmp_path: Path, chromium: Browser) -> None:
    """The next row and why it is asked about are announced, the focus stays, buttons have names, keys can be off."""
    X, labels = rows_and_labels(200, 3)
    path = begun(tmp_path, X)
    with served(path) as (_, url):
        tab = chromium.tab(url + WHO)
        row = row_of(tab)
        said = "document.querySelector('#live').textContent"
        assert tab.run(said).startswith(f"Row {row}. ")
        tab.run("document.querySelectorAll('#labels button')[0].focus(); 0")
        place = CLASSES.index(labels[row])
        tab.press(str(1 + place))
        tab.until(f"{ROW} !== {row}")
        assert tab.run("document.activeElement === document.querySelectorAll('#labels button')[0]")
        after = row_of(tab)
        assert tab.run(said).startswith(f"Row {after}. ")
        assert tab.run("document.querySelector('#live').getAttribute('aria-live')") == "polite"
        tab.run("document.querySelector('#keys').click(); 0")
        tab.press("1")
        time.sleep(0.5)
        assert row_of(tab) == after
        tab.run("document.querySelectorAll('#labels button')[0].focus(); 0")
        tab.press("Enter")
        tab.until(f"{ROW} !== {after}")
        tab.run("document.querySelector('#keys').click(); 0")
