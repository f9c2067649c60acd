"""Tasks that show what people see of a row: its text, its image, its features; and campaigns that follow nobody."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from campaign_kit import CLASSES, rows_and_labels, unlabelled
from coremargin.active import Campaign
from coremargin.data.store import Store
from coremargin.errors import UsageError
from coremargin.label_studio.tasks import OBJECTS, configuration
from coremargin.page.row_view import LONGEST_TEXT, RowView

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

X, _ = rows_and_labels(40, 6)
GIF = b"GIF89a\x07\0\x05\0"
HOSTILE = "<script>alert(1)</script> $row"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """40 rows of 6 features."""
    return unlabelled(tmp_path / "rows.zarr", X)


@pytest.fixture
def campaign(tmp_path: Path, store: Path) -> Path:
    """A campaign about them."""
    Campaign.create(tmp_path / "c", store, classes=CLASSES).close()
    return tmp_path / "c"


def shown(tmp_path: Path) -> dict[str, str]:
    """Texts of all rows, images of the even ones."""
    (tmp_path / "t.txt").write_text("".join(f"{HOSTILE} {row}\n" for row in range(40)))
    for row in range(0, 40, 2):
        (tmp_path / f"{row}.gif").write_bytes(GIF)
    return {"text": str(tmp_path / "t.txt"), "image": str(tmp_path / "{row}.gif")}


def test_tasks_show_texts_and_images(tmp_path: Path, campaign: Path, run_cli: Callable[..., Result]) -> None:
    """As the page does, with the bytes of the image in the task; what is missing is said, and lacks no key."""
    options = [part for name, value in shown(tmp_path).items() for part in (f"--{name}", value)]
    run_cli("active", "ask", campaign, "-n", 12, "--to", tmp_path / "t.json", "--format", "label-studio", *options)
    tasks = [one["data"] for one in json.loads((tmp_path / "t.json").read_text())]
    assert len(tasks) == 12
    assert {one["row"] % 2 for one in tasks} == {0, 1}
    for one in tasks:
        assert one["text"] == f"{HOSTILE} {one['row']}"
        assert "features" not in one
        kind, _, data = one["image"].partition(",")
        if one["row"] % 2:
            assert (one["image"], one["not_shown"].split(":")[0]) == ("", str(tmp_path / f"{one['row']}.gif"))
        else:
            assert (kind, base64.b64decode(data)) == ("data:image/gif;base64", GIF)
            assert "not_shown" not in one
    told = run_cli("active", "label-studio", campaign, "--configuration", *options).stdout
    objects = [one for one in ET.fromstring(told) if one.tag != "Choices"]  # noqa: S314 - our own
    assert [(one.tag, one.get("value")) for one in objects] == [("Image", "$image"), ("Text", "$text")]
    refused = run_cli("active", "ask", campaign, "--to", tmp_path / "a.csv", *options, exit_code=2)
    assert "give them with --format label-studio" in refused.stderr


def test_what_cannot_be_shown_books_no_question(tmp_path: Path, campaign: Path, run_cli: Callable[..., Result]) -> None:
    """A file that is not there is an error before anybody is asked."""
    run_cli(
        "active", "ask", campaign, "--to", tmp_path / "t.json", "--format", "label-studio", "--text", "no.txt",
        exit_code=2,
    )  # fmt: skip
    assert not (campaign / "asked.json").exists()
    assert not (tmp_path / "t.json").exists()


def test_parts_that_are_shown(store: Path, tmp_path: Path) -> None:
    """What the configuration names is what tasks have: a table, or image before text; long texts are cut."""
    opened = Store.open(store)
    (tmp_path / "t.txt").write_text("".join(f"{'a' * (LONGEST_TEXT + row)}\n" for row in range(40)))
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["features"]), ({"pixels": "2x3"}, ["image"]), ({"text": str(tmp_path / "t.txt")}, ["text"]),
        ({"pixels": "2x3", "text": str(tmp_path / "t.txt")}, ["image", "text"]),
    ]  # fmt: skip
    for options, parts in cases:
        sight = RowView(opened, **options)
        assert sight.parts == parts
        assert set(parts) <= sight.content(1).keys()
        told = ET.fromstring(configuration(CLASSES, parts))  # noqa: S314 - our own
        assert told.find("Choices").get("toName") == OBJECTS[parts[0]][0]  # type: ignore[union-attr]
    assert [sight.content(row)["cut"] for row in (0, 1)] == [False, True]


def test_several_people_about_a_row_answer_here(tmp_path: Path, store: Path, run_cli: Callable[..., Result]) -> None:
    """A campaign that counts heads itself says so, whatever of Label Studio it is asked for, and asks nobody."""
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, people=2)
    with pytest.raises(UsageError, match="2 people about each row"):
        campaign.follow({})
    campaign.close()
    (tmp_path / "e.json").write_text("[]")
    for command in (
        ["ask", "--to", tmp_path / "t.json", "--format", "label-studio"], ["tell", tmp_path / "e.json"],
        ["label-studio", "--configuration"], ["label-studio"],
    ):  # fmt: skip
        refused = run_cli("active", command[0], tmp_path / "c", *command[1:], exit_code=2)
        assert "follows no other program" in refused.stderr
    assert not (tmp_path / "c" / "asked.json").exists()
    assert not (tmp_path / "t.json").exists()
