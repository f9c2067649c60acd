"""Forgeries of fleets: who decides, what is counted, and tables that look better than what is in the store."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coremargin.models.registry import load
from coremargin.verify.examine import examine
from forge_assert import answer, called, forged, loads, refused, with_files
from forge_judges import Bench
from forge_plans import Draft
from forge_run import Work, other_decisions
from forge_specimens import files_of

if TYPE_CHECKING:
    from forge_specimens import Record, Specimen, Specimens

EVERY = ["fleet", "fleet-folds", "fleet-hard", "pair", "pair-folds"]


def fleet(specimen: Specimen, place: Path, change: Callable[[Record], Any], more: dict[str, Any] | None = None) -> Path:
    """A copy of a fleet with another record, and other files."""
    record = copy.deepcopy(specimen.record)
    change(record)
    return with_files(specimen, place, {"fleet.json": json.dumps(record).encode(), **(more or {})})


def accuracy(specimen: Specimen, model: Path) -> float:
    """Of what a fleet predicts for the rows that count, by the C of its first member."""
    found = load(model)
    found = found if found.C is not None or found.costs == (None,) else found.at(found.costs[0])
    known = specimen.rows.weighed > 0
    right = [given == label for given, label in zip(found.predict(specimen.rows.X), specimen.rows.labels, strict=True)]
    return float(np.array(right)[known].mean())


@pytest.mark.parametrize("name", ["fleet", "fleet-hard", "fleet-folds"])
@pytest.mark.parametrize("way", ["reversed", "rolled", "two swapped"])
def test_whoever_decides_is_verified(specimens: Specimens, tmp_path: Path, name: str, way: str) -> None:
    """Members in another order decide for each other's classes, whatever the table says of them."""
    specimen = specimens[name]

    def change(record: Record) -> None:
        members = record["members"]
        first = [
            k for k, entry in enumerate(members) if (entry["fold"], entry["C"]) == (members[0]["fold"], members[0]["C"])
        ]
        order = {
            "reversed": first[::-1],
            "rolled": [*first[1:], first[0]],
            "two swapped": [first[1], first[0], *first[2:]],
        }[way]
        moved = [members[k] for k in order]
        for k, entry in zip(first, moved, strict=True):
            members[k] = entry

    model = fleet(specimen, tmp_path, change)
    if loads(model) is not None:
        assert accuracy(specimen, model) < accuracy(specimen, specimen.model)
    refused(model, specimen.store)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("matrices", [True, False])
def test_classes_in_another_order_are_refused(
    specimens: Specimens, tmp_path: Path, name: str, *, matrices: bool
) -> None:
    """Classes reversed, with the confusion matrices that go with them or without: predictions are others."""
    specimen = specimens[name]

    def change(record: Record) -> None:
        record["classes"].reverse()
        for entry in record["evaluations"]:
            if matrices:
                entry["confusion"] = [line[::-1] for line in entry["confusion"][::-1]]

    refused(fleet(specimen, tmp_path, change), specimen.store)


def test_classes_of_two_reversed_with_matrices_that_are_true(specimens: Specimens, tmp_path: Path) -> None:
    """A fleet that says "no" for "yes" is refused although it admits that it is never right."""
    specimen = specimens["pair"]

    def change(record: Record) -> None:
        record["classes"].reverse()
        for entry in record["evaluations"]:
            (a, b), (c, d) = entry["confusion"]
            entry.update(confusion=[[c, d], [a, b]], accuracy=(c + b) / (a + b + c + d))
            entry["confusion"] = [[c, d], [a, b]]

    refused(fleet(specimen, tmp_path, change), specimen.store)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    "what", [("name",), ("name", "lower", "upper", "ratio", "coreset_rows"), ("class",), ("C",), ("fold",)]
)
def test_lines_of_the_table_are_of_their_members(
    specimens: Specimens, tmp_path: Path, name: str, what: tuple[str, ...]
) -> None:
    """Two lines that exchange what they say are refused, if that is not the same."""
    specimen, found = specimens[name], 0
    members = specimen.record["members"]
    for k in range(1, len(members)):
        if all(members[0][key] == members[k][key] for key in what):
            continue

        def change(record: Record, k: int = k) -> None:
            one, two = record["members"][0], record["members"][k]
            for key in what:
                one[key], two[key] = two[key], one[key]

        refused(fleet(specimen, tmp_path / str(k), change), specimen.store)
        found += 1
    assert found or what in (("class",), ("fold",), ("C",))


@pytest.mark.parametrize("names", [("model.json",), ("arrays.npz",), ("model.json", "arrays.npz")])
@pytest.mark.parametrize("name", ["fleet", "fleet-hard", "pair", "pair-folds"])
def test_members_in_each_others_folders(
    specimens: Specimens, tmp_path: Path, name: str, names: tuple[str, ...]
) -> None:
    """Files swapped between two members are refused, all of them or one."""
    specimen = specimens[name]
    one, two = (f"members/{entry['name']}" for entry in specimen.record["members"][:2])
    files = {f"{a}/{file}": specimen.files[f"{b}/{file}"] for a, b in ((one, two), (two, one)) for file in names}
    refused(with_files(specimen, tmp_path, files), specimen.store)


def test_members_of_another_fleet(specimens: Specimens, tmp_path: Path) -> None:
    """A member of another fleet, in any place of the table, is refused; so is a single model."""
    for specimen, other in (
        (specimens["fleet"], specimens["fleet-folds"]),
        (specimens["pair-folds"], specimens["pair"]),
    ):
        strange = f"members/{other.record['members'][0]['name']}"
        for k, entry in enumerate(specimen.record["members"]):
            below = f"members/{entry['name']}"
            files = {f"{below}/{file}": other.files[f"{strange}/{file}"] for file in ("model.json", "arrays.npz")}
            refused(with_files(specimen, tmp_path / f"{specimen.name}-{k}", files), specimen.store)
    single = {
        f"members/{specimens['pair'].record['members'][0]['name']}/{n}": c for n, c in specimens["hinge"].files.items()
    }
    refused(with_files(specimens["pair"], tmp_path / "single", single), specimens["pair"].store)


def unclaimed(specimen: Specimen, place: Path, change: Callable[[Draft, int], Any]) -> Path:
    """A fleet of stopped members that claim nothing and are others, with the tables that it had; change: of each."""
    more: dict[str, Any] = {}
    for k, entry in enumerate(specimen.record["members"]):
        draft = Draft(specimen, f"members/{entry['name']}/")
        draft.record["status"] = "stopped"
        draft.claims.update(lower=None, upper=None, ratio=None)
        change(draft, k)
        more |= draft.files()

    def lines(record: Record) -> None:
        record["status"] = "stopped"
        for entry in record["members"]:
            entry.update(status="stopped", lower=None, upper=None, ratio=None)

    return fleet(specimen, place, lines, more)


#: Members whose decisions rounding seems to leave open: all alike, nearly alike, or lost beside what is added to all.
ALIKE: dict[str, Callable[[Draft, int], Any]] = {
    **{
        f"offsets of {size:g}": lambda draft, k, size=size: draft.arrays.update(w=np.zeros(3), b=np.array([size]))
        for size in (0.0, 1e10, 1e100, 1e200, 1e300)
    },
    "one plane for all": lambda draft, k: draft.arrays.update(w=np.array([1.0, 0, 0]), b=np.array([0.5])),
    "planes a rounding apart": lambda draft, k: draft.arrays.update(
        w=np.array([1.0 + k * 2.0**-52, 0, 0]), b=np.array([0.5])
    ),
    "planes nearly alike": lambda draft, k: draft.arrays.update(w=np.array([1.0, k * 1e-17, 0]), b=np.array([0.5])),
    "planes beside a large one": lambda draft, k: draft.arrays.update(
        w=np.array([1e14, 0, 0]) + draft.arrays["w"], b=draft.arrays["b"]
    ),
    "planes beside a huge one": lambda draft, k: draft.arrays.update(
        w=np.array([1e200, 0, 0]) + draft.arrays["w"], b=draft.arrays["b"]
    ),
    "values that overflow": lambda draft, k: draft.arrays.update(w=np.array([1.7e308, 1.7e308, -1.7e308])),
}  # fmt: skip


@pytest.mark.parametrize("way", list(ALIKE))
@pytest.mark.parametrize("name", ["fleet", "fleet-hard", "fleet-folds", "pair", "pair-folds"])
def test_rounding_leaves_no_room_for_a_better_table(specimens: Specimens, tmp_path: Path, name: str, way: str) -> None:
    """Members that claim nothing and decide nothing do not keep the accuracy of those that they replace."""
    specimen = specimens[name]
    model = unclaimed(specimen, tmp_path, ALIKE[way])
    told = answer(model, specimen.store)
    assert told in ("refused", "accepted")
    if told == "accepted":
        work = Work(specimen, tmp_path / "work")
        files = files_of(model)
        with work.changed(dict(files)):
            assert [text for text in Bench(specimen).lies(work) if "confusion" in text] == []
            assert list(other_decisions(work, loads(model))) == []


@pytest.mark.parametrize("moved", [0.125, 0.25, 0.3, 0.5, 1])
@pytest.mark.parametrize("name", EVERY)
def test_rows_are_counted_whole(specimens: Specimens, tmp_path: Path, name: str, moved: float) -> None:
    """A matrix whose rows look a little better, and whose accuracy follows from it, is refused."""
    specimen = specimens[name]

    def change(record: Record) -> None:
        for entry in record["evaluations"]:
            matrix = np.array(entry["confusion"], dtype=int if moved == 1 else float)
            matrix[0, 0] -= moved
            matrix[0, 1] += moved
            entry.update(confusion=matrix.tolist(), accuracy=float(np.trace(matrix) / matrix.sum()))
        for line in record["validation"] or ():
            values = [e["accuracy"] for e in record["evaluations"] if e["C"] == line["C"] and e["fold"] is not None]
            line.update(accuracies=values, mean=float(np.mean(values)), std=float(np.std(values)))
        if record["validation"]:
            most = max(record["validation"], key=lambda line: (line["mean"], -line["C"]))
            record["chosen"] = (
                {"C": most["C"], "by": "validation"} if len(record["validation"]) > 1 else record["chosen"]
            )

    refused(fleet(specimen, tmp_path, change), specimen.store)


#: What may not stand in a fleet's record: by place, the values.
NONSENSE: dict[tuple[str | int, ...], list[Any]] = {
    ("classes",): [[["a"], ["b"], ["c"]], "123", {"1": 1, "2": 2, "3": 3}, [], [1], [1, 1, 2], None, 5, [1, 2, {}]],
    ("members",): [None, {}, [], "x", [None], [[]], 5],
    ("members", 0): [None, [], "x", {}],
    ("members", 0, "name"): ["", ".", "..", "a/b", "\0", "\ud800", "x" * 300, "../members", 5, None, [], "\x1b[31m"],
    ("members", 0, "status"): [None, 5, -1, [], "x", {}],
    ("members", 0, "C"): ["0.1", [], None, True, 10**400],
    ("members", 0, "fold"): ["0", [], 0.5, True, -1, 2**70],
    ("members", 0, "coreset_rows"): ["3", 3.5, None, True, 10**400],
    ("members", 0, "lower"): [10**400, "1", [], True],
    ("members", 0, "more"): [1],
    ("evaluations",): [{}, 5, "x", [None], [[]]],
    ("evaluations", 0, "rows"): [None, "9", 10.7, 2**70, 10**400, -1, True],
    ("evaluations", 0, "accuracy"): [None, "1", 10**400, 2.0, -1.0, True, 0.5 + 5e-10],
    ("evaluations", 0, "C"): [None, "1", True, [], 10**400, 7.5],
    ("evaluations", 0, "fold"): ["0", [], 10**400, 5, True],
    ("evaluations", 0, "more"): [1],
    ("evaluations", 0, "confusion"): [
        None, [], "x", 5, [[]], [["1", "2"], ["3", "4"]], [[2**70] * 3] * 3, [[10**400] * 3] * 3, [[2**70] * 2] * 2,
    ],
    ("evaluations", 0, "confusion", 0, 0): ["5", 5.5, None, [], 2**70, 10**400, -1, True],
    ("chosen",): [5, [], "x", {}, {"C": None}, {"C": 0.1, "by": "me"}, {"C": 77.0, "by": "only"}],
    ("parameters",): [None, [], "x", 5],
    ("parameters", "folds"): ["3", 2**70, 10**12, 1.5, -1, [1], {"a": 1}, float("inf"), True],
    ("parameters", "C"): ["1", [], [0.1], [0.1, 1.0, 10.0], {"a": 1}, 10**400, [[0.1]]],
    ("parameters", "classes"): ["crammer-singer", 5, [], True],
    ("parameters", "epsilon"): [None, "x", 0.5, 10**400],
    ("parameters", "intercept"): [False, 1, None, "x"],
    ("parameters", "loss"): ["x", 5, []],
    ("parameters", "scaling"): ["standard", 5, "", []],
    ("parameters", "more"): [1],
    ("rows",): [None, 3000.5, "45", 10**400, True],
    ("features",): [12.5, None, "3", 10**400],
    ("dtype",): ["float16", None, 5, []],
    ("store_digest",): [None, 5, "", "sha256:12"],
    ("status",): [None, "stopped", 5, []],
    ("problem",): [None, "outliers", 5, []],
    ("version",): [2, True, 1.0, None],
    ("software",): [None, 5, {"a": 5}],
    ("more",): [1],
}  # fmt: skip


@pytest.mark.parametrize("place", list(NONSENSE), ids=lambda place: ".".join(map(str, place)))
@pytest.mark.parametrize("name", ["fleet", "pair-folds"])
def test_nonsense_in_a_fleets_record_is_refused(
    specimens: Specimens, tmp_path: Path, name: str, place: tuple[str | int, ...]
) -> None:
    """Values of the wrong kind end in a message that says where, not in a traceback, a list without end or a yes."""
    specimen, answers = specimens[name], {}
    for value in NONSENSE[place]:

        def change(record: Record, value: Any = value) -> None:
            inside: Any = record
            for key in place[:-1]:
                inside = inside[key]
            inside[place[-1]] = value

        answers[ascii(value)[:60]] = answer(fleet(specimen, tmp_path, change), specimen.store)
    assert answers == dict.fromkeys(answers, "refused")


@pytest.mark.parametrize("line", ["mean", "std", "C", "accuracies"])
def test_validation_follows_from_the_folds(specimens: Specimens, tmp_path: Path, line: str) -> None:
    """Means, deviations and their order are those of the accuracies."""
    specimen, answers = specimens["pair-folds"], {}
    for value in (None, "0.5", 0.999, 10**400, [1.0, 1.0], True, {}):

        def change(record: Record, value: Any = value) -> None:
            record["validation"][0][line] = value

        answers[ascii(value)[:20]] = answer(fleet(specimen, tmp_path, change), specimen.store)
    assert answers == dict.fromkeys(answers, "refused")


def test_a_folder_that_is_called_like_a_fleets_record(specimens: Specimens, tmp_path: Path) -> None:
    """What verify takes for a single model, loading takes for one: a folder called fleet.json makes it no fleet."""
    specimen = specimens["hard"]
    model = with_files(specimen, tmp_path, {})
    (model / "fleet.json").mkdir()
    if answer(model, specimen.store) != "refused":
        assert examine(model, specimen.store).ok
        assert loads(model) is not None
    for words in (("verify", model, specimen.store), ("show", model)):
        assert called(*words).exit_code in (0, 3)


def test_a_fleet_beside_a_model(specimens: Specimens, tmp_path: Path) -> None:
    """A folder with the files of both is one thing for all who read it."""
    specimen, other = specimens["pair"], specimens["hinge"]
    model = with_files(specimen, tmp_path, dict(other.files))
    if answer(model, specimen.store) == "accepted":
        assert type(loads(model)).__name__ == "FleetModel"


def test_a_member_alone_is_a_model(specimens: Specimens, tmp_path: Path) -> None:
    """A member's claim that is raised, in its folder and in the table, is refused as that of any model."""
    specimen = specimens["fleet-hard"]
    entry = specimen.record["members"][0]

    def better(draft: Draft) -> None:
        draft.bound(draft.claims["lower"] * 1.01, draft.claims["upper"] * 1.01)

    model = forged(specimen, tmp_path / "member", better, f"members/{entry['name']}/")
    refused(model, specimen.store)
    draft = Draft(specimen, f"members/{entry['name']}/")
    better(draft)

    def line(record: Record) -> None:
        record["members"][0].update({key: draft.claims[key] for key in ("lower", "upper", "ratio")})

    refused(fleet(specimen, tmp_path / "both", line, draft.files()), specimen.store)
