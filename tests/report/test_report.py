"""The report of a model: what it says, that it needs nothing else, and that nothing in it is trusted."""

from __future__ import annotations

import itertools
import json
import re
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coremargin.errors import DataError, OutputError
from coremargin.problems.registry import write_report
from coremargin.problems.soft import report as soft
from coremargin.report import charts, numbers, svg
from coremargin.report.histogram import signed_bins
from report_examples import HOSTILE, Example, example, render_report, soft_example

EXAMPLES = {
    "certified": example,
    "paper": lambda: example(scans=40, strategy="paper"),
    "many_rounds": lambda: example(scans=700, strategy="paper"),
    "not_separable": lambda: example("not_separable", scans=3),
    "not_separable_origin": lambda: example("not_separable", scans=3, intercept=False),
    "stopped": lambda: example("stopped", scans=3),
    "stopped_at_sample": lambda: example("stopped", scans=0),
    "tiny": lambda: example(rows=100, coreset=3, classes=(0, 1), scans=1),
    "hostile": lambda: example(classes=HOSTILE),
    "small_margin": lambda: example(scale=1e-9, scans=3),
    "huge": lambda: example(scale=3e12, scans=3, rows=4_000_000_000),
    "hinge": soft_example,
    "squared_hinge": lambda: soft_example(loss="squared_hinge", class_weight="balanced", scans=1),
    "hinge_origin": lambda: soft_example(class_weight=[1.0, 2.5], intercept=False, scans=12),
    "soft_stopped": lambda: soft_example("stopped", scans=2),
    "soft_stopped_at_sample": lambda: soft_example("stopped", scans=0),
    "soft_hostile": lambda: soft_example(classes=HOSTILE),
    "soft_small": lambda: soft_example(scale=1e-9),
    "soft_huge": lambda: soft_example(scale=1e12, loss="squared_hinge"),
}
VOID = {"meta", "link", "br", "img", "hr", "input", "col"}
LOADING = {"src", "srcset", "href", "xlink:href", "action", "data", "poster", "background", "formaction"}


class Page(HTMLParser):
    """Reads a page, refuses tags that do not nest, and keeps what tests ask for."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag opens."""
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} repeats an attribute"
        self.tags.append((tag, dict(attrs)))
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag that is closed at once, as in SVG."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """A tag closes: it must be the last one opened."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text between tags."""
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        """What a reader sees, with single spaces."""
        return " ".join("".join(self.words).replace(numbers.NO_BREAK, " ").split())


def render(kind: Example, name: str = "models/kdd") -> Page:
    """The page of an example, parsed."""
    return Page(render_report(*kind, name=name))


@pytest.fixture(params=EXAMPLES, scope="module")
def page(request: pytest.FixtureRequest) -> str:
    """The page of every example in turn."""
    return render_report(*EXAMPLES[request.param]())


def save(folder: Path, parts: Example) -> Path:
    """A model folder as training leaves it, with rows that have the example's margins."""
    model, run, rounds, coreset = parts
    folder.mkdir()
    (folder / "model.json").write_text(json.dumps(model))
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rounds))
    rows = np.zeros((len(coreset["ids"]), model["features"]))
    rows[:, 0] = coreset["y"] * coreset["margins"] - 0.25
    np.savez(
        folder / "arrays.npz",
        w=np.eye(1, model["features"])[0],
        b=np.array([0.25]),
        alpha=coreset["alpha"],
        coreset_ids=coreset["ids"],
        coreset_x=rows,
        coreset_y=coreset["y"],
    )
    return folder


def test_a_page_nests_its_tags_and_names_each_id_once(page: str) -> None:
    """Every example gives a page whose tags nest and whose ids are unique."""
    parsed = Page(page)
    assert page.startswith("<!doctype html>")
    assert len(parsed.ids) == len(set(parsed.ids))


def test_a_page_loads_nothing_and_runs_nothing(page: str) -> None:
    """No script, no frame, no handler, no style import; links stay inside the page and a policy forbids the rest."""
    parsed = Page(page)
    assert not {tag for tag, _ in parsed.tags} & {"script", "iframe", "object", "embed", "img", "base", "form"}
    for _, attributes in parsed.tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert all((attributes[name] or "").startswith(("#", "data:,")) for name in LOADING & set(attributes))
    assert "@import" not in page
    assert "url(" not in page
    policies = [a["content"] for tag, a in parsed.tags if tag == "meta" and "http-equiv" in a]
    assert policies
    assert (policies[0] or "").startswith("default-src 'none'")


def test_a_page_never_says_nan_or_none(page: str) -> None:
    """No number is printed as nan, inf, None or undefined, neither in the text nor in a drawing."""
    body = page[page.index("<body>") :]
    assert not re.search(r"\b(nan|NaN|inf|Infinity|None|null|undefined)\b", body)


def test_every_drawing_is_whole_and_told(page: str) -> None:
    """Each SVG is well-formed XML, stays inside of its frame, and has a title and a description."""
    drawings = re.findall(r"<svg class=.*?</svg>", page, re.DOTALL)
    assert drawings
    for drawing in drawings:
        root = ET.fromstring(drawing)  # noqa: S314  # our own text
        width, height = (float(v) for v in root.attrib["viewBox"].split()[2:])
        told = {child.attrib.get("id"): child.text for child in root if child.tag in {"title", "desc"}}
        assert all(told[key] for key in root.attrib["aria-labelledby"].split())
        for mark in root.iter():
            across = [float(mark.attrib[key]) for key in ("x", "x1", "x2", "cx") if key in mark.attrib]
            down = [float(mark.attrib[key]) for key in ("y", "y1", "y2", "cy") if key in mark.attrib]
            assert all(-0.5 <= v <= width + 0.5 for v in across)
            assert all(-0.5 <= v <= height + 0.5 for v in down)


def test_a_certificate_is_told_in_one_sentence() -> None:
    """A certified model says what no hyperplane reaches, what this one reaches, and the share of the best."""
    text = render(example()).text
    assert (
        "No hyperplane separates these 1,000,000 rows with a margin above 0.50012. "
        "This one reaches 0.49991: at least 99.96 % of the best possible." in text
    )
    assert "coremargin verify models/kdd kdd.zarr" in text
    assert "101 rows with a dual weight" in text
    assert "Certified" in text


def test_the_numbers_of_the_run_are_there() -> None:
    """Bytes, seconds, memory, executor, digest, versions, job file and the skipped chunks are on the page."""
    parts = example()
    text = render(parts).text
    told = [parts[1]["executor"], parts[0]["certificate"]["store_digest"], 'store = "kdd.zarr"', "2026.8.0", "1.3 GiB"]
    told += ["385.3 MiB", "17 of 100 chunk visits were skipped", "2026-11-20 18:22 UTC", "strategy fast"]
    assert [part for part in told if part not in text] == []


def test_without_an_intercept_planes_pass_through_the_origin() -> None:
    """The sentence names the family of hyperplanes that the bound is about."""
    assert "No hyperplane through the origin separates" in render(example(intercept=False)).text


def test_scaled_rows_are_told() -> None:
    """The page says at the top and in the small print what was done to the rows that its numbers are about."""
    parts = example()
    parts[0]["parameters"]["scaling"] = "minmax"
    text = render(parts).text
    assert "in kdd.zarr, scaled: each column from 0 to 1" in text
    assert "minmax: each column from 0 to 1. All numbers here are of the scaled rows" in text
    assert "caling" not in render(example()).text


def test_inseparable_data_come_with_the_proof_and_a_way_out() -> None:
    """A model that is not separable names the rows that prove it, says why, and what to use instead."""
    text = render(example("not_separable", scans=3)).text
    assert "No hyperplane separates these 1,000,000 rows, to within float64. 7 of them are enough to prove it" in text
    assert "weighted average of 3 rows of class normal." in text
    assert "the same point" in text
    assert "soft margin" in text
    assert "Allow an intercept" not in text
    assert "Allow an intercept" in render(example("not_separable", scans=3, intercept=False)).text


def test_a_stopped_run_says_what_is_proven_and_how_to_go_on() -> None:
    """A stopped model claims no more than its scans prove and gives the command that resumes."""
    text = render(example("stopped", scans=3)).text
    assert "The run ended before the proof was complete." in text
    assert "coremargin train kdd.zarr --out models/kdd OPTIONS --resume" in text  # an older run says no more
    model, run, *others = example("stopped", scans=3)
    words = ["coremargin", "train", "a b;rm.zarr", "--out", "/m/kdd", "--memory", "64 MiB", "--resume"]
    again = Page(render_report(model, run | {"resume": words}, *others)).text
    assert "coremargin train 'a b;rm.zarr' --out /m/kdd --memory '64 MiB' --resume" in again
    early = render(example("stopped", scans=0)).text
    assert "The run ended before a scan over all rows was finished." in early
    assert "This one reaches" not in early


def test_a_stopped_run_without_any_bound_is_told() -> None:
    """A run that stopped before its first solve claims nothing and still has a page."""
    model, run, _, _ = example("stopped", scans=0)
    model["certificate"] |= {"lower": None, "upper": None, "ratio": None, "coreset_rows": 0}
    nothing = {key: np.zeros(0) for key in ("ids", "y", "alpha", "margins")}
    assert "before anything was proven" in Page(render_report(model, run, [], nothing)).text


def test_missing_and_broken_numbers_become_dashes() -> None:
    """An almost empty run and rounds full of NaN give a page all the same."""
    model, _, rounds, coreset = example()
    broken = [{**row, "upper": float("nan"), "seconds": float("inf"), "bytes_read": None} for row in rounds]
    page = render_report(model, {}, broken, coreset)
    Page(page)
    assert not re.search(r"\b(nan|inf|None)\b", page[page.index("<body>") :])


@pytest.mark.parametrize("parts", [example(), soft_example()], ids=["margin", "value"])
def test_an_epsilon_is_never_made_up(parts: Example) -> None:
    """What was asked for is read from the certificate, or the parameters; a record without it has no page."""
    model, *others = parts
    asked = model["certificate"].pop("epsilon")
    Page(render_report(model, *others))
    for wrong in (None, 0.0, 1.0, "0.1", float("nan")):
        model["parameters"]["epsilon"] = wrong
        with pytest.raises(DataError, match="^MODEL/model.json: expected an epsilon"):
            render_report(model, *others)
    model["certificate"]["epsilon"] = asked
    Page(render_report(model, *others))


@pytest.mark.parametrize("parts", [example("stopped"), soft_example("stopped")], ids=["margin", "value"])
def test_only_a_run_that_goes_on_is_to_be_resumed(parts: Example) -> None:
    """A run that more scans would not help is followed by a check; what an older run does not say is taken for yes."""
    model, run, *others = parts
    for says, goes_on in (({"resumable": False}, False), ({"resumable": True}, True), ({}, True)):
        page = render_report(model, run | says, *others)
        assert ("--resume" in page) is goes_on
        assert ("coremargin verify" in page) is not goes_on


@pytest.mark.parametrize("resumable", [False, True])
def test_the_page_of_a_stopped_value_says_why(*, resumable: bool) -> None:
    """The reason, which names the remedy, is there whether the run goes on or not."""
    model, run, *others = soft_example("stopped")
    run |= {"resumable": resumable, "reason": "float64 cannot tell; choose a larger epsilon"}
    assert "It ended because float64 cannot tell; choose a larger epsilon." in render_report(model, run, *others)


def test_labels_are_never_made_up() -> None:
    """A record without labels has a page that names none."""
    model, *others = example()
    del model["classes"]
    Page(page := render_report(model, *others))
    assert f"<title>{numbers.DASH} against {numbers.DASH}" in page


def test_hostile_labels_stay_text() -> None:
    """Markup, quotes, control and direction characters in labels and names are shown, never obeyed."""
    parts = example(classes=HOSTILE)
    parts[1].update(store="<img src=x onerror=alert(1)>.zarr", job="</pre><script>alert(2)</script>")
    page = render_report(*parts, name="a; rm -rf ~")
    parsed = Page(page)
    assert "<script" not in page
    assert "<img" not in page
    assert "\u202e" not in page
    assert "\x00" not in page
    assert "</title><script>alert(1)</script>" in parsed.text
    assert "coremargin verify 'a; rm -rf ~' '<img src=x onerror=alert(1)>.zarr'" in parsed.text


def test_the_histogram_says_what_it_leaves_out() -> None:
    """Rows in skipped chunks and rows beyond the range are told, and only where there are any."""
    model, run, rounds, coreset = example()
    assert "Counted:" not in render((model, run, rounds, coreset)).text
    run["histogram"]["positive"] = [0] * 79 + [12_000]
    text = render((model, run, rounds, coreset)).text
    assert "Counted: 512,000 rows; the others lie in chunks that the last scan did not have to read." in text
    assert "The outermost bins hold all rows beyond them as well." in text


def test_long_tables_are_cut_and_say_so() -> None:
    """Seven hundred rounds show the first and the last with the number left out, a coreset its fifty heaviest."""
    parts = example(scans=700, strategy="paper")
    page = render_report(*parts)
    text = Page(page).text
    assert "581 rounds left out here" in text
    assert "The 50 heaviest are shown" in text
    heaviest = int(parts[3]["ids"][np.argmax(parts[3]["alpha"])])
    assert f'<th scope="row">{heaviest}</th>' in page
    assert page.count('<th scope="row">') == 120 + 50


def test_the_page_is_a_function_of_its_input() -> None:
    """The same model gives the same page, byte for byte."""
    assert render_report(*example(seed=5)) == render_report(*example(seed=5))


def test_colours_can_be_read() -> None:
    """Text has a contrast of at least 4.5 to both grounds, marks at least 3, in the light and the dark scheme."""
    page = render_report(*example())
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in _schemes(page))
    for scheme, ground in itertools.product((light, {**light, **dark}), ("paper", "card")):
        for name in ("ink", "soft", "lower", "upper", "good", "warn", "bad"):
            assert contrast(scheme[name], scheme[ground]) >= 4.5, (name, ground)
        for name in ("negative", "positive", "read"):
            assert contrast(scheme[name], scheme[ground]) >= 3.0, (name, ground)
        assert contrast(scheme["read"], scheme["card"]) >= 4.5  # the numbers written into bars


def _schemes(page: str) -> list[str]:
    return re.findall(r":root \{(.*?)\}", page, re.DOTALL)[:2]


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours as WCAG 2 defines it."""
    lights = []
    for colour in (first, second):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_a_folder_gets_its_report(tmp_path: Path) -> None:
    """write_report reads the four files, computes the margins of the coreset, and leaves nothing but the page."""
    parts = example(coreset=9)
    folder = save(tmp_path / "kdd model", parts)
    before = {path.name for path in folder.iterdir()}
    path = write_report(folder)
    assert {entry.name for entry in folder.iterdir()} - before == {"report.html"}
    text = path.read_text(encoding="utf-8")
    assert "coremargin verify &#39;kdd model&#39; kdd.zarr" in text
    assert numbers.precision_for(parts[2][-1]["lower"], parts[2][-1]["upper"]).nearest(parts[3]["margins"][0]) in text
    assert "coremargin verify final kdd.zarr" in write_report(folder, name="final").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.json", b"{"),
        ("run.json", b"[]"),
        ("rounds.jsonl", b"{}\nx\n"),
        ("arrays.npz", b"PK"),
        ("run.json", None),
    ],
)
def test_a_damaged_folder_is_named(tmp_path: Path, name: str, content: bytes | None) -> None:
    """A file that is missing or unreadable is named in the error, and no page appears."""
    folder = save(tmp_path / "model", example(coreset=9))
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=re.escape(name)):
        write_report(folder)
    assert not (folder / "report.html").exists()


def test_a_page_that_cannot_be_put_in_place_leaves_nothing_behind(tmp_path: Path) -> None:
    """Where something else is called report.html the write fails by name and the file aside is gone."""
    folder = save(tmp_path / "model", example(coreset=9))
    (folder / "report.html").mkdir()
    with pytest.raises(OutputError, match=r"report\.html"):
        write_report(folder)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("lower", "upper", "shown"),
    [
        (0.499873, 0.5001203, ("0.49987", "0.50013")),
        (4.9987e-9, 5.0012e-9, ("4.9987 × 10⁻⁹", "5.0012 × 10⁻⁹")),
        (1234567.25, 1234600.5, ("1,234,567", "1,234,601")),
        (-3.0, 0.5, ("−3.0000", "0.5000")),
        (0.5, 0.5, ("0.500000", "0.500000")),
        (None, 0.25, ("–", "0.250000")),
        (float("nan"), float("inf"), ("–", "–")),
    ],
)
def test_bounds_are_written_with_the_digits_of_their_gap(lower: Any, upper: Any, shown: tuple[str, str]) -> None:
    """Both bounds get the digits that tell them apart."""
    precision = numbers.precision_for(lower, upper)
    written = precision.down(lower), precision.up(upper)
    assert tuple(text.replace(numbers.NO_BREAK, " ") for text in written) == shown


def test_rounding_never_claims_more_than_the_bounds(rng: np.random.Generator) -> None:
    """Over many magnitudes the written lower bound and ratio are not above, the written upper bound not below."""
    for exponent in rng.uniform(-280, 280, 400):
        upper = float(rng.uniform(1, 10) * 10.0**exponent)
        lower = float(upper * (1 - 10.0 ** rng.uniform(-15, -1)))
        precision = numbers.precision_for(lower, upper)
        assert value(precision.down(lower)) <= lower
        assert value(precision.up(upper)) >= upper
        assert float(numbers.percent_down(lower / upper).rstrip(" %" + numbers.NO_BREAK)) <= 100 * (lower / upper)


def value(text: str) -> float:
    """The number that a reader reads."""
    plain = text.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-")).replace(numbers.NO_BREAK, "").replace(",", "")
    return float(plain.replace("×10", "e"))


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0.001, "0.001"), (1e-6, "1 × 10⁻⁶"), (12345.6, "12,346"), (0.99996, "1"), (0.0, "0"), (-2.5e-7, "−2.5 × 10⁻⁷")],
)
def test_significant_digits(number: float, shown: str) -> None:
    """Numbers that claim nothing are short."""
    assert numbers.significant(number).replace(numbers.NO_BREAK, " ") == shown


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0.0, 1.0), (0.49, 0.505), (-8.7, 5.2), (1e-12, 3e-12), (2e9, 2.0001e9), (1.39984096111e-3, 1.39984096118e-3),
    ],
)  # fmt: skip
def test_ticks_are_round_and_labelled_apart(low: float, high: float) -> None:
    """Ticks lie inside of the range and no two have the same label."""
    ticks = svg.nice_ticks(low, high, 5)
    labels, _ = svg.tick_labels(ticks)
    assert 2 <= len(ticks) <= 7
    assert all(low - 1e-9 * abs(low) <= tick <= high * (1 + 1e-9) for tick in ticks)
    assert len(set(labels)) == len(labels)


def test_the_histogram_shows_negative_rows_on_the_negative_side() -> None:
    """Bins are mirrored for the negative class, empty ones are left out, and none reaches below a proven margin."""
    histogram = {"edges": [0.0, 1.0, 2.0, 3.0], "negative": [3, 0, 0], "positive": [1, 2, 4], "hypothesis": "final"}
    bins = signed_bins(histogram, 0.5)
    assert [(b.low, b.high, b.rows, b.side) for b in bins] == [
        (-2.0, -0.5, 3, "negative"),
        (0.5, 2.0, 3, "positive"),
        (2.0, 3.0, 4, "positive"),
    ]
    assert [b.height for b in bins] == [2.0, 2.0, 4.0]  # a wider bin is as much lower
    assert signed_bins({**histogram, "hypothesis": "round 3"}, 0.5)[0].high == 0.0
    assert signed_bins(None) == signed_bins({}) == signed_bins({"edges": [None, 1.0], "negative": [1]}) == []


def test_skipped_chunks_count_for_scans_only() -> None:
    """A sample leaves most chunks unread, but proves nothing about them."""
    row = {"kind": "scan", "chunks": 10, "chunks_skipped": 4}
    assert charts.skipped_share(row) == 0.4
    assert charts.skipped_share({**row, "kind": "sample"}) == 0.0
    assert charts.skipped_share({"kind": "scan"}) == 0.0


@pytest.mark.parametrize(
    ("lower", "upper", "gap"), [(0.9, 1.0, 0.1), (1.1, 1.0, 0.0), (None, 1.0, None), (-1.0, 0.0, None)]
)
def test_the_gap_is_relative_to_the_upper_bound(lower: Any, upper: Any, gap: float | None) -> None:
    """(upper - lower) / upper, and unknown without both bounds or at an upper bound of zero."""
    found = numbers.relative_gap({"lower": lower, "upper": upper})
    assert found is None if gap is None else found == pytest.approx(gap)


def test_a_soft_margin_is_told_by_its_objective() -> None:
    """A duality gap speaks of the objective's value and what none is below, never of a margin that is reached."""
    text = render(soft_example()).text
    assert "The objective of this hyperplane, summed over all 1,000,000 rows, is 1,149.50" in text
    assert "No hyperplane has less than 1,149.49" in text
    assert "within 0.0011 % of the best possible" in text
    assert "½ ‖w‖² + C Σ max(0, 1 − m), m = y (w·x + b)" in text
    assert "hinge loss with C = 0.1" in text
    assert "soft margin, with intercept, hinge, C = 0.1" in text
    assert "Margin 1 is 0.5 away from the hyperplane" in text
    for word in ("with a margin above", "This one reaches", "coreset", "hulls", "strategy"):
        assert word not in text.replace('strategy = "fast"', "")


def test_rows_are_counted_by_zone() -> None:
    """Rows on the wrong side, within the margin and beyond it are numbers that add up to all rows."""
    parts = soft_example()
    histogram, rows = parts[1]["histogram"], parts[0]["rows"]
    wrong = sum(histogram["negative"][:80]) + sum(histogram["positive"][:80])
    told = soft.zones(parts[1], soft.margin_bins(histogram))
    assert [zone["rows"] for zone in told] == [wrong, 360_000 - wrong, rows - 360_000]
    text = render(parts).text
    assert f"{wrong:,} rows, errors on the training rows" in text
    assert "640,000 rows, without a loss" in text
    moved = {**histogram, "edges": [edge + 0.02 for edge in histogram["edges"]]}
    assert soft.zones(parts[1], soft.margin_bins(moved)) == []


def test_rows_between_their_bounds_lead_the_band() -> None:
    """A hinge lists the rows whose weight is neither 0 nor the full C; weights a hair off count as bounds."""
    parts = soft_example()
    text = render(parts).text
    assert "300 rows, 80 of them with their full C and 100 in between" in text
    assert f'<th scope="row">{parts[3]["ids"][200]}</th>' in render_report(*parts)
    assert f'<th scope="row">{parts[3]["ids"][10]}</th>' not in render_report(*parts)
    squared = render(soft_example(loss="squared_hinge"))
    assert "no list of rows is stored" in squared.text
    assert "Dual weight" not in squared.text


def test_class_weights_and_the_origin_are_part_of_the_objective() -> None:
    """The formula has the class weights and leaves out an intercept that is not there."""
    text = render(soft_example(class_weight=[1.0, 2.5], intercept=False)).text
    assert "½ ‖w‖² + C Σ s max(0, 1 − m), m = y (w·x)" in text
    assert "class weights s of 1 for normal. and 2.5 for neptune., without an intercept" in text
    assert "make up for unequal numbers" in render(soft_example(class_weight="balanced")).text


def test_a_stopped_soft_margin_claims_what_is_known() -> None:
    """Without a scan nothing is claimed; after some the value and the bound so far are."""
    early = render(soft_example("stopped", scans=0)).text
    assert "Nothing is proven about this hyperplane yet." in early
    assert "1,149" not in early
    later = render(soft_example("stopped", scans=2)).text
    assert "Known so far: the objective of this hyperplane" in later
    assert "It ended because a limit was reached." in later


@pytest.mark.parametrize(
    ("share", "shown"), [(1.6e-5, "0.0016 %"), (0.0, "0 %"), (0.25, "25 %"), (2.31e-10, "2.4 × 10⁻⁸ %"), (None, "–")]
)
def test_a_gap_is_rounded_up(share: float | None, shown: str) -> None:
    """What may be missing is never written smaller than it is."""
    assert numbers.percent_up(share).replace(numbers.NO_BREAK, " ") == shown


@given(st.floats(1e-300, 1e300), st.floats(1e-12, 1.0))
def test_bounds_on_a_terminal_are_rounded_outward(upper: float, ratio: float) -> None:
    """What is written is as true as what is known, however close the two are; so is their share."""
    lower = upper * ratio
    down, up = (_read(text) for text in numbers.plain_bounds(lower, upper))
    assert down <= Decimal(lower) <= Decimal(upper) <= up
    share = numbers.plain_share(lower / upper)
    assert Decimal(share.removesuffix(" %")) <= 100 * Decimal(lower / upper) * (1 + Decimal(2) ** -52)


def _read(text: str) -> Decimal:
    """A number as people read it."""
    raised = str.maketrans("\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079", "-0123456789")
    return Decimal(text.replace(",", "").replace(" \u00d7 10", "e").translate(raised))
