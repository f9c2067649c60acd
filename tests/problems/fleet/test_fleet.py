"""Fleets: members that share scans prove what they would prove alone, and shared rows are exact."""

from __future__ import annotations

import itertools
import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.data.folds import Masked, fold_of
from coremargin.data.relabelled import Relabelled
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import OutOfTime
from coremargin.engine.plan import plan_blocks
from coremargin.engine.scan import run_scan
from coremargin.errors import LabelError
from coremargin.maths.margin import is_certified
from coremargin.maths.rows import is_sparse
from coremargin.maths.stopping import stoppable
from coremargin.problems.common.driver_rows import DriverRows, predicted_classes
from coremargin.problems.common.threads import map_in_threads
from coremargin.problems.fleet import fleet as fleet_module
from coremargin.problems.fleet.fleet import Fleet, FleetState
from coremargin.problems.fleet.member_kinds import HardMargins, SoftMargins
from coremargin.problems.fleet.plan import fleet_plan
from coremargin.problems.fleet.probe import Columns, Ensemble, Evaluator, class_places, most_wanted
from coremargin.problems.fleet.shared_rows import SharedRows, held_rows, pack_arrays, unpack_arrays, with_rows
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.problems.soft import problem as soft_problem
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.near_margin import SoftMargin

COSTS = (0.1, 1.0, 10.0)


def blobs(
    rng: np.random.Generator, rows: int = 280, *, apart: float = 2.0, some: float = 0.0, zeros: float = 0.0
) -> ArraySource:
    """Three classes around three points, in five chunks; a share without label, a share of the values 0."""
    y = rng.integers(0, 3, rows)
    y[:3] = 0, 1, 2
    X = rng.standard_normal((rows, 4)) + apart * np.eye(3, 4)[y]
    labels = np.array(["x", "y", "z"], object)[y]
    labels[rng.random(rows) < some] = None
    X[rng.random(X.shape) < zeros] = 0.0
    return ArraySource(X.astype(np.float32), labels, chunk_rows=60)


def soft_fleet(source: ArraySource, loss: Any = "hinge", *, epsilon: float = 1e-6, **options: Any) -> Fleet:
    """All classes and values of C; the sample is one chunk of five."""
    memory = options.pop("memory", 1 << 20)
    choice: dict[str, Any] = {"against_rest": True, "costs": COSTS, "folds": 0, "seed": 0} | options

    def make(view: Any, cost: Any) -> SoftMargin:
        near_bytes = memory // 4
        return SoftMargin(
            view,
            epsilon,
            LOSSES[loss],
            cost,
            sample_share=0.2,
            sample_bytes=2_000,
            near_bytes=near_bytes,
            in_stages=False,
        )

    return Fleet(source, fleet_plan(source, make, **choice), SoftMargins(), memory)


def test_what_a_round_costs_grows_as_the_members_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """To tell a round each member's bounds are compared once, and an update makes no member's query again."""
    fleet = soft_fleet(blobs(np.random.default_rng(0)))
    state = fleet.start()
    summary = run_scan(InProcess(), fleet.source, fleet.probe(state), plan_blocks(fleet.source, 2_000))
    compared, asked = list[float](), list[SoftMargin]()
    ratio, probe = fleet_module.ratio, SoftMargin.probe
    monkeypatch.setattr(fleet_module, "ratio", lambda low, up: (compared.append(up), ratio(low, up))[1])
    monkeypatch.setattr(SoftMargin, "probe", lambda self, own: (asked.append(self), probe(self, own))[1])
    after = fleet.update(state, summary)
    told = fleet.round_of(after)
    assert len(compared) == len(fleet.plan.members) == 9
    assert not asked
    ratios = [ratio(member.lower, member.upper) for member in after.members]
    assert told.more["worst"] == fleet.plan.members[int(np.argmin(ratios))].name


def hard_fleet(source: ArraySource, **options: Any) -> Fleet:
    """All classes; the sample is one chunk of five."""
    choice: dict[str, Any] = {"against_rest": True, "costs": (None,), "folds": 0, "seed": 0} | options

    def make(view: Any, cost: Any) -> HardMargin:
        return HardMargin(view, 1e-6, sample_share=0.2, sample_bytes=2_000, working_set_bytes=1 << 20)

    kind = HardMargins()
    return Fleet(source, fleet_plan(source, make, **choice).with_same_stages(), kind, 1 << 20)


def run(problem: Any, executor: InProcess | None = None, begin: Any = None) -> tuple[Any, int]:
    """The last state, and how many scans it took, from a state or from the start."""
    state, scans = problem.start() if begin is None else begin, 0
    while not problem.done(state):
        blocks = plan_blocks(problem.source, 2_000, skip=problem.skip(state))
        state = problem.update(state, run_scan(executor or InProcess(), problem.source, problem.probe(state), blocks))
        scans += 1
        assert scans < 40
    return state, scans


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("folds", [0, 2])
def test_members_prove_what_they_would_prove_alone(rng: np.random.Generator, loss: str, folds: int) -> None:
    """Each member is certified, and its bounds overlap with those of the same problem on relabelled rows alone."""
    source = blobs(rng, some=0.1)
    fleet = soft_fleet(source, loss, folds=folds, seed=3)
    state, _ = run(fleet)
    assert len(state.members) == 9 * (1 + folds)
    assert state.status == "certified"
    X = np.concatenate([source.read(k)[0] for k in range(source.chunks)])
    codes = np.concatenate([source.labels(k) for k in range(source.chunks)])
    fold = fold_of(np.arange(len(X)), 2, 3)
    for member, found in zip(fleet.plan.members, fleet.results(state), strict=True):
        mine = codes >= 0 if member.fold is None else (codes >= 0) & (fold != member.fold)
        alone = SoftMargin(
            ArraySource(X[mine], codes[mine] == member.code), 1e-6, LOSSES[loss], float(member.cost or 0)
        )  # type: ignore[arg-type]
        value, _ = run(alone)
        assert found.lower is not None
        assert found.upper is not None
        assert is_certified(found.lower, found.upper, 1e-6)
        assert is_certified(value.lower, value.upper, 1e-6)
        assert found.lower <= value.upper
        assert value.lower <= found.upper


@pytest.mark.specimens(2)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("zeros", [0.0, 0.9])
@pytest.mark.parametrize("folds", [0, 2])
def test_members_that_hold_all_rows_hold_them_once(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, loss: str, zeros: float, folds: int
) -> None:
    """One scan is the proof of all, and the rows are there once: sparse where most of them is zero."""
    monkeypatch.setattr(soft_problem, "FEW_ROWS", 1000)
    source = blobs(rng, some=0.1, zeros=zeros)
    fleet = soft_fleet(source, loss, folds=folds, epsilon=1e-4)
    start = fleet.start()
    assert is_sparse(start.shared_rows.rows) == (zeros > 0)
    if not folds:
        for member in start.members:
            assert (
                held_rows(with_rows(member, start.shared_rows, as_read=True))["cached"].rows is start.shared_rows.rows
            )
    state, scans = run(fleet)
    assert (scans, state.status) == (1, "certified")
    X = np.concatenate([source.read(k)[0] for k in range(source.chunks)]).astype(np.float64)
    codes = np.concatenate([source.labels(k) for k in range(source.chunks)])
    fold = fold_of(np.arange(len(X)), 2, 0)
    for member, found in zip(fleet.plan.members, fleet.results(state), strict=True):
        mine = codes >= 0 if member.fold is None else (codes >= 0) & (fold != member.fold)
        slack = np.maximum(0, 1 - np.where(codes == member.code, 1, -1) * (X @ found.w + found.b))[mine]
        value = 0.5 * found.w @ found.w + member.cost * (slack if loss == "hinge" else slack**2).sum()
        assert found.upper == pytest.approx(value, rel=1e-9)
        alone = SoftMargin(
            ArraySource(X[mine], codes[mine] == member.code), 1e-6, LOSSES[loss], float(member.cost or 0)
        )  # type: ignore[arg-type]
        best, _ = run(alone)
        assert found.lower <= best.upper
        assert best.lower <= found.upper


@pytest.mark.specimens(1)
@pytest.mark.parametrize("rows", [50, 1000])
def test_at_the_time_limit_the_other_members_wait(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Time ends among the first solves, and nothing is begun; or after a scan: the others can be resumed."""
    monkeypatch.setattr(soft_problem, "FEW_ROWS", rows)
    source, left = blobs(rng), itertools.count(100, -1)
    fleet = soft_fleet(source, epsilon=1e-7)

    def check() -> None:
        if next(left) <= 0:
            raise OutOfTime

    with stoppable(check), pytest.raises(OutOfTime):
        fleet.start()
    state = fleet.start()
    answer = run_scan(InProcess(), source, fleet.probe(state), plan_blocks(source, 2_000))
    left = itertools.count(2, -1)
    with stoppable(check):
        after = fleet.update(state, answer)
    told = [member.round for member in after.members]
    assert told.count(0) > 0
    assert set(told) <= {0, 1}
    assert after.status == "running"
    again = soft_fleet(source, epsilon=1e-7)
    restored = again.restore(after.to_arrays())
    end, _ = run(again, begin=restored)
    best, _ = run(again)
    assert end.status == best.status == "certified"
    for mine, known in zip(end.members, best.members, strict=True):
        assert mine.lower <= known.upper
        assert known.lower <= mine.upper


def test_members_find_what_scikit_learn_finds(rng: np.random.Generator) -> None:
    """Values and decisions of the hinge are those of SVC on the same rows of the same folds."""
    from sklearn.svm import SVC

    source = blobs(rng, 150)
    fleet = soft_fleet(source, epsilon=1e-7, folds=2, costs=(1.0,))
    X = np.concatenate([source.read(k)[0] for k in range(source.chunks)]).astype(np.float64)
    codes = np.concatenate([source.labels(k) for k in range(source.chunks)])
    fold = fold_of(np.arange(len(X)), 2, 0)
    state, _ = run(fleet)
    for member, found in zip(fleet.plan.members, fleet.results(state), strict=True):
        mine = np.ones(len(X), bool) if member.fold is None else fold != member.fold
        sign = np.where(codes[mine] == member.code, 1, -1)
        peer = SVC(kernel="linear", C=1.0, tol=1e-6).fit(X[mine], sign)
        w, b = peer.coef_[0], peer.intercept_[0]
        value = 0.5 * w @ w + np.maximum(0, 1 - sign * (X[mine] @ w + b)).sum()
        assert found.upper == pytest.approx(value, rel=1e-5)
        np.testing.assert_allclose(X @ found.w + found.b, X @ w + b, atol=2e-3)


def test_hard_margins_with_folds(rng: np.random.Generator) -> None:
    """Separable classes: each member's bounds meet those of the same problem alone on its view."""
    source = blobs(rng, 240, apart=12.0)
    fleet = hard_fleet(source, folds=3)
    state, scans = run(fleet)
    assert state.status == "certified"
    assert scans <= 5
    for member, found in zip(fleet.plan.members, fleet.results(state), strict=True):
        view = source if member.fold is None else Masked(source, member.fold, 3, 0)
        alone, _ = run(HardMargin(Relabelled(view, member.code or 0), 1e-6))
        assert found.lower is not None
        assert found.upper is not None
        assert (1 - 1e-6) * found.upper <= found.lower <= alone.upper * (1 + 1e-12)
        assert alone.lower <= found.upper * (1 + 1e-12)
    assert state.evaluated
    assert [int(matrix.sum()) for matrix in state.confusion] == [240, *np.bincount(fold_of(np.arange(240), 3, 0))]


@pytest.mark.specimens(1)
@pytest.mark.parametrize("make", [soft_fleet, hard_fleet])
def test_confusion_is_that_of_the_final_hypotheses(rng: np.random.Generator, make: Any) -> None:
    """Counted once more, row by row, from the results: largest decision value, on held-out rows of the folds."""
    source = blobs(rng, apart=3.0 if make is soft_fleet else 9.0, some=0.1)
    fleet: Fleet = make(source, folds=2)
    state, _ = run(fleet)
    X = np.concatenate([source.read(k)[0] for k in range(source.chunks)]).astype(np.float64)
    codes = np.concatenate([source.labels(k) for k in range(source.chunks)])
    fold = fold_of(np.arange(len(X)), 2, 0)
    results = fleet.results(state)
    for (held_out, _), numbers, counts in zip(
        *zip(*fleet.plan.ensembles.items(), strict=True), state.confusion, strict=True
    ):
        expected = np.zeros((3, 3), int)
        for row in range(len(X)):
            if codes[row] >= 0 and (held_out is None or fold[row] == held_out):
                values = [results[k].w @ X[row] + results[k].b for k in numbers]
                truth = int(np.flatnonzero(fleet.plan.codes == codes[row])[0])
                expected[truth, int(np.argmax(values))] += 1
        assert counts.tolist() == expected.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("make", [partial(soft_fleet, costs=(0.1, 1.0)), hard_fleet], ids=["soft", "hard"])
def test_the_same_bits_for_any_number_of_threads(rng: np.random.Generator, make: Any) -> None:
    """Scans on one, two and three threads: equal states, and a state that went through arrays goes on equally."""
    source = blobs(rng, apart=4.0)
    first = {}
    for threads in (1, 2, 3):
        fleet = make(source, folds=2)
        state, _ = run(fleet, InProcess(threads))
        arrays = state.to_arrays()
        first = first or arrays
        assert set(arrays) == set(first)
        for name, values in arrays.items():
            assert values.tobytes() == first[name].tobytes(), name
    fleet, state = make(source, folds=2), make(source, folds=2).start()
    again = fleet.restore(state.to_arrays())
    blocks = plan_blocks(source, 2_000)
    probe = fleet.probe(again)
    summary = run_scan(InProcess(), source, probe, blocks)
    restored = probe.from_arrays(summary.to_arrays())
    one, other = (fleet.update(*pair).to_arrays() for pair in ((state, summary), (again, restored)))
    for name, values in one.items():
        assert values.tobytes() == other[name].tobytes(), name


def test_two_classes_need_one_member_a_fold(rng: np.random.Generator) -> None:
    """Against the rest or not: of two classes there is one member for each C, with the store's own labels."""
    X = rng.standard_normal((200, 3))
    source = ArraySource(X, np.where(X[:, 0] + 0.3 * rng.standard_normal(200) > 0, "yes", "no"), chunk_rows=50)
    for against_rest in (True, False):
        fleet = soft_fleet(source, against_rest=against_rest, folds=2)
        names = [member.name for member in fleet.plan.members]
        assert names[:4] == ["C-0.1", "C-1", "C-10", "C-0.1_fold-0"]
        state, _ = run(fleet)
        found = fleet.results(state)[1]
        given = (X @ found.w + found.b > 0).astype(int)
        truth = np.concatenate([source.labels(k) for k in range(source.chunks)])
        no, yes = fleet.plan.codes
        assert state.confusion[1].tolist() == [
            [int(((truth == no) & (given == k)).sum()) for k in (0, 1)],
            [int(((truth == yes) & (given == k)).sum()) for k in (0, 1)],
        ]


def test_a_class_without_rows_in_a_fold_is_refused_by_name(rng: np.random.Generator) -> None:
    """Before any row is read, with the class, the fold and how few rows there are."""
    y = np.array(["often"] * 98 + ["rare"] * 2, object)
    source = ArraySource(rng.standard_normal((100, 2)), y)
    with pytest.raises(LabelError, match=r"rows of class 'rare' in each of 3 folds, found none in fold \d \(2 rows"):
        soft_fleet(source, folds=3)


def test_rows_that_several_members_want_are_sent_once(rng: np.random.Generator) -> None:
    """The rows of a scan are as many as differ, their members' answers name them, and hold none themselves."""
    source = blobs(rng)
    fleet = soft_fleet(source)
    summary = run_scan(InProcess(), source, fleet.probe(fleet.start()), plan_blocks(source, 2_000))
    wanted = [set(part.row_id.tolist()) for part in summary.parts]
    assert set(summary.row_id.tolist()) == set.union(*wanted)
    assert sum(map(len, wanted)) > 3 * len(summary.row_id)
    assert (np.diff(summary.row_id) > 0).all()
    X = np.concatenate([source.read(k)[0] for k in range(source.chunks)])
    for k, ids in enumerate(wanted):
        part = summary.part(k)
        assert set(part.row_id.tolist()) == ids
        assert (part.row_x == X[part.row_id]).all()
        assert summary.parts[k].row_x.size == 0


def test_memory_bounds_the_rows_that_are_sent(rng: np.random.Generator) -> None:
    """With little memory fewer rows are sent than are wanted, and every member is certified all the same."""
    source = blobs(rng)
    fleet = soft_fleet(source, epsilon=1e-2, memory=80 * 2 * 4 * 4)  # half of it: 80 rows of 4 float32
    probe = fleet.probe(fleet.start())
    assert probe.most == 16
    summary = run_scan(InProcess(), source, probe, plan_blocks(source, 2_000))
    assert len(summary.row_id) <= 16 * source.chunks
    assert sum(len(part.row_id) for part in summary.parts) > len(summary.row_id)


def test_the_most_wanted_rows_are_sent() -> None:
    """Of too many, those nearest to the margin for some member: first every member's nearest, then their second."""
    views = [
        (np.array([0, 1, 2]), np.array([0.0, 0.1, 0.2])),
        (np.array([2, 3, 4]), np.array([0.3, 0.2, 0.0])),
    ]
    assert most_wanted(views, 5, 5).tolist() == [True] * 5
    assert most_wanted(views, 2, 5).tolist() == [True, False, False, False, True]
    assert most_wanted(views, 4, 5).tolist() == [True, True, False, True, True]
    assert most_wanted(views, 0, 5).tolist() == [False] * 5


def test_equal_hypotheses_are_multiplied_once() -> None:
    """Columns that several ask for stand in the matrix once; each asker finds its own."""
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[2.0], [4.0]])
    columns = Columns.unique([a, b, np.zeros((2, 0))])
    assert columns.base.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert [places.tolist() for places in columns.places] == [[0, 1], [1], []]


def test_the_evaluator_counts_as_a_loop_does() -> None:
    """The largest value decides, ties go to the first class; other codes and rows of other folds do not count."""
    evaluator = Evaluator(np.zeros((3, 4)), np.array([5, 2]), (Ensemble((0, 1), None), Ensemble((3,), 1)))
    values = np.array([[1.0, 0.0, 2.0, 0.0], [1.0, 3.0, 0.0, 0.0], [0.0] * 4, [0.5, -1.0, 0.0, 2.0]])
    codes, fold = np.array([5, 2, 7, -1], np.int32), np.array([1, 0, 1, 1])
    found = evaluator.confusion(values, codes, fold)
    assert found.tolist() == [[[1, 0], [0, 1]], [[0, 1], [0, 0]]]
    assert class_places(evaluator.codes, codes).tolist() == [0, 1, -1, -1]
    assert predicted_classes(values[:2].T).tolist() == [0, 1, 0, 0]


def test_arrays_of_many_members_are_packed_exactly() -> None:
    """Shapes of up to three dimensions, empty ones, and names that some members lack come back as they were."""
    members = [
        {"a": np.arange(6.0).reshape(2, 3), "n": np.array(3), "e": np.zeros((0, 4))},
        {"a": np.zeros((0, 3)), "n": np.array(4), "only": np.ones((1, 2, 2), np.int64)},
    ]
    arrays = pack_arrays(members)
    assert len(arrays) < 10
    for before, after in zip(members, unpack_arrays(arrays | {"other": np.zeros(1)}), strict=True):
        assert set(before) == set(after)
        for name, values in before.items():
            assert after[name].shape == values.shape
            assert after[name].dtype == values.dtype
            assert after[name].tobytes() == values.tobytes()


def test_shared_rows_keep_each_row_once() -> None:
    """Rows are found by id whichever part they came from; the first part that has one decides."""
    one = DriverRows(np.array([4, 7, 9]), np.array([[4.0], [7.0], [9.0]]))
    two = DriverRows(np.array([2, 9, 3]), np.array([[2.0], [99.0], [3.0]]))
    shared_rows = SharedRows.collect(np.array([2, 3, 7, 9]), [one, two], np.float32)
    assert shared_rows.rows.dtype == np.float32
    assert shared_rows.rows[:, 0].tolist() == [2.0, 3.0, 7.0, 9.0]
    assert shared_rows.select(np.array([9, 2, 9]))[:, 0].tolist() == [9.0, 2.0, 9.0]


@pytest.mark.parametrize("make", [soft_fleet, hard_fleet])
def test_members_of_all_kinds_come_without_rows_and_get_them_back(make: Any, rng: np.random.Generator) -> None:
    """Whatever a member knows of its rows, none are in its state between scans; with them it is what was solved."""
    source = blobs(rng)
    fleet = make(source)
    start, every = fleet.start(), np.concatenate([source.read(k)[0] for k in range(source.chunks)])
    for member in start.members:
        held = held_rows(member)
        assert held.keys() == ({"working_set", "coreset", "sketch"} if make is hard_fleet else {"sample", "cached"})
        assert sum(len(some) for some in held.values()) > 0
        assert all(some.rows.shape == (len(some), 0) for some in held.values())
        again = with_rows(member, start.shared_rows)
        for some in held_rows(again).values():
            np.testing.assert_array_equal(some.rows, every[some.ids].astype(np.float64))
        for name, values in member.to_arrays().items():
            if not name.endswith("_rows") or name == "near_rows":
                assert again.to_arrays()[name].tobytes() == values.tobytes(), name


def test_the_status_of_all() -> None:
    """Running while one is; certified when all are; else the word of the first that is not."""

    class Word:
        def __init__(self, status: str) -> None:
            self.status = status

    def of(*words: str) -> str:
        return FleetState(0, 0, tuple(map(Word, words)), None, False, np.zeros(0), 0).status  # type: ignore[arg-type]

    assert of("certified", "running", "stalled") == "running"
    assert of("certified", "certified") == "certified"
    assert of("certified", "stalled", "not_separable") == "stalled"


def test_an_error_of_one_ends_all() -> None:
    """What one of many raises comes out; results keep the order of what was given."""
    assert map_in_threads(lambda k: k * k, range(20)) == [k * k for k in range(20)]
    with pytest.raises(ZeroDivisionError):
        map_in_threads(lambda k: 1 / (k - 3), range(20))


def test_names_of_members_are_names_of_folders(rng: np.random.Generator) -> None:
    """Whatever labels are, members have different names, whatever the case, of few characters that any system takes."""
    labels = [
        "a" * 300,
        "a" * 299 + "b",
        "/",
        "..",
        "../x",
        "!x-6",
        "x",
        "x!",
        "X",
        "x_6",
        "x\0",
        "\x1b[31m",
        "\n\n-",
        "CON",
        "\u202ex",
        "\u00e9",
        "\u00df",
        " x ",
        "x" * 41,
    ]
    numbers = np.repeat(np.arange(len(labels)), 20)
    source = ArraySource(rng.standard_normal((len(numbers), 2)), [labels[k] for k in numbers])
    costs = (1e-300, 0.1 + 0.2, 1.0)
    plan = fleet_plan(
        source, lambda view, cost: HardMargin(view, 1e-3), against_rest=True, costs=costs, folds=2, seed=0
    )
    names = [member.name for member in plan.members]
    assert len({name.lower() for name in names}) == len(names) == len(labels) * len(costs) * 3
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}", name) for name in names)
