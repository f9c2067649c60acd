from __future__ import annotations

import contextlib
import copy
import errno
import io
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from coremargin.data.files import aside_of
from coremargin.data.folder import previous_of
from coremargin.errors import BadRow, DataError, OutputError, UsageError
from coremargin.formats import model_files as files_module
from coremargin.models.decision import label_array
from coremargin.models.model import Model
from coremargin.models.record import plain
from model_kit import certified_record

LEDGER = {
    "block_bounds_directions": np.array([[1.0, 0.0]]),
    "block_bounds_lower": np.arange(6.0).reshape(3, 2),
    "block_bounds_known_ids": np.array([3, 7]),
    "block_bounds_direction_index": np.zeros(3, np.int64),
}


def record(**changes: Any) -> dict[str, Any]:
    """The record of a model of two points in the plane, one of each class, 2 apart."""
    store = {"classes": ["left", "right"], "features": 2, "rows": 10, "dtype": "float32"}
    return certified_record(store, **changes.pop("certificate", {})) | changes


def model(**changes: Any) -> Model:
    """w = (1, 0), b = 0: right of the y axis is positive."""
    arrays: dict[str, Any] = {
        "w": np.array([1.0, 0.0]),
        "b": 0.0,
        "alpha": np.ones(2),
        "coreset_ids": np.array([3, 7]),
        "coreset_x": np.array([[-1.0, 0.0], [1.0, 0.0]]),
        "coreset_y": np.array([-1, 1]),
        **LEDGER,
    }
    for key in list(changes):
        if key in arrays:
            arrays[key] = changes.pop(key)
    rows = arrays.pop("coreset_x")
    return Model(record(**changes), {**arrays, "b": np.array([arrays["b"]])}, rows)


def save(path: Path, saved: Model, **options: Any) -> Path:
    """Save with the run and rounds of nobody."""
    saved.save(path, {"seconds": 1.5}, [{"round": 0, "lower": -np.inf}], **options)
    return path


def test_a_saved_model_loads_equal(tmp_path: Path) -> None:
    """What is loaded equals what was saved, to the bit."""
    before = model()
    after = Model.load(save(tmp_path / "m", before))
    assert after.record == before.record
    assert after.b == before.b
    assert list(after.arrays()) == list(before.arrays())
    for name, values in before.arrays().items():
        np.testing.assert_array_equal(after.arrays()[name], values)
        assert after.arrays()[name].dtype == values.dtype
    assert after.certificate == before.certificate
    assert after.classes == ("left", "right")
    assert after.status == "certified"
    assert (after.features, after.rows, after.problem) == (2, 10, "hard_margin")
    assert after.parameters["intercept"] is True


def test_a_model_from_memory_is_saved_by_its_path_alone(tmp_path: Path) -> None:
    """Where nothing is known of the run, a path is enough."""
    model().save(tmp_path / "m")
    assert Model.load(tmp_path / "m").record == model().record


def test_two_saves_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """model.json and arrays.npz depend on the model only, not on the clock or the arrays' order and layout."""
    first = save(tmp_path / "a", model())
    monkeypatch.setattr("time.time", lambda: 2e9)
    one = model(
        coreset_x=np.asfortranarray([[-1.0, 0.0], [1.0, 0.0]]),
        block_bounds_lower=LEDGER["block_bounds_lower"].astype(">f8"),
    )
    other = replace(one, numbers={name: one.numbers[name] for name in reversed(one.numbers)})
    second = save(tmp_path / "b", other)
    for name in ("model.json", "arrays.npz"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert (first / "model.json").read_bytes().endswith(b"}\n")


def test_the_folder_holds_the_run_and_its_rounds(tmp_path: Path) -> None:
    """run.json, one line per round and the report lie beside the model; infinities are null."""
    path = save(tmp_path / "deep" / "m", model(), report=lambda folder: (folder / "report.html").write_text("<p>"))
    assert sorted(entry.name for entry in path.iterdir()) == [
        "arrays.npz",
        "model.json",
        "report.html",
        "rounds.jsonl",
        "run.json",
    ]
    assert json.loads((path / "run.json").read_text()) == {"seconds": 1.5}
    assert [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()] == [
        {"round": 0, "lower": None}
    ]
    assert [entry.name for entry in path.parent.iterdir()] == ["m"]


def test_the_arrays_open_with_numpy_alone(tmp_path: Path) -> None:
    """arrays.npz is an ordinary npz without pickles."""
    path = save(tmp_path / "m", model())
    with np.load(path / "arrays.npz", allow_pickle=False) as arrays:
        assert arrays["b"].shape == (1,)
        assert arrays["block_bounds_lower"].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_decision_values_and_labels() -> None:
    """The decision value is w.x + b, the second class lies on its positive side, zero belongs to the first."""
    m = model(b=0.5)
    X = np.array([[1, 5], [-2, 5], [-0.5, 0]], dtype=np.float32)
    np.testing.assert_array_equal(m.decision_function(X), [1.5, -1.5, 0.0])
    assert m.decision_function(X).dtype == np.float64
    assert m.predict(X).tolist() == ["right", "left", "left"]
    assert m.decision_function(np.zeros((0, 2))).shape == (0,)
    assert m.predict([[1, 0]]).tolist() == ["right"]


def test_slabs_do_not_change_decision_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cutting rows into slabs for conversion leaves the values as they are."""
    X = np.random.default_rng(0).normal(size=(1000, 2)).astype(np.float32)
    whole = model().decision_function(X)
    monkeypatch.setattr("coremargin.models.decision._SLAB_ELEMENTS", 64)
    np.testing.assert_array_equal(model().decision_function(X), whole)


@pytest.mark.parametrize("X", [np.zeros((3, 5)), np.zeros(2), np.array([["a", "b"]]), np.zeros((1, 2), dtype=complex)])
def test_rows_of_another_shape_or_kind_are_refused(X: np.ndarray) -> None:
    """Rows must have the model's features and be numbers."""
    with pytest.raises(UsageError, match="X: expected"):
        model().decision_function(X)


def test_rows_that_are_not_finite_are_named() -> None:
    """NaN gets no label: the row is named."""
    with pytest.raises(BadRow, match="row 1"):
        model().predict([[0, 0], [np.nan, 0]])


def test_labels_keep_their_kind() -> None:
    """Labels of one kind make an array of that kind, others an array of objects."""
    assert label_array([0, 1]).dtype.kind == "i"
    assert label_array(["a", "b"]).dtype.kind == "U"
    assert label_array([False, True]).dtype.kind == "b"
    assert label_array([1, "b"]).tolist() == [1, "b"]


def test_plain_values_are_json() -> None:
    """NumPy values become plain, infinities and NaN become null."""
    value = {"a": np.float64(np.inf), "b": np.arange(2), "c": (np.int64(3), float("nan")), "d": np.bool_(True)}
    assert plain(value) == {"a": None, "b": [0, 1], "c": [3, None], "d": True}


def test_repr_is_short() -> None:
    """The repr says status, classes, size and bounds in one line."""
    text = repr(model())
    assert text == "Model(certified: 'left' | 'right', 10 rows x 2 features, lower 1, upper 1, 2 coreset rows)"
    assert "no bounds" in repr(model(status="stopped", certificate={"lower": None, "upper": None, "ratio": None}))


def test_arrays_of_a_model_are_read_only() -> None:
    """A model cannot be changed by accident."""
    with pytest.raises(ValueError, match="read-only"):
        model().w[0] = 2.0
    with pytest.raises(TypeError, match="does not support item assignment"):
        model().numbers["w"] = np.zeros(2)  # type: ignore[index]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: cloudpickle.loads(cloudpickle.dumps(one))])
def test_copies_of_a_model_are_read_only(copied: Callable[[Model], Model]) -> None:
    """They have the same numbers."""
    found = copied(model())
    for name, values in model().arrays().items():
        np.testing.assert_array_equal(found.arrays()[name], values)
        assert not found.arrays()[name].flags.writeable


@pytest.mark.parametrize(
    "change",
    [
        {"w": [[1.0], [1.0, 2.0]]},
        {"w": np.array(["a", "b"])},
        {"coreset_y": np.array([255, 257])},
        {"coreset_ids": np.array([3, 2**64 - 1], np.uint64)},
        {"coreset_x": np.full((2, 2), "a")},
        {"coreset_x": np.full((2, 2), 1j)},
        {"coreset_x": [[1.0], [1.0, 2.0]]},
    ],
)
def test_numbers_that_would_be_converted_to_others_are_refused_by_name(change: dict[str, Any]) -> None:
    """Nothing is cut off, wraps around or escapes as an error of NumPy."""
    (name,) = change
    with pytest.raises(DataError, match=f"arrays: {name}: expected"):
        model(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w": np.zeros(3)}, "w: expected shape"),
        ({"w": np.array([1.0, np.nan])}, "w: expected finite"),
        ({"b": np.inf}, "b: expected finite"),
        ({"alpha": np.ones(3)}, "alpha: expected shape"),
        ({"coreset_x": np.ones((2, 3))}, "coreset_x: expected shape"),
        ({"format": "other"}, "format"),
        ({"version": 2}, "newer coremargin"),
        ({"version": 0}, "expected version 1, found 0; it was made by an older coremargin"),
        ({"version": True}, "expected version 1, found True; get an unaltered copy"),
        ({"status": "good"}, "status: invalid enum value"),
        ({"classes": ["a"]}, "classes: expected a list of length >= 2"),
        ({"classes": ["a", "a"]}, "different labels of one kind"),
        ({"classes": [["a"], "b"]}, "classes.0: expected bool"),
        ({"features": 2.0}, "features: expected int"),
        ({"rows": 0}, "rows: expected int"),
        ({"surprise": 1}, "unknown key 'surprise'"),
        ({"certificate": {"lower": "big"}}, "certificate.lower"),
        ({"certificate": {"epsilon": None}}, "certificate.epsilon"),
        ({"certificate": {"extra": 1}}, "certificate: unknown key 'extra'"),
        ({"certificate": {"coreset_rows": True}}, "certificate.coreset_rows"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    """Every part of the record is checked against what this version knows and against the arrays."""
    with pytest.raises(DataError, match=message):
        model(**change)


def test_nothing_there(tmp_path: Path) -> None:
    """A missing folder, a file and a folder without a model are told apart."""
    with pytest.raises(DataError, match="found nothing there"):
        Model.load(tmp_path / "m")
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="found a file"):
        Model.load(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"without model\.json"):
        Model.load(tmp_path / "empty")
    (save(tmp_path / "m", model()) / "arrays.npz").unlink()
    with pytest.raises(DataError, match=r"without arrays\.npz"):
        Model.load(tmp_path / "m")


def test_the_folder_of_a_campaign_is_named(tmp_path: Path) -> None:
    """A campaign is no model: who gives its folder hears how to go on, or where its model is."""
    (tmp_path / "campaign.toml").write_text("")
    with pytest.raises(DataError, match="found a campaign without one; `coremargin active label"):
        Model.load(tmp_path)
    save(tmp_path / "model", model())
    with pytest.raises(DataError, match=f"found a campaign, whose model is {tmp_path / 'model'}; give that one"):
        Model.load(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"format": "coremargin-model"}', "[" * 100_000])
def test_a_broken_record_is_named(tmp_path: Path, text: str) -> None:
    """model.json that is not JSON, or not a record, is refused by name."""
    path = save(tmp_path / "m", model())
    (path / "model.json").write_text(text)
    with pytest.raises(DataError, match=r"model\.json: "):
        Model.load(path)


def test_truncated_or_flipped_arrays_are_refused(tmp_path: Path) -> None:
    """Any cut and any flipped byte of the values is noticed."""
    path = save(tmp_path / "m", model())
    whole = (path / "arrays.npz").read_bytes()
    for size in range(0, len(whole), 97):
        (path / "arrays.npz").write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"arrays\.npz"):
            Model.load(path)
    at = whole.index(np.array([[-1.0, 0.0], [1.0, 0.0]]).tobytes())
    (path / "arrays.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(DataError, match="truncated or altered"):
        Model.load(path)


def _rewrite(path: Path, name: str, data: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path / "arrays.npz") as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    members[name] = data
    with zipfile.ZipFile(path / "arrays.npz", "w", compression) as archive:
        for member, content in members.items():
            archive.writestr(member, content)


def _npy(values: np.ndarray, shape: tuple[int, ...] | None = None) -> bytes:
    file = io.BytesIO()
    if shape is None:
        np.lib.format.write_array(file, values, allow_pickle=True)
    else:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
        file.write(values.tobytes())
    return file.getvalue()


def test_object_arrays_are_refused(tmp_path: Path) -> None:
    """An object array could run code when it is read, so it is not read."""
    path = save(tmp_path / "m", model())
    _rewrite(path, "w.npy", _npy(np.array([print, None], dtype=object)))
    with pytest.raises(DataError, match="could run code"):
        Model.load(path)


def test_bombs_are_refused_before_anything_is_allocated(tmp_path: Path) -> None:
    """Compressed members, and headers that promise more than the member holds, are refused."""
    path = save(tmp_path / "m", model())
    _rewrite(path, "w.npy", _npy(np.zeros(2)), zipfile.ZIP_DEFLATED)
    with pytest.raises(DataError, match="is compressed"):
        Model.load(path)
    path = save(tmp_path / "n", model())
    _rewrite(path, "w.npy", _npy(np.zeros(2), shape=(10**12,)))
    with pytest.raises(DataError, match="has a header for shape"):
        Model.load(path)


def test_missing_and_unknown_arrays_are_refused(tmp_path: Path) -> None:
    """arrays.npz holds exactly the arrays of a model."""
    path = save(tmp_path / "m", model())
    _rewrite(path, "more.npy", _npy(np.zeros(2)))
    with pytest.raises(DataError, match="more"):
        Model.load(path)


def test_an_existing_model_stays_unless_overwriting_is_asked_for(tmp_path: Path) -> None:
    """Without `overwrite` nothing is touched; with it the new model takes the place of the old."""
    path = save(tmp_path / "m", model())
    with pytest.raises(UsageError, match="a model is there already"):
        save(path, model(b=1.0))
    assert Model.load(path).b == 0.0
    save(path, model(b=1.0), overwrite=True)
    assert Model.load(path).b == 1.0
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


def test_what_is_no_model_is_never_replaced(tmp_path: Path) -> None:
    """A file or a folder of other things stays, with or without `overwrite`."""
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    for name in ("thesis", "file"):
        with pytest.raises(UsageError, match="expected a model or nothing"):
            save(tmp_path / name, model(), overwrite=True)
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "x"


def test_a_model_is_replaced_through_a_link(tmp_path: Path) -> None:
    """A symlink keeps pointing at the model that was replaced."""
    save(tmp_path / "v1", model())
    (tmp_path / "current").symlink_to("v1")
    save(tmp_path / "current", model(b=1.0), overwrite=True)
    assert (tmp_path / "current").is_symlink()
    assert Model.load(tmp_path / "v1").b == 1.0


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it runs."""


@pytest.mark.parametrize("step", range(11))
def test_a_save_killed_at_any_step_leaves_one_whole_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Killed before any rename or removal, a replacement leaves a model to read, and the next save cleans up."""
    path = save(tmp_path / "m", model())
    calls = 0

    def dying(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > step:
                raise Killed
            return real(*arguments, **options)

        return call

    for name in ("mkdir", "rename", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, dying(getattr(os, name)))
    with contextlib.suppress(Killed):
        save(path, model(b=1.0), overwrite=True)
    assert (calls > step) == (step < 10)  # the ten steps of a replacement, and one that is not interrupted
    monkeypatch.undo()
    assert Model.load(path).b in (0.0, 1.0)
    save(path, model(b=2.0), overwrite=True)
    assert Model.load(path).b == 2.0
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


def test_between_the_two_renames_the_previous_model_is_read(tmp_path: Path) -> None:
    """When a killed replacement left nothing under the name, the old model is read, and restored by the next save."""
    path = save(tmp_path / "m", model())
    path.rename(previous_of(path))
    assert Model.load(path).b == 0.0
    with pytest.raises(UsageError, match="already"):
        save(path, model(b=1.0))


def test_a_load_never_mixes_two_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model replaced while it is loaded gives one of the two, never the record of one and the arrays of the other."""
    path = save(tmp_path / "m", model())
    real = files_module.read_content
    replaced = []

    def slow(*where: Any) -> Any:
        found = real(*where)
        if not replaced:
            replaced.append(True)
            save(path, model(b=1.0, rows=11), overwrite=True)
        return found

    monkeypatch.setattr(files_module, "read_content", slow)
    loaded = Model.load(path)
    assert (loaded.b, loaded.rows) == (1.0, 11)


def test_a_model_that_is_being_removed_is_not_taken_for_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader whose folder was replaced and has lost some of its files, but not all, reads the new model."""
    path, new = save(tmp_path / "m", model()), save(tmp_path / "new", model(b=1.0, rows=11))
    real = files_module.read_content

    def slow(*where: Any) -> Any:
        found = real(*where)
        if new.exists():
            os.rename(path, aside_of(path))
            os.rename(new, path)
            (aside_of(path) / "arrays.npz").unlink()
        return found

    monkeypatch.setattr(files_module, "read_content", slow)
    loaded = Model.load(path)
    assert (loaded.b, loaded.rows) == (1.0, 11)


_WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from dataclasses import replace
from pathlib import Path
from test_model import model, save
k = 0
while True:
    k += 1
    save(Path(sys.argv[2]), model(b=float(k % 2), rows=10 + k % 2), overwrite=True)
"""


@pytest.mark.slow
@pytest.mark.faults
def test_readers_see_whole_models_while_writers_are_killed(tmp_path: Path) -> None:
    """A model that is replaced all the time, by writers that are killed with SIGKILL, is whole at any time."""
    path = save(tmp_path / "m", model())
    rng = np.random.default_rng(7)
    for _ in range(3):
        seen, end = set(), float("inf")
        deadline = time.monotonic() + 60
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(Path(__file__).parent), str(path)])
        try:
            while time.monotonic() < end:
                loaded = Model.load(path)
                assert loaded.rows == 10 + loaded.b
                seen.add(loaded.rows)
                assert time.monotonic() < deadline
                if end == float("inf") and seen == {10, 11}:  # however long the writer took to start
                    end = time.monotonic() + 0.5 * rng.random()
        finally:
            writer.kill()
            writer.wait()
        loaded = Model.load(path)
        assert loaded.rows == 10 + loaded.b
    save(path, model(), overwrite=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize(("code", "reason"), [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only")])
def test_a_full_or_read_only_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    """The error says what is wrong, the old model stays, nothing half-written is left."""
    path = save(tmp_path / "m", model())

    def failing(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(np.lib.format, "write_array", failing)
    for place in (path, tmp_path / "new"):
        with pytest.raises(OutputError, match=reason):
            save(place, model(b=1.0), overwrite=True)
    assert Model.load(path).b == 0.0
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


def test_a_report_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """An error while the report is made leaves no folder behind."""

    def broken(folder: Path) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        save(tmp_path / "m", model(), report=broken)
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_save_are_swept(tmp_path: Path) -> None:
    """A folder left aside by a killed save does not disturb the next one."""
    aside = aside_of(tmp_path / "m")
    aside.mkdir()
    (aside / "model.json").write_text("{")
    save(tmp_path / "m", model())
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]
