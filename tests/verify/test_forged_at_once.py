"""Campaigns of several classes at once: what is true is confirmed, and each forgery is named by what gives it away."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaign_kit import forgotten, unlabelled
from coremargin.active import Campaign
from coremargin.cli.campaign_status import status_text
from coremargin.data.writer import StoreWriter
from coremargin.errors import DataError
from coremargin.models.registry import load
from forge_changes import failures, put
from model_kit import altered

CLASSES = list("abc")


def rows_in_a_line(equal: int = 0) -> tuple[np.ndarray, list[str]]:
    """Rows (300, 2) of three squares in a line, float32, and their labels; so many of the third lie on the second."""
    rng = np.random.default_rng(4)
    codes = np.arange(300) % 3
    X = rng.uniform(-0.4, 0.4, (300, 2)) + np.outer(4.0 * codes, [1.0, 0.5])
    if equal:
        X[np.flatnonzero(codes == 2)[:equal]] = X[np.flatnonzero(codes == 1)[:equal]]
    return X.astype(np.float32), [CLASSES[code] for code in codes]


def finished(folder: Path, X: np.ndarray, labels: list[str], weights: Any = None, **asked: Any) -> tuple[Path, Path]:
    """A campaign that has ended, and its store."""
    store = unlabelled(folder / "rows.zarr", X, weights=weights)
    given: dict[str, Any] = {"multi_class": "crammer-singer", "error": 0.05, "confidence": 0.9, **asked}
    with Campaign.create(folder / "c", store, classes=CLASSES, **given) as campaign:
        campaign.run(lambda rows: {int(row): labels[int(row)] for row in rows})
    return folder / "c", store


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certified campaign and its store."""
    return finished(tmp_path_factory.mktemp("ended"), *rows_in_a_line())


@pytest.mark.parametrize(
    "asked", [{}, {"by_class": True}, {"scaling": "standard"}, {"method": "random"}, {"weighted": True}], ids=str
)
def test_honest_campaigns_are_confirmed(tmp_path: Path, asked: dict[str, Any]) -> None:
    """Model and campaign, of rows as stored and scaled, of weights 0, and drawn by class."""
    X, labels = rows_in_a_line()
    more = dict(asked)
    weights = np.arange(300) % 7 % 3.0 if more.pop("weighted", False) else None
    campaign, store = finished(tmp_path, X, labels, weights, **more)
    assert load(campaign / "model").status == "certified"
    assert failures(campaign / "model", store) == []
    assert failures(campaign, store) == []


def test_the_log_alone_gives_the_same_model(ended: tuple[Path, Path], tmp_path: Path) -> None:
    """State and model lost, as after a kill: the next command computes the same bytes, and verify confirms them."""
    campaign, store = ended
    with Campaign(campaign) as there, forgotten(there, tmp_path / "c") as again:
        assert again.run(lambda rows: {})["status"] == "certified"
        assert "furthest from its best" not in "\n".join(status_text(again.status))
    assert (tmp_path / "c/model/arrays.npz").read_bytes() == (campaign / "model/arrays.npz").read_bytes()
    assert (tmp_path / "c/model/model.json").read_bytes() == (campaign / "model/model.json").read_bytes()
    assert failures(tmp_path / "c", store) == []


def test_rows_that_contradict_each_other_are_listed(tmp_path: Path) -> None:
    """Equal rows of two classes: they are named, the model claims no margin, and verify confirms that there is none."""
    X, labels = rows_in_a_line(equal=100)
    campaign, store = finished(tmp_path, X, labels)
    with Campaign(campaign) as there:
        status = there.status
    assert status["status"] == "not_separable"
    rows = [one["row"] for one in status["contradiction"]]
    assert {one["label"] for one in status["contradiction"]} >= {"b", "c"}
    assert len(rows) >= 2
    text = "\n".join(status_text(status))
    assert "--loss hinge" in text
    assert "multi-class" not in text
    assert failures(campaign, store) == []


def test_where_one_class_against_the_rest_fails_the_way_on_is_named(tmp_path: Path) -> None:
    """The command that continues with all classes at once, from the answers so far; it certifies."""
    X, labels = rows_in_a_line()
    campaign, store = finished(tmp_path, X, labels, multi_class="ovr")
    with Campaign(campaign) as there:
        text = "\n".join(status_text(there.status))
    assert "with all classes at once: coremargin active start" in text
    assert "--multi-class crammer-singer" in text
    with Campaign.create(
        tmp_path / "next", store, multi_class="crammer-singer", error=0.05, examples=campaign
    ) as following:
        assert following.run(lambda rows: {int(row): labels[int(row)] for row in rows})["status"] == "certified"
    assert failures(tmp_path / "next", store) == []


def test_rows_that_are_appended_change_the_last_entry(tmp_path: Path) -> None:
    """Longer rows come: intercepts are penalised otherwise, the margin is found anew, and verify confirms it."""
    X, labels = rows_in_a_line()
    campaign, store = finished(tmp_path, X, labels)
    before = load(campaign / "model").record["certificate"]
    more, theirs = X[:60] + np.where(np.arange(60) % 3 == 2, 1, 0)[:, None] * np.float32([90, 45]), labels[:60]
    with StoreWriter.append(store) as writer:
        writer.write(more, None, None, origin="test")
    every = labels + theirs
    with Campaign(campaign) as there:
        assert there.grow() == 60
        assert there.run(lambda rows: {int(row): every[int(row)] for row in rows})["status"] == "certified"
    after = load(campaign / "model").record["certificate"]
    assert after["radius"] > 8 * before["radius"]
    assert after["lower"] > before["upper"]
    assert failures(campaign, store) == []


def test_a_campaign_that_stops_early_claims_what_is_known(tmp_path: Path) -> None:
    """Three answers, one row that no annotator can label, and no draws: an upper bound, and no evidence."""
    X, labels = rows_in_a_line()
    store = unlabelled(tmp_path / "rows.zarr", X)
    with Campaign.create(tmp_path / "c", store, classes=CLASSES, multi_class="crammer-singer") as campaign:
        campaign.tell([0, 1, 2], labels[:3], examples=True)
        campaign.skip(campaign.ask()[0].row, unsure=True)
        assert campaign.stop()
    model = load(tmp_path / "c/model")
    assert (model.status, model.evidence, model.record["certificate"]["lower"]) == ("stopped", None, None)
    assert model.record["certificate"]["upper"] > 0
    assert failures(tmp_path / "c", store) == []


def level(duals: np.ndarray) -> np.ndarray:
    """All pairs of the proof have one weight."""
    return np.asarray((duals > 0) / (duals > 0).sum())


def at_own_class(duals: np.ndarray) -> np.ndarray:
    """Weights at the rows' own classes, which have no vector."""
    return np.full_like(duals, 1.0 / duals.size)


def negative(duals: np.ndarray) -> np.ndarray:
    """A weight below 0; they still sum to 1."""
    first, second = np.argwhere(duals > 0)[:2]
    duals[tuple(second)] += 2 * duals[tuple(first)]
    duals[tuple(first)] *= -1
    return duals


FORGERIES: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "a larger margin": ({"certificate.lower": lambda v: v * (1 + 1e-9)}, {}, {"lower bound"}),
    "a smaller bound": ({"certificate.upper": lambda v: v * (1 - 1e-9)}, {}, {"upper bound"}),
    "weights that prove less": ({}, {"duals": level}, {"upper bound"}),
    "weights of own classes": ({}, {"duals": at_own_class}, {"dual weights"}),
    "negative weights": ({}, {"duals": negative}, {"dual weights"}),
    "weights of other rows": ({}, {"duals": lambda a: a[::-1]}, {"dual weights", "upper bound"}),
    "a longer hypothesis": ({}, {"hypothesis": lambda v: 2 * v}, {"hypothesis"}),
    "shifted scores": ({}, {"hypothesis": put((0, 2), lambda b: b + 1.0)}, {"hypothesis"}),
    "other classes' hyperplanes": ({}, {"hypothesis": lambda v: v[[1, 0, 2]]}, {"lower bound"}),
    "a longer longest row": ({"certificate.radius": lambda v: 4 * v}, {}, {"hypothesis", "radius"}),
    "a shorter longest row": ({"certificate.radius": lambda v: v / 4}, {}, {"hypothesis", "radius"}),
    "wrong answers": ({}, {"answered_classes": lambda c: (c + 1) % 3}, {"lower bound", "coreset"}),
    "draws with other answers": ({}, {"draws_classes": lambda c: (c + 1) % 3}, {"evidence"}),
    "draws in another order": ({}, {"draws_ids": lambda r: r[::-1], "draws_classes": lambda c: c[::-1]}, {"draws"}),
    "fewer wrong rows": ({"evidence.error_bound": lambda v: v - 1}, {}, {"evidence"}),
    "no hyperplanes": (
        {
            "status": "not_separable", "certificate.kind": "not_separable", "certificate.lower": None,
            "certificate.ratio": None, "evidence": None, "answers": lambda n: n,
        },
        {},
        {"overlap"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FORGERIES))
def test_forgeries_are_named(ended: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    """Each is false by one of these checks at least, and by nothing that is true."""
    campaign, store = ended
    record, arrays, expected = FORGERIES[name]
    if record.get("status") == "not_separable":  # its draws are answers like any other
        with np.load(campaign / "model/arrays.npz") as found:
            ids = np.concatenate([found["answered_ids"], found["draws_ids"]])
            codes = np.concatenate([found["answered_classes"], found["draws_classes"]])
        order = np.argsort(ids)
        arrays = {
            "answered_ids": ids[order], "answered_classes": codes[order],
            "draws_ids": ids[:0], "draws_classes": codes[:0],
        }  # fmt: skip
    forged = altered(campaign / "model", tmp_path / "m", record, **arrays)
    assert expected & set(failures(forged, store)), failures(forged, store)


@pytest.mark.parametrize(
    "record",
    [
        {"parameters.multi_class": "ovr"},
        {"parameters": lambda asked: {name: value for name, value in asked.items() if name != "multi_class"}},
        {"members": [{"label": label, "lower": 1.0, "upper": 1.0} for label in CLASSES]},
        {"parameters": lambda asked: asked | {"loss": "hinge", "C": 1.0, "trial": 9}},
        {"parameters": lambda asked: asked | {"hypothesis": "centre"}},
    ],
)
def test_records_that_mix_both_kinds_are_refused(
    ended: tuple[Path, Path], tmp_path: Path, record: dict[str, Any]
) -> None:
    """Bounds of each class belong to classes against the rest, and to nothing else."""
    campaign, _ = ended
    with pytest.raises(DataError):
        load(altered(campaign / "model", tmp_path / "m", record))


def test_a_campaign_of_the_other_kind_is_not_this_models(ended: tuple[Path, Path], tmp_path: Path) -> None:
    """The line is taken out of the campaign's file: the chain of the log begins elsewhere, and reading it says so."""
    campaign, store = ended
    shutil.copytree(campaign, tmp_path / "c")
    file = tmp_path / "c/campaign.toml"
    file.write_text(file.read_text().replace('multi_class = "crammer-singer"\n', ""))
    with pytest.raises(DataError, match="answers"):
        failures(tmp_path / "c", store)
