"""Nothing in a record becomes part of a page: texts are text, in elements, attributes, drawings and styles."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coremargin
from coremargin.active import Campaign
from coremargin.data.arrays import ArraySource
from coremargin.data.writer import StoreWriter
from coremargin.problems.active import report as active
from coremargin.problems.common import report as common
from coremargin.problems.fleet import report as fleet
from coremargin.problems.hard import report as hard
from coremargin.problems.multiclass import report as multiclass
from coremargin.problems.outliers import report as outliers
from coremargin.problems.soft import report as soft
from coremargin.report import page, svg
from report_examples import example, soft_example


class Structure(HTMLParser):
    """Elements of a page and the names of their attributes, in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Any] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.found.append((tag, [name for name, _ in attrs]))

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        self.found.append(tag)

    def handle_comment(self, data: str) -> None:
        """A comment."""
        self.found.append("comment")

    def handle_decl(self, decl: str) -> None:
        """A declaration."""
        self.found.append("declaration")

    def handle_pi(self, data: str) -> None:
        """An instruction."""
        self.found.append("instruction")


_ENDS = "]]></style></title></svg></pre></textarea><script>alert(1)</script><img src=x onerror=alert(1)>"
_QUOTES = "x\" onfocus=\"alert(1)\" y='\" z=' onfocus='alert(1)' `"
_ENTITIES = "&lt;script&gt;&#60;b&#62; javascript:alert(1) expression(alert(1)); } * { x: y "
_CONTROLS = "\x00<\x1fb>\u202e<b>\u2028\ud800<b>"
#: What ends an element, an attribute or a style, and begins another; in two orders, as the first to end is what counts.
BREAKING = (f"{_ENDS}{_QUOTES}{_ENTITIES}{_CONTROLS}<!-- ", f"{_CONTROLS}{_ENTITIES}{_QUOTES}{_ENDS}<?x <!x ")


def texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in a record texts are."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from texts(entry, (*path, key))
    elif isinstance(value, list | tuple):
        for number, entry in enumerate(value):
            yield from texts(entry, (*path, number))


def structure(render: Callable[..., str], parts: Any, path: tuple[Any, ...], text: str) -> Any:
    """The elements of a page with another text at a place, or what is said when there can be no page."""
    parts = copy.deepcopy(parts)
    at = parts
    for key in path[:-1]:
        if isinstance(at[key], tuple):
            at[key] = list(at[key])
        at = at[key]
    at[path[-1]] = text
    try:
        return Structure(render(*parts)).found
    except (KeyError, ValueError, TypeError) as error:
        return type(error)


def trained(out: Path, labels: str = "abc", **asked: Any) -> list[Any]:
    """What the page of a model of separable classes is made of."""
    rng, y = np.random.default_rng(3), np.repeat(np.arange(len(labels)), 20)
    X = rng.standard_normal((len(y), 4)) + 8 * np.eye(len(labels), 4)[y]
    coremargin.train(ArraySource(X, [labels[code] for code in y]), out=out, cluster="threads", **asked)
    first = out / ("fleet.json" if (out / "fleet.json").exists() else "model.json")
    lines = (out / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(first.read_text()), json.loads((out / "run.json").read_text()), [*map(json.loads, lines)]]


def of_classes(out: Path, classes: str) -> list[Any]:
    """The same of three classes, in one way or the other."""
    return trained(out, classes=classes, loss="hinge", scaling="standard")


def of_outliers(out: Path) -> list[Any]:
    """The same of two classes and some rows left out."""
    parts = trained(out, "ab", outliers=[1, 2])
    return [*parts, *outliers.read_arrays(out, parts[0])]


def of_answers(out: Path, **more: Any) -> list[Any]:
    """The same of a campaign, and of one whose record says more."""
    rng, y = np.random.default_rng(3), np.repeat([0, 1], 40)
    X = rng.standard_normal((80, 4)) + 8 * np.eye(2, 4)[y]
    with StoreWriter.create(out / "rows", features=4, dtype="float32") as writer:
        writer.write(X, None, origin="test")
    with Campaign.create(out / "c", out / "rows", classes="ab", error=0.2) as campaign:
        campaign.run(lambda rows: {row: "ab"[y[row]] for row in rows})
    model, run, rounds = page.read_folder(out / "c" / "model", "model.json")
    with common.open_arrays(out / "c" / "model") as arrays:
        rows = common.coreset_of(model, arrays)
    return [{**model, **more}, run, rounds, rows, 3]


def of_noise(out: Path) -> list[Any]:
    """A campaign with a loss, evidence by class, and rows that no annotator could label."""
    model, *others = of_answers(out)
    asked = {**model["parameters"], "loss": "hinge", "C": 1.0, "trial": 10, "by_class": True}
    part = {name: model["evidence"][name] for name in ("draws", "wrong", "population", "error_bound")}
    evidence = {**model["evidence"], "strata": [{"label": label, **part} for label in "ab"]}
    return [{**model, "parameters": asked, "evidence": evidence, "unsure": 3}, *others]


def of_three(out: Path) -> list[Any]:
    """A campaign about three classes."""
    members = [{"label": label, "lower": 0.1, "upper": 0.2} for label in "abc"]
    *parts, rows, fewest = of_answers(out, classes=["a", "b", "c"], members=members)
    return [*parts, {"ids": rows["ids"], "codes": np.arange(len(rows["ids"])) % 3, "alpha": rows["alpha"]}, fewest]


KINDS = ["hard", "not separable", "soft", "outliers", "fleet", "several", "campaign", "noise", "three"]


@pytest.mark.specimens(1)
@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_a_record_becomes_part_of_a_page(tmp_path: Path, kind: str) -> None:
    """Whatever a record has for any of its texts, its page has the elements and attributes that plain words give it."""
    report = {"soft": soft, "outliers": outliers, "fleet": fleet, "several": multiclass} | dict.fromkeys(
        ("campaign", "noise", "three"), active
    )
    render: Callable[..., str] = partial(report.get(kind, hard).render, name="MODEL")
    parts: dict[str, Callable[[], Any]] = {
        "hard": example, "not separable": lambda: example("not_separable"), "soft": soft_example,
        "outliers": lambda: of_outliers(tmp_path / "m"), "fleet": lambda: of_classes(tmp_path / "m", "ovr"),
        "several": lambda: of_classes(tmp_path / "m", "crammer-singer"), "campaign": lambda: of_answers(tmp_path),
        "noise": lambda: of_noise(tmp_path), "three": lambda: of_three(tmp_path),
    }  # fmt: skip
    model, run, rounds, *others = parts[kind]()
    shown = [model, run, rounds[:2], *others]  # of the rounds one of each kind is enough
    places = list(texts(shown[:3]))
    assert len(places) > 20
    for path in places:
        plain = structure(render, shown, path, "plain")
        for text in BREAKING:
            assert structure(render, shown, path, text) == plain, (path, text)
    found = Structure(render(*shown, name="plain")).found
    assert all(Structure(render(*shown, name=text)).found == found for text in BREAKING)


@pytest.mark.parametrize("text", BREAKING)
def test_no_text_becomes_part_of_a_drawing(text: str) -> None:
    """Text in a drawing, what a pointer shows, titles and attributes stay what they are."""
    frame = svg.Frame(100, 50, 1.0, 1.0, 1.0, 1.0)
    parts = [
        svg.text(1.0, 2.0, text, class_=text),
        svg.rect(0.0, 0.0, 1.0, 1.0, text, text),
        svg.tag("g", text, id=text),
    ]
    found = Structure(svg.drawing("n", frame, text, text, parts)).found
    assert [entry[0] for entry in found if isinstance(entry, tuple)] == [
        "svg", "title", "desc", "text", "rect", "title", "g"
    ]  # fmt: skip
    assert not [name for entry in found if isinstance(entry, tuple) for name in entry[1] if name.startswith("on")]
