"""Campaigns on mapped rows: who answers sees rows as they are, decisions and proofs are about mapped ones."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaign_kit import CLASSES, forgotten, rings, same_state, three_classes, unlabelled
from coremargin.active import ActiveLearner, Campaign, StreamLearner
from coremargin.data.folder import write_arrays
from coremargin.data.mapped import map_of
from coremargin.data.scaled import scaled
from coremargin.data.store import Store
from coremargin.data.transformed import fitted
from coremargin.data.writer import StoreWriter
from coremargin.errors import ClaimRefuted, DataError, SpecError, UsageError
from coremargin.formats.campaign import FILE, MAP
from coremargin.formats.model_files import read_model_files
from coremargin.formats.open_folder import read_folder
from coremargin.models.registry import load
from coremargin.models.single import SingleModel
from coremargin.problems.active.describe import restart_command_with_loss
from coremargin.problems.common.map_rounding import margin_rounding
from coremargin.verify import verify
from coremargin.verify.active.claim import active_claim
from coremargin.verify.active.scan import undecided
from model_kit import altered

ASKED: dict[str, Any] = {"classes": CLASSES, "error": 0.1, "confidence": 0.9}
MAPS: list[dict[str, Any]] = [
    {"map": "nystroem", "components": 20},
    {"map": "fourier", "components": 30, "scaling": "standard", "gamma": 0.5},
    {"map": "polynomial", "degree": 2, "coef0": 1.0},
    {"map": "polynomial", "degree": 3, "coef0": 1.0, "components": 15, "map_seed": 1},
]


X, LABELS = rings()


def told(rows: Any) -> Mapping[int, str]:
    """What somebody says of rows who knows all."""
    return {int(row): LABELS[row] for row in rows}


def ended(path: Path, store: Path, **asked: Any) -> Campaign:
    """A campaign about rings that has come to its end."""
    campaign = Campaign.create(path, store, **ASKED | asked)
    campaign.run(told)
    return campaign


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in a disc and a ring, without labels."""
    return unlabelled(tmp_path_factory.mktemp("rings") / "rows.zarr", X, chunk_rows=128)


@pytest.fixture(scope="module")
def nystroem(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Campaign:
    """A campaign with landmarks that has ended; nobody changes it."""
    return ended(tmp_path_factory.mktemp("nystroem") / "c", store, **MAPS[0])


@pytest.fixture(scope="module")
def fourier(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Campaign:
    """The same with random frequencies, of scaled rows."""
    return ended(tmp_path_factory.mktemp("fourier") / "c", store, **MAPS[1])


@pytest.mark.parametrize("asked", MAPS)
def test_what_no_hyperplane_separates(
    tmp_path: Path, store: Path, nystroem: Campaign, fourier: Campaign, asked: dict[str, Any]
) -> None:
    """With any map a campaign is certified where rows as they are have no hyperplane; verify agrees with model and log,
    and the model gives raw rows their labels.
    """
    place, there = tmp_path / "c", {"nystroem": nystroem, "fourier": fourier}
    campaign = there[asked["map"]] if asked["map"] in there else ended(place, store, **asked)
    assert campaign.status["status"] == "certified"
    assert load(campaign.path / "model").predict(X).tolist() == LABELS
    for place in (campaign.path, campaign.path / "model"):
        found = verify(place, store)
        assert found.ok, found.checks
        assert next(check for check in found.checks if check.name == "map").text.startswith(asked["map"])


def test_people_see_rows_as_they_are(nystroem: Campaign, store: Path) -> None:
    """Rows have the store's numbers, and so have those of the model's proof; its hyperplane is about mapped ones."""
    model = nystroem.model
    assert nystroem.rows([3]).tolist() == X[3:4].astype(np.float64).tolist()
    assert model.coreset_x.tolist() == X[model.coreset_ids].astype(np.float64).tolist()
    assert model.w.shape == (20,)
    assert isinstance(model, SingleModel)
    assert map_of(nystroem._state.problem.source).numbers().keys() == model.row_map.numbers().keys()  # type: ignore[union-attr]


def test_the_map_is_that_of_training(nystroem: Campaign, store: Path) -> None:
    """It is the one that a training fits to the same rows; "scale" is said as the number that it was then."""
    asked = nystroem.settings.asked_map
    assert asked is not None
    rows = Store.open(store)
    alone = fitted(scaled(rows, None), asked)
    kept = nystroem.model.row_map
    assert kept is not None
    assert all((values == kept.numbers()[name]).all() for name, values in alone.numbers().items())
    assert asked.gamma == pytest.approx(1 / (2 * X.astype(np.float64).var()))
    assert nystroem.model.parameters["gamma"] == asked.gamma


def test_the_log_alone_gives_the_same_state(nystroem: Campaign, tmp_path: Path) -> None:
    """From the file, the map and the log, without the state, all is known to the bit."""
    assert same_state(forgotten(nystroem, tmp_path / "copy"), nystroem)


def test_a_store_that_grows_keeps_the_map(tmp_path: Path, store: Path) -> None:
    """Rows that are appended are mapped as those before, also where their scaling is another one then; a log alone
    gives the same state, and verify agrees.
    """
    own = Path(shutil.copytree(store, tmp_path / "own.zarr"))
    campaign = Campaign.create(tmp_path / "c", own, **ASKED, **MAPS[1])
    campaign.run(told, most=12)
    before = (campaign.path / MAP).read_bytes()
    more, labels = rings(100, seed=3)
    with StoreWriter.append(own) as writer:
        writer.write(more * np.where(np.array(labels) == CLASSES[0], 2, 1)[:, None], None, None, origin="more")
    assert campaign.grow() == 100
    campaign.run(lambda rows: {row: (LABELS + labels)[row] for row in rows})
    assert campaign.status["status"] == "certified"
    assert (campaign.path / MAP).read_bytes() == before
    again = forgotten(campaign, tmp_path / "copy")
    assert again.status["rows"] == 600
    assert same_state(again, campaign)
    campaign.stop()
    assert verify(campaign.path, own).ok


def test_what_people_get(nystroem: Campaign, store: Path, tmp_path: Path, run_cli: Any) -> None:
    """Status, report and pages speak of mapped rows; scikit-learn's steps made of the model label raw rows alike; with
    the answers of one campaign another has the same map.
    """
    path = Path(shutil.copytree(nystroem.path, tmp_path / "c"))
    assert "map      nystroem: what is claimed is about mapped rows" in run_cli("active", "status", str(path)).output
    with Campaign(path) as campaign:
        assert "answers about" in campaign.report().read_text(encoding="utf-8")
    assert "Bounds are about the mapped rows" in (path / "model" / "report.html").read_text(encoding="utf-8")
    shown = run_cli("show", str(path / "model")).output
    assert "of all mapped rows, if they are labelled as the model says" in shown
    assert (load(path / "model").to_sklearn().predict(X) == np.array(LABELS)).all()
    options = ["--map", "nystroem", "--components", "20", "--examples", str(path), "--classes", ",".join(CLASSES)]
    begun = run_cli("active", "start", str(store), "--out", str(tmp_path / "again"), *options)
    assert begun.exit_code == 0, begun.output
    assert (tmp_path / "again" / MAP).read_bytes() == (path / MAP).read_bytes()
    mapped = f"--map nystroem --components 20 --gamma {nystroem.settings.gamma} --map-seed 0"
    assert mapped in restart_command_with_loss("S", "C", nystroem.status["parameters"], fewest=1)


@pytest.mark.parametrize(
    "asked",
    [
        {"loss": "hinge", "C": 1.0, "trial": 60, "map": "fourier", "components": 20, "error": 0.3},
        pytest.param({"by_class": True, "map": "nystroem", "components": 20}, marks=pytest.mark.slow),
        pytest.param(
            {"loss": "squared_hinge", "C": 9.0, "by_class": True, "trial": 60, "error": 0.3, "map": "nystroem"}
            | {"components": 9},
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("several", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_losses_strata_and_classes(tmp_path: Path, store: Path, asked: dict[str, Any], several: bool) -> None:
    """With a loss, by class and of three classes what is claimed of mapped rows is what verify finds."""
    rows, labels = three_classes(400) if several else (X, LABELS)
    own = unlabelled(tmp_path / "three.zarr", rows) if several else store
    campaign = Campaign.create(tmp_path / "c", own, **ASKED | {"classes": "abc" if several else CLASSES} | asked)
    campaign.run(lambda ids: {row: labels[row] for row in ids})
    assert campaign.status["status"] == "certified"
    assert verify(campaign.path, own).ok
    claim = active_claim(read_folder(campaign.path / "model", read_model_files))
    plane, size = claim.planes[0], float(np.linalg.norm(claim.planes[0].w))
    near = plane.w * ((np.array([0.0, 0.9, 9.0]) * claim.moved * size - plane.b) / size**2)[:, None]
    if not several:
        assert undecided(claim, near, np.linalg.norm(near, axis=1)).tolist()[:2] == [True, True]
        assert not undecided(claim, near, np.linalg.norm(near, axis=1))[2]


@pytest.mark.parametrize(("bound", "side"), [("lower", 1), ("upper", -1)])
def test_bounds_without_the_rounding_of_the_map(
    fourier: Campaign, store: Path, tmp_path: Path, bound: str, side: int
) -> None:
    """Bounds as they are of the rows that float64 makes claim more than is proven of the exact ones: refuted."""
    model, moves = fourier.model, margin_rounding(fourier._state.problem.source)
    assert 0 < moves < 1e-9
    certificate = model.record["certificate"]
    forged = {**{name: certificate[name] for name in ("lower", "upper")}, bound: certificate[bound] + side * moves}
    record = {f"certificate.{bound}": forged[bound], "certificate.ratio": forged["lower"] / forged["upper"]}
    altered(fourier.path / "model", tmp_path / "forged", record)
    with pytest.raises(ClaimRefuted, match=f": 1 claim is false of .*\n- {bound} bound"):
        verify(tmp_path / "forged", store)


def replaced(campaign: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Other arrays in the place of a campaign's map."""
    (campaign / MAP).unlink()
    write_arrays(campaign / MAP, arrays)


def test_another_map_is_refused(nystroem: Campaign, store: Path, tmp_path: Path) -> None:
    """A map that was changed, that is another campaign's, or that is lost, is refused by the campaign and by verify."""
    path = Path(shutil.copytree(nystroem.path, tmp_path / "c"))
    with np.load(path / MAP) as kept:
        arrays = dict(kept)
    turned = arrays | {"map_landmarks": arrays["map_landmarks"] * (1 + 1e-15)}
    assert (turned["map_landmarks"] != arrays["map_landmarks"]).any()
    Campaign.create(tmp_path / "other", store, **ASKED, **MAPS[0], map_seed=5).close()
    with np.load(tmp_path / "other" / MAP) as kept:
        another = dict(kept) | {"map_gamma": arrays["map_gamma"]}
    for numbers in (turned, another):
        replaced(path, numbers)
        for look in (Campaign, lambda place: verify(place, store)):
            with pytest.raises(DataError, match=r"map\.npz: expected the map that the campaign began with"):
                look(path)
    (path / MAP).unlink()
    with pytest.raises(DataError, match=r"map\.npz: expected the map that the campaign began with, found none"):
        Campaign(path)
    with pytest.raises(DataError, match=r"without map\.npz"):
        verify(path, store)


def test_a_model_with_another_map_than_its_campaign(nystroem: Campaign, store: Path, tmp_path: Path) -> None:
    """A model whose map was changed is no longer the campaign's, nor, by itself, one whose proof holds."""
    path = Path(shutil.copytree(nystroem.path, tmp_path / "c"))
    shutil.rmtree(path / "model")
    altered(nystroem.path / "model", path / "model", map_normalization=lambda numbers: numbers * 1.001)
    for place, said in (
        (path, "campaign: digest of the map: model says"),
        (path / "model", "upper bound: model claims"),
    ):
        with pytest.raises(ClaimRefuted, match=said):
            verify(place, store)
    shutil.rmtree(path / "model")
    altered(nystroem.path / "model", path / "model", map_normalization=lambda numbers: numbers * (1 + 1e-15))
    assert verify(path / "model", store).ok  # bounds about such rows hold as well: a model by itself may have any map
    with pytest.raises(ClaimRefuted, match=r": 1 claim is false of .*\n- campaign: digest of the map: model says"):
        verify(path, store)


def test_a_file_that_names_another_map(nystroem: Campaign, store: Path, tmp_path: Path) -> None:
    """A campaign's file without its map, or with another one, breaks the chain of the log; half a map is refused."""
    path = Path(shutil.copytree(nystroem.path, tmp_path / "c"))
    text = (path / FILE).read_text()
    for pattern, place in (
        (r"(map|components|gamma|map_seed|map_digest) = .*\n", r"answers\.jsonl"),
        (r"map_seed = .*\n", r"campaign\.toml: expected .* of a map"),
        (r"map_digest = .*\n", r"campaign\.toml: expected .* of a map"),
        (r"components = .*\n", r"campaign\.toml: expected .* of a map"),
    ):
        (path / FILE).write_text(re.sub(pattern, "", text))
        with pytest.raises(DataError, match=place):
            verify(path, store)
    for pattern, place in ((r"(?<=map_seed = )0", r"answers\.jsonl"), (r"(?<=components = )20", r"map\.npz")):
        (path / FILE).write_text(re.sub(pattern, "7", text))
        with pytest.raises(DataError, match=place):
            verify(path, store)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"map": "nystroem"}, "components: expected how many"),
        ({"map": "nystroem", "components": 501}, "at most the 500 rows"),
        ({"map": "fourier", "components": 4, "degree": 2}, "degree: only a polynomial map has it"),
        ({"gamma": 1.0}, "gamma: only a map has it"),
        ({"map": "fourier", "components": 4, "gamma": [0.1, 1.0]}, "gamma: expected one"),
    ],
)
def test_maps_that_cannot_be(tmp_path: Path, store: Path, asked: dict[str, Any], message: str) -> None:
    """What is said of a map and does not go together is refused before anything is made."""
    with pytest.raises((SpecError, UsageError), match=message):
        Campaign.create(tmp_path / "c", store, **ASKED, **asked)
    assert not (tmp_path / "c").exists()


def test_a_learner_with_a_map() -> None:
    """In memory it asks about the rows that it was given, and its model labels such."""
    learner = ActiveLearner(X[:300], classes=CLASSES, error=0.1, map="nystroem", components=20)
    while len(ids := learner.query(5)[0]):
        assert learner.query(1)[1].shape == (1, 2)
        learner.teach(ids, [LABELS[row] for row in ids])
    assert learner.status == "certified"
    assert learner.score(X[:300], LABELS[:300]) == 1.0
    assert learner.model.row_map is not None


@pytest.mark.parametrize("classes", [2, 3])
def test_a_stream_with_a_map(tmp_path: Path, classes: int) -> None:
    """The map is that of the first batch, who answers sees rows as they came, and what is left can be verified."""

    def label(row: Any) -> str:
        return "abc"[int(np.hypot(*row) > 1.3) + (classes == 3 and float(row[0]) > 5)]

    def batches() -> Any:
        for seed in range(100):
            rows = rings(200, seed)[0]
            rows[::5, 0] += 10 * (classes == 3)
            yield rows

    learner = StreamLearner(classes="abc"[:classes], error=0.05, map="fourier", components=30)
    assert learner.learn(batches(), label) == "certified"
    learner.save(tmp_path / "left")
    assert verify(tmp_path / "left" / "model", tmp_path / "left" / "rows.zarr").ok
    model: Any = load(tmp_path / "left" / "model")
    assert model.row_map.width == 30
    rows = Store.open(tmp_path / "left" / "rows.zarr")
    assert rows.features == 2
    some = next(batches())
    assert np.mean(model.predict(some) == [label(row) for row in some]) > 0.95


def test_a_stream_whose_first_batch_is_small() -> None:
    """More landmarks than the first batch has rows are refused with both numbers."""
    learner = StreamLearner(map="nystroem", components=20, gamma=1.0)
    with pytest.raises(UsageError, match=r"components: expected at most the 7 rows of .*, found 20"):
        learner.learn([X[:7]], lambda _: "in", batched=False)
