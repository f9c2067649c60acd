"""The bench runs on tiny sizes, so that it never breaks unseen; its numbers mean nothing here."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.data.store import Store
from coremargin.engine.executors import InProcess


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    """Sizes that take seconds."""
    from stores import Settings

    return Settings(
        work=tmp_path, data=tmp_path, rows=3000, features=6, repetitions=1, sizes=(0.0002,), workers_gb=0.0002,
        small_rows=200, small_features=2, max_scans=5, strategy_s=5, peer_s=30,
    )  # fmt: skip


def test_the_pure_pass_looks_at_every_row(separable: tuple[np.ndarray, np.ndarray]) -> None:
    """The pass finds the smallest y w.x of all rows, whatever the threads."""
    from pure_pass import PurePass, one_pass

    X, y = separable
    source = ArraySource(X, y, chunk_rows=50)
    probe = PurePass.of(source)
    signs = np.where(y == source.classes[0], -1, 1)
    for threads in (1, 2):
        answer = one_pass(source, InProcess(threads))
        assert answer.rows == len(X)
        assert answer.smallest == pytest.approx((signs * (X @ probe.w)).min(), rel=1e-6)


def test_a_pass_summary_survives_a_checkpoint(separable: tuple[np.ndarray, np.ndarray]) -> None:
    """The summary of a pass comes back from its arrays."""
    from pure_pass import PassSummary, PurePass

    summary = PassSummary(-1.5, 7)
    assert PurePass.of(ArraySource(*separable)).from_arrays(summary.to_arrays()) == summary


def test_margins_of_peers_have_the_best_offset() -> None:
    """The margin of a direction is half the gap between the classes along it, negative when they overlap."""
    from peers import margin_of

    X = np.array([[0.0, 5.0], [1.0, 0.0], [4.0, 1.0], [6.0, 2.0]])
    source: Any = ArraySource(X, np.array([0, 0, 1, 1]))
    assert margin_of(np.array([2.0, 0.0]), source) == 1.5
    assert margin_of(np.array([-1.0, 0.0]), source) == -3.0
    assert margin_of(np.zeros(2), source) == -math.inf


def test_ratios_are_paired() -> None:
    """A repetition that is slow for both sides leaves the ratio as it is."""
    from measure import Sample, interleaved, paired_ratio

    seconds = iter([9.0, 9.0, 1.0, 3.0, 10.0, 30.0, 2.0, 6.0])
    found = interleaved({"a": lambda: Sample(next(seconds)), "b": lambda: Sample(next(seconds))}, 3)
    assert [sample.seconds for sample in found["a"]] == [1.0, 10.0, 2.0]
    assert paired_ratio(found["b"], found["a"]) == 3.0


def test_evicted_files_are_gone_from_the_page_cache() -> None:
    """After eviction no page of a folder's files is resident, where the file system lets them go."""
    from measure import evict, resident_share

    with tempfile.TemporaryDirectory() as name:  # on a disk more often than tmp_path
        folder = Path(name)
        (folder / "file").write_bytes(bytes(1 << 20))
        assert resident_share(folder) > 0.9
        if evict(folder) > 0:
            pytest.skip("this file system keeps its pages (tmpfs)")
        assert (folder / "file").read_bytes() == bytes(1 << 20)


def test_a_stopwatch_gives_functions_back() -> None:
    """Watched functions are timed while the context lasts, and are themselves again after it."""
    from measure import stopwatch

    class Owner:
        @staticmethod
        def work() -> int:
            return 7

    before = Owner.work
    with stopwatch({"work": (Owner, "work")}) as calls:
        assert Owner.work() == 7
    assert len(calls["work"]) == 1
    assert Owner.work is before


def test_the_table_leaves_out_empty_columns() -> None:
    """Text and markdown show the columns that a group uses, and what was not measured stays empty."""
    from table import Group, Row, as_markdown, as_text

    group = Group("a", "title", [Row("one", 1.0, 0.5, 2.0, ratio=3.0), Row("two", 20.0)], ["a note"])
    text = as_text([group], {"cores": 2})
    assert "1.000 (0.500-2.000)" in text
    assert "3.00x" in text
    assert "peak memory" not in text
    assert "| one | 1.000 (0.500-2.000) | 3.00x |" in as_markdown([group], {"cores": 2})


@pytest.mark.slow
def test_part_a_compares_with_the_pure_pass(settings: Any) -> None:
    """Part (a) ends with certified runs, ratios above zero, and parts of the time that add up."""
    from against_pass import against_pass

    warm, cold, breakdown = against_pass(settings)
    for group in (warm, cold):
        trained = [row for row in group.rows if row.what.startswith("train")]
        assert len(trained) == 2
        assert all(row.margin is not None and row.margin >= 0.999 and row.ratio > 0 and row.scans for row in trained)
    assert {row.note for row in warm.rows if row.what.startswith("verify")} == {"all claims hold"}
    total = float(breakdown.title.split(" s ")[0].rpartition(" ")[2])
    assert sum(row.seconds for row in breakdown.rows[:-1]) == pytest.approx(total, rel=0.5)


@pytest.mark.slow
def test_part_b_runs_the_reference_strategies(settings: Any) -> None:
    """Part (b) shows all strategies with the margins that they reach, none above the proven bound."""
    from strategies import strategies

    for group in strategies(settings):
        assert [row.what.partition(":")[0] for row in group.rows] == ["fast", "paper", "any-violator"]
        assert group.rows[0].margin >= 0.999
        assert all(row.margin <= 1 + 1e-9 for row in group.rows)


@pytest.mark.slow
def test_part_c_judges_peers_by_their_margin(settings: Any) -> None:
    """Part (c) shows scikit-learn's margins, none above the proven bound, and names datasets that are absent."""
    from against_peers import against_peers

    synthetic, *absent = against_peers(settings)
    assert synthetic.rows[0].note == "certified, verified"
    methods = [row.what.partition(" ")[0] for row in synthetic.rows[1:]]
    assert methods == ["LinearSVC,", "LinearSVC,", "SGDClassifier.partial_fit"]
    assert all(row.margin <= 1 + 1e-9 for row in synthetic.rows)
    assert len(absent) == 3
    assert all("skipped" in group.title for group in absent)


@pytest.mark.slow
def test_part_f_judges_peers_by_their_value(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Part (f) shows the value that each tool reaches, none below the proven bound, and names what is not installed."""
    from dataclasses import replace

    import against_soft_peers as part

    here = {name: part.PEERS[name] for name in ("linear_svc", "sgd")}
    monkeypatch.setattr(part, "PEERS", here | {"none": part.Peer("Nobody's", module="nobody_has_this")})
    groups = list(part.against_soft_peers(replace(settings, flipped=(10,), soft=("a9a",))))
    assert len(groups) == 3
    for group in groups[:2]:
        assert group.rows[0].note == "certified, verified"
        assert all(row.value >= 1 - 1e-9 for row in group.rows[:-1])
        assert group.rows[1].value == pytest.approx(1, abs=1e-3)
        assert group.rows[-1].note == "skipped: nobody_has_this is not installed"
    assert "skipped" in groups[2].title


@pytest.mark.slow
def test_part_g_proves_a_grid_together(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Part (g) trains ten values of C as one fleet, proven, at the bytes of one."""
    from dataclasses import replace

    import against_grid as part
    from stores import Settings

    small = replace(settings, rows=600, soft=("a9a",))
    monkeypatch.setattr(Settings, "real_store", lambda self, _: self.noisy(10))
    monkeypatch.setattr(part, "METHODS", ("linear_svc",))
    monkeypatch.setattr(part, "COSTS", (0.1, 1.0))
    (group,) = part.against_grid(small)
    one, ten, peer = group.rows
    assert ten.note == "certified, verified"
    assert ten.read <= 2 * one.read
    assert 1 - 1e-9 <= peer.value <= 1.01


def test_other_tools_read_the_rows_exactly(tmp_path: Path) -> None:
    """The text that other tools are given holds the store's very rows, and the signs of its labels."""
    from sklearn.datasets import load_svmlight_file
    from soft_formats import converted, signs_of

    from coremargin.data.synth import Recipe, synth

    synth(tmp_path / "s.zarr", Recipe(50, 4, noise=0.1, seed=3))
    store = Store.open(tmp_path / "s.zarr")
    rows, codes = store.read(0)
    X, y = load_svmlight_file(str(converted(store, "svmlight")), dtype=np.float32)
    assert np.array_equal(X.toarray(), rows)
    assert np.array_equal(y, signs_of(store, codes))
    line = converted(store, "vw").read_text(encoding="ascii").splitlines()[7]
    label, *pairs = line.replace("|", "").split()
    assert int(label) == y[7]
    assert np.array_equal(np.array([pair.split(":")[1] for pair in pairs], np.float32), rows[7])


@pytest.mark.slow
def test_parts_d_and_e_run_on_clusters(settings: Any) -> None:
    """Parts (d) and (e) certify on worker processes, all shapes with the same bits, and remove the stores they made."""
    from scale import sizes, workers

    (by_size,) = sizes(settings)
    assert [row.what for row in by_size.rows] == ["0.0002 GB: pure pass", "0.0002 GB: train"]
    assert all(row.memory for row in by_size.rows)
    (by_shape,) = workers(settings)
    assert len(by_shape.rows) == 6
    assert "equal to the bit" in by_shape.notes[0]


@pytest.mark.slow
def test_part_q_certifies_every_row(settings: Any) -> None:
    """Each row of part (q) is certified, and reads are counted."""
    from one_class import one_class

    for group in one_class(settings):
        assert [row.what for row in group.rows if not row.note.startswith("certified")] == []
        assert all(row.read is not None and 0 < row.read < 6 for row in group.rows)


def test_a_size_without_room_is_skipped(settings: Any) -> None:
    """Part (d) names a size for which the disk has no room, and makes nothing."""
    from dataclasses import replace

    from scale import sizes

    (group,) = sizes(replace(settings, sizes=(1e9,)))
    assert group.rows == []
    assert "no room" in group.notes[0]


def test_outliers_are_measured_and_others_agree(settings: Any) -> None:
    """The search and a mixed-integer program by others come to one margin on rows with wrong labels."""
    from outlier_peers import by_milp
    from outlier_search import _searched, rows_with_outliers

    from coremargin.maths.outliers.search import solve_in_memory

    x, y = rows_with_outliers(12, 2, 1, "flipped", seed=3)
    found = solve_in_memory(x, y, 1)
    margin, bound = by_milp(x, y, 1, settings.peer_s)
    assert margin == pytest.approx(found.lower, rel=1e-5)
    assert bound >= found.lower * (1 - 1e-6)
    row = _searched("rows", ArraySource(*rows_with_outliers(100, 2, 2, "planted")), 2, 20.0)
    assert "certified" in row.note
    assert row.read is not None


@pytest.mark.slow
def test_long_searches_come_to_the_same_bits(settings: Any) -> None:
    """One thread or two, one worker process or two: each has a row, and all the same bounds."""
    from outlier_workers import search_by_workers

    group = search_by_workers(settings, 60.0, quick=True)
    assert [row.what.split(", ")[1] for row in group.rows] == [
        "1 thread", "2 threads", "1 worker process", "2 worker processes",
    ]  # fmt: skip
    assert all("certified" in row.note for row in group.rows)
    assert "k = 6: bounds of all equal to the bit" in group.notes


@pytest.mark.slow
def test_part_i_plays_a_campaign(settings: Any) -> None:
    """Part (i) ends certified with few labels, random ones are more, waits are measured, absent data is named."""
    from dataclasses import replace

    from few_labels import few_labels

    small = replace(settings, labelled=((4000, 5),), campaigns=3)
    on_store, needed, *absent, claims = few_labels(small)
    (campaign,) = on_store.rows
    assert campaign.note.startswith("certified; from an answer to the next question ")
    assert campaign.margin >= 0.9
    assert campaign.scans >= 1
    first, end, *random, known = needed.rows
    assert known.labels <= first.labels < min(row.labels for row in random) < end.labels  # with its draws
    assert all(0.9 <= row.margin <= 1 + 1e-9 for row in (end, *random, known))
    assert needed.notes[0].startswith("target, at most 3% of the random labels (median of 3 orders): missed, ")
    assert [group.title.partition(": ")[2].partition(":")[0] for group in absent] == [
        "MNIST, 0 against 2", "USPS, 0 against 1", "USPS, 3 against 5", "Reuters-21578, earn against acq",
    ]  # fmt: skip
    assert [row.what for row in claims.rows] == [
        "two classes", "two classes, half the draws", "three classes", "three classes, half the draws",
        "two classes, by class", "three classes, by class",
    ]  # fmt: skip


def test_random_labels_are_counted_to_one_in_twenty() -> None:
    """The least number that is enough is found from above, up to 5 % of it, whatever it is; all rows where none is."""
    from labels_needed import _least

    for needed in (1, 49, 50, 51, 997, 1000):
        tried: list[int] = []

        def reached(labels: int, needed: int = needed, tried: list[int] = tried) -> float:
            tried.append(labels)
            return 0.9 + labels / 1e6 if labels >= needed else 0.5

        found, share = _least(reached, 1000)
        assert needed <= found <= needed + max(1, 0.05 * found)
        assert share == 0.9 + found / 1e6
        assert max(tried) <= min(1000, max(50, 2 * needed))
    assert _least(lambda _: 0.0, 1000) == (1000, 0.0)


@pytest.mark.slow
def test_the_command_writes_its_table(bench: Path, tmp_path: Path) -> None:
    """The one command prints the table and writes JSON and markdown with the machine's facts."""
    words = ["--quick", "--only", "b", "--work", tmp_path / "work"]
    files = ["--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md"]
    command = [sys.executable, bench / "run.py", *words, *files]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "paper: Figure 1" in done.stdout
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert {"processor", "cores", "memory", "versions", "date"} <= set(found["machine"])
    assert len(found["groups"]) == 2
    assert "| fast |" in (tmp_path / "out.md").read_text(encoding="utf-8")


def test_a_failed_part_is_shown_and_told(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    """A part that fails does not take the others with it, and the exit code says that it failed."""
    import run

    def fails(_: Any) -> list[Any]:
        raise ValueError("on purpose")

    monkeypatch.setitem(run.PARTS, "a", ("never works", fails))
    assert run.main(["--quick", "--only", "a", "--work", str(tmp_path)]) == 1
    assert "FAILED: ValueError: on purpose" in capsys.readouterr().out


def test_unknown_parts_are_refused(capsys: Any) -> None:
    """--only names the parts there are."""
    import run

    with pytest.raises(SystemExit):
        run.main(["--only", "z"])
    assert f"expected some of {', '.join(run.PARTS)}, got z" in capsys.readouterr().err


@pytest.mark.slow
def test_real_data_becomes_stores(real_data: Path, tmp_path: Path) -> None:
    """Each real dataset becomes a store of two classes with the rows that its README counts."""
    from stores import REAL, Settings

    settings = Settings(work=tmp_path, data=real_data)
    shapes: dict[str, tuple[int, int]] = {}
    load: Callable[[str], Path | None] = settings.real_store
    for name in REAL:
        path = load(name)
        assert path is not None
        store = Store.open(path)
        assert len(store.classes) == 2
        shapes[name] = (store.rows, store.features)
    assert shapes == {
        "mnist": (12665, 784),
        "mnist_zero_two": (11881, 784),
        "usps_zero_one": (2199, 256),
        "usps_three_five": (1214, 256),
        "reuters": (4495, 11525),
        "kdd": (204478, 41),
        "a9a": (32561, 123),
        "newsgroups": (1168, 33843),
        "newsgroups_sparse": (1168, 33843),
    }


@pytest.mark.slow
def test_updates_of_new_rows(settings: Any) -> None:
    """Each update retrains and certifies a model; the rows of the part are those updates, a training, and a pass."""
    from dataclasses import replace

    from updates import UPDATES, updates

    for group in updates(replace(settings, rows=4000)):
        assert [row.what.split(":")[0] for row in group.rows][:UPDATES] == [f"update {k + 1}" for k in range(UPDATES)]
        assert len(group.rows) == UPDATES + 2
        assert all(row.note == "" and row.read is not None for row in group.rows)
        assert "times the store on the mean" in group.notes[0]
    *_, hard, hinge, squared = updates(replace(settings, rows=400, large_rows=20_000, large_features=5))
    for group in (hard, hinge, squared):
        assert [row.note.split()[0] for row in group.rows] == ["CPU"] * 4
        assert group.notes[0].startswith("an update over a training from scratch: wall ")
    assert not (settings.work / "large-updates").exists()
    assert not (settings.work / "updates").exists()


@pytest.mark.slow
def test_updates_of_random_changes(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model is certified and those that are held against others stand; the part says what was read for what."""
    from dataclasses import replace

    import many_updates

    monkeypatch.setattr(many_updates, "UPDATES", 2)
    monkeypatch.setattr(many_updates, "HELD_EVERY", 2)
    groups = list(many_updates.many_updates(replace(settings, rows=5000)))
    assert len(groups) == len(many_updates.JOBS)
    for group in groups:
        assert [row.note for row in group.rows] == ["", "", ""]
        assert group.rows[2].read == pytest.approx(2 * group.rows[0].read)
        assert "compacted (1)" in group.notes[2]
    assert not (settings.work / "many-updates").exists()


@pytest.mark.slow
def test_part_n_ends_with_a_proof(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of generated text, two classes and twenty: all of ours are verified, and nobody is below the bound."""
    from dataclasses import replace

    import batches as part

    monkeypatch.setattr(part, "LOSSES", ("squared_hinge",))
    groups = list(part.batches(replace(settings, texts=120, hashed=1 << 8)))
    assert [group.title.rpartition(", ")[2] for group in groups] == ["2 classes", "20 classes"]
    for group in groups:
        ours, peer, every = group.rows
        assert ours.note.startswith("certified, verified, accuracy")
        assert every.note.startswith("certified, verified, accuracy")
        assert peer.note.startswith("no proof")
        assert all(row.value >= 1 - 1e-9 for row in group.rows)
        assert ours.value <= 1.001
        assert peer.ratio == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_part_o_goes_on_with_every_kind(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small updates of margins, losses and fleets: certified and verified, and none read as often as from scratch."""
    from dataclasses import replace

    import kinds_of_updates as part

    monkeypatch.setattr(part, "UPDATES", 2)
    monkeypatch.setattr(part, "STORES", ((1.0, 10, None, tuple(part.KINDS)),))
    groups = list(part.kinds_of_updates(replace(settings, rows=20_000)))
    assert [len(group.rows) for group in groups] == [len(part.KINDS)] * len(part.CLOSER)
    for group in groups:
        assert not any("refuted" in row.note or "stopped" in row.note for row in group.rows)


@pytest.mark.slow
def test_part_p_ends_with_a_proof(settings: Any) -> None:
    """The rings alone, which need no data from outside."""
    from dataclasses import replace

    from kernel_machines import kernel_machines

    (group,) = kernel_machines(replace(settings, rows=5000, texts=1, train_s=20.0))
    (ours,) = group.rows
    assert "verified" in ours.note
    assert "NOT" not in ours.note
    assert 1 <= ours.value <= 1.001


@pytest.mark.slow
def test_part_s_trains_from_a_bucket(settings: Any) -> None:
    """Part (s) ends with the same bits from files and buckets, whatever the service does."""
    from buckets import buckets

    for group in buckets(settings):
        assert [row.what for row in group.rows] == ["files", "a bucket", "a bucket with faults"]
        assert all(row.note.endswith("same bits") for row in group.rows[1:])
        assert all(row.margin >= 0.99 and row.ratio > 0 for row in group.rows)


@pytest.mark.slow
def test_part_t_measures_sequences(settings: Any) -> None:
    """Part (t) names data that is absent, and certifies generated sequences of which a share is cached."""
    from sequences import sequences

    *absent, generated = sequences(settings)
    assert [group.rows for group in absent] == [[], []]
    assert all("not found" in group.title for group in absent)
    (row,) = generated.rows
    assert row.margin >= 0.999
    assert row.read > 0
