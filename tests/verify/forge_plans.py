"""Forgeries that are of one piece: everything that belongs together is changed together.

A plan takes the files of a model and gives others in their place, and says what it did. Some plans make claims that are
true (a weaker one, the same problem in other numbers): the judge tells them apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from forge_arrays import members_of, zipped

if TYPE_CHECKING:
    from forge_specimens import Arrays, Record, Specimen

Files = dict[str, bytes | None]


class Draft:
    """A model that is being forged: its record and arrays, to be changed in place; below: of a fleet's member."""

    def __init__(self, specimen: Specimen, below: str = "") -> None:
        self.below = below
        self.record: Record = json.loads(specimen.files[f"{below}model.json"])
        self._digest = self.claims.get("store_digest")
        self.arrays: Arrays = {name: values.copy() for name, values in specimen.arrays(below).items()}

    @property
    def claims(self) -> Record:
        """The certificate."""
        return dict.__getitem__(self.record, "certificate")

    @property
    def asked(self) -> Record:
        """The parameters."""
        return dict.__getitem__(self.record, "parameters")

    def files(self) -> Files:
        """The model's files. With another digest it names no SHA-256: what is false has to be found without."""
        claims = dict.get(self.record, "certificate")
        if isinstance(claims, dict) and claims.get("store_digest") != self._digest:
            claims.pop("store_sha256", None)
        text = json.dumps(self.record, indent=1).encode()
        return {f"{self.below}model.json": text, f"{self.below}arrays.npz": zipped(members_of(self.arrays))}

    def bound(self, lower: float | None, upper: float | None) -> None:
        """Claim these bounds, wherever they are said."""
        ratio = min(1.0, lower / upper) if lower and upper and lower > 0 and upper > 0 else 0.0
        self.claims.update(lower=lower, upper=upper, ratio=ratio)
        if "outliers_k" in self.arrays:
            self.arrays["outliers_lower"][-1] = -np.inf if lower is None else lower
            self.arrays["outliers_upper"][-1] = np.inf if upper is None else upper


def _factor(rng: np.random.Generator) -> float:
    """Near 1 or far from it, on either side."""
    return (
        float(1 + rng.choice([-1, 1]) * 10.0 ** rng.integers(-15, 0))
        if rng.random() < 0.7
        else float(10.0 ** rng.uniform(-12, 12))
    )


def both_bounds(rng: np.random.Generator, draft: Draft) -> str:
    """Lower and upper are one number."""
    value = (draft.claims["upper"] or 1.0) * _factor(rng)
    draft.bound(value, value)
    return f"both bounds {value!r}"


def one_bound(rng: np.random.Generator, draft: Draft) -> str:
    """One of the bounds, and what follows from it."""
    lower, upper = draft.claims["lower"], draft.claims["upper"]
    if rng.integers(2) and lower is not None:
        lower *= _factor(rng)
    elif upper is not None:
        upper *= _factor(rng)
    draft.bound(lower, upper)
    return f"bounds {lower!r} to {upper!r}"


def stopped(rng: np.random.Generator, draft: Draft) -> str:
    """Of a run that was stopped, with other bounds."""
    draft.record["status"] = "stopped"
    told = one_bound(rng, draft)
    problem = draft.record["problem"]
    value = problem in ("soft_margin", "soft_ball") or "loss" in draft.asked or "nu" in draft.asked
    value = value and problem != "soft_ellipsoid"
    shapes = {"ball": "radius", "kernel_ball": "radius"} | dict.fromkeys(
        ("ellipsoid", "soft_ellipsoid"), "volume_radius"
    )
    shape = shapes.get(problem, "margin")
    draft.claims["kind"] = "duality_gap" if value else shape
    return f"stopped, {told}"


def nothing(rng: np.random.Generator, draft: Draft) -> str:
    """Stopped, without any bound, and another hypothesis."""
    told = stopped(rng, draft)
    draft.bound(None, None)
    draft.claims["ratio"] = None if rng.integers(2) else 0.0
    for name in ("w", "b", "hypothesis", "centre"):
        if name in draft.arrays and rng.integers(2):
            draft.arrays[name] = draft.arrays[name] * 10.0 ** rng.integers(0, 200)
    return f"{told}: nothing claimed"


def not_separable(rng: np.random.Generator, draft: Draft) -> str:
    """Nothing separates, of rows that are said to be long."""
    draft.record["status"] = draft.claims["kind"] = "not_separable"
    draft.claims.update(lower=None, ratio=None)
    draft.claims["radius"] *= 10.0 ** rng.integers(0, 300)
    if rng.integers(2) and "constant" in draft.record:
        draft.record["constant"] *= 2.0 ** rng.integers(1, 60)
    return f"not separable, radius {draft.claims['radius']!r}"


def other_epsilon(rng: np.random.Generator, draft: Draft) -> str:
    """Another epsilon in both places, and a lower bound that is enough for it."""
    epsilon = float(1 - 10.0 ** rng.uniform(-15, -0.01))
    draft.asked["epsilon"] = draft.claims["epsilon"] = epsilon
    upper = draft.claims["upper"]
    if upper:
        draft.bound(upper * (1 - epsilon) * 1.5, upper)
    return f"epsilon {epsilon!r}, lower {draft.claims['lower']!r}"


def other_length(rng: np.random.Generator, draft: Draft) -> str:
    """The hypothesis times a number, and the bounds as well."""
    factor = _factor(rng)
    for name in ("w", "b", "hypothesis", "outliers_w", "outliers_b", "centre"):
        if name in draft.arrays:
            draft.arrays[name] = draft.arrays[name] * factor
    if draft.claims["lower"] is not None:
        draft.bound(draft.claims["lower"] * factor, draft.claims["upper"] * factor)
    return f"hypothesis and bounds times {factor!r}"


def padded(rng: np.random.Generator, draft: Draft) -> str:
    """A row of the coreset many times more, without weight."""
    m, more = len(draft.arrays["coreset_ids"]), int(rng.choice([1, 10, 1000]))
    if not m or "coreset_x" not in draft.arrays:
        return one_bound(rng, draft)
    for name in ("coreset_ids", "coreset_x", "coreset_y", "coreset_classes", "alpha", "duals"):
        if name in draft.arrays:
            values = draft.arrays[name]
            again = np.repeat(values[:1], more, axis=0) * (0 if name in ("alpha", "duals") else 1)
            draft.arrays[name] = np.concatenate([values, again])
    draft.claims["coreset_rows"] = m + more
    told = not_separable(rng, draft) if rng.integers(2) else "as it was"
    return f"{more} rows more in the coreset, {told}"


def other_intercept(rng: np.random.Generator, draft: Draft) -> str:
    """With an intercept, or without, and weights and constants that go with it."""
    if "intercept" not in draft.asked:
        return one_bound(rng, draft)
    draft.asked["intercept"] = not draft.asked["intercept"]
    kind = int(rng.integers(3))
    if "constant" in draft.record:
        if draft.asked["intercept"]:
            draft.record["constant"] = float((1e-300, 1.0, 8.0)[kind])
        else:
            draft.record["constant"] = (0.0, -draft.record["constant"], draft.record["constant"])[kind]
            for name in ("hypothesis", "reference"):
                if name in draft.arrays:
                    draft.arrays[name][:, -1] *= (0.0, -1.0, 1.0)[kind]
    elif kind:
        draft.arrays["b"] = draft.arrays["b"] * (0.0 if kind == 1 else 1.0)
        if draft.record["problem"] == "hard_margin":
            draft.arrays["alpha"] = draft.arrays["alpha"] * (2.0 if draft.asked["intercept"] else 0.5)
    return f"intercept {draft.asked['intercept']}, way {kind}"


def other_constant(rng: np.random.Generator, draft: Draft) -> str:
    """Another constant of several classes, the same scores."""
    if not draft.record.get("constant"):
        return other_intercept(rng, draft)
    factor = float(rng.choice([-1.0, 2.0, 0.5, 1024.0, 1e-12]))
    draft.record["constant"] *= factor
    for name in ("hypothesis", "reference"):
        if name in draft.arrays:
            draft.arrays[name][:, -1] /= factor
    if rng.integers(2):
        size = float(np.linalg.norm(draft.arrays["hypothesis"])) or 1.0
        draft.arrays["hypothesis"] /= size
        draft.bound(*(None if draft.claims[key] is None else draft.claims[key] / size for key in ("lower", "upper")))
    return f"constant times {factor}"


def other_price(rng: np.random.Generator, draft: Draft) -> str:
    """C times a number, and the weights of the classes divided by it."""
    if "C" not in draft.asked:
        return one_bound(rng, draft)
    factor = _factor(rng)
    draft.asked["C"] *= factor
    weight = draft.asked["class_weight"]
    if not isinstance(weight, str) and rng.integers(2):
        draft.asked["class_weight"] = [one / factor for one in weight or (1.0, 1.0)]
    elif rng.integers(2):
        draft.bound(draft.claims["lower"] * factor, draft.claims["upper"] * factor)
    return f"C times {factor!r}, class_weight {draft.asked['class_weight']}, bounds {draft.claims['lower']!r}"


def other_question(rng: np.random.Generator, draft: Draft) -> str:
    """The other loss, another scaling, another problem."""
    kind = int(rng.integers(3))
    if kind == 0 and "loss" in draft.asked:
        draft.asked["loss"] = {"hinge": "squared_hinge"}.get(draft.asked["loss"], "hinge")
        return f"loss {draft.asked['loss']}"
    if kind == 1:
        asked = [None, "standard", "minmax", "maxabs", "rownorm"][rng.integers(5)]
        draft.asked["scaling"] = asked
        if asked is None:
            del draft.asked["scaling"]
        if rng.integers(2):
            d = draft.record["features"]
            draft.arrays.update(shift=np.zeros(d), factor=np.ones(d))
        return f"scaling {asked}"
    draft.record["problem"] = str(rng.choice(["hard_margin", "soft_margin", "outliers", "crammer_singer"]))
    return f"problem {draft.record['problem']}"


def unproven(rng: np.random.Generator, draft: Draft) -> str:
    """Outliers without all of their proof, and other bounds."""
    names = [name for name in draft.arrays if "proof" in name]
    if not names:
        return one_bound(rng, draft)
    gone = names if rng.integers(2) else [str(rng.choice(names))]
    for name in gone:
        del draft.arrays[name]
    told = both_bounds(rng, draft) if rng.integers(2) else "bounds as they were"
    return f"without {gone}, {told}"


def other_numbers(rng: np.random.Generator, draft: Draft) -> str:
    """Other numbers of outliers, of another kind, in another order, asked for as well or not."""
    if "outliers_k" not in draft.arrays:
        return one_bound(rng, draft)
    ks = draft.arrays["outliers_k"]
    new = ks + int(rng.integers(1, 9)) if rng.integers(2) else ks[::-1].copy()
    if rng.integers(2):
        new[:-1] += 5
    new = new.astype(rng.choice(["i8", "u8", "u1", "f8", "i1"]))
    draft.arrays["outliers_k"] = new + 0.9 if new.dtype.kind == "f" else new
    if rng.integers(2):
        draft.asked["outliers"] = [int(k) for k in new] if len(new) > 1 else int(new[0])
    if rng.integers(2):
        draft.arrays["outliers_upper"][:] = draft.arrays["outliers_upper"][-1]
    return f"k {new.tolist()} {new.dtype}, asked for {draft.asked['outliers']!r}"


def huge_plane(rng: np.random.Generator, draft: Draft) -> str:
    """A hyperplane for fewer outliers whose margins are no numbers."""
    if len(draft.arrays.get("outliers_k", ())) < 2:
        return other_length(rng, draft)
    i = int(rng.integers(len(draft.arrays["outliers_k"]) - 1))
    draft.arrays["outliers_w"][i] *= 1e308
    draft.arrays["outliers_b"][i] = rng.choice([0.0, 1e308, -1e308])
    draft.arrays["outliers_lower"][i] = rng.choice([1.0, 1000.0, -1e-300])
    return f"plane {i} times 1e308"


SINGLE: tuple[Callable[[np.random.Generator, Draft], str], ...] = (
    both_bounds, one_bound, one_bound, stopped, nothing, not_separable, other_epsilon, other_length, padded,
    other_intercept, other_constant, other_price, other_question, unproven, other_numbers, huge_plane,
)  # fmt: skip


def single(rng: np.random.Generator, specimen: Specimen) -> tuple[str, Files]:
    """One of the plans for one model."""
    plan, draft = SINGLE[rng.integers(len(SINGLE))], Draft(specimen)
    told = plan(rng, draft)
    return f"{plan.__name__}: {told}", draft.files()


def _fleet_record(record: Record) -> Files:
    return {"fleet.json": json.dumps(record, indent=1).encode()}


def _below(entry: Record) -> str:
    return f"members/{entry['name']}/"


def member_claims(rng: np.random.Generator, specimen: Specimen, record: Record) -> tuple[str, Files]:
    """Another claim of one member, which the fleet repeats."""
    entry = record["members"][rng.integers(len(record["members"]))]
    plan, draft = SINGLE[rng.integers(len(SINGLE))], Draft(specimen, _below(entry))
    told = plan(rng, draft)
    entry.update(
        {key: draft.claims[key] for key in ("lower", "upper", "ratio", "coreset_rows")}, status=draft.record["status"]
    )
    words = [one["status"] for one in record["members"]]
    record["status"] = next((word for word in ("stopped", "not_separable") if word in words), "certified")
    return f"{entry['name']} {plan.__name__}: {told}", {**draft.files(), **_fleet_record(record)}


def swapped_folders(rng: np.random.Generator, specimen: Specimen, record: Record) -> tuple[str, Files]:
    """Two members in each other's folders, all files or one of the two."""
    one, two = (record["members"][k] for k in rng.integers(len(record["members"]), size=2))
    names = (("model.json",), ("arrays.npz",), ("model.json", "arrays.npz"))[rng.integers(3)]
    files: Files = {}
    for name in names:
        files[_below(one) + name], files[_below(two) + name] = (
            specimen.files[_below(two) + name],
            specimen.files[_below(one) + name],
        )
    return f"{names} of {one['name']} and {two['name']} swapped", files


def other_order(rng: np.random.Generator, specimen: Specimen, record: Record) -> tuple[str, Files]:
    """Members, classes or evaluations in another order, with the matrices that go with it or not."""
    key = ("members", "classes", "evaluations")[rng.integers(3 if record["evaluations"] else 2)]
    order = rng.permutation(len(record[key]))
    record[key] = [record[key][k] for k in order]
    if key == "classes" and rng.integers(2):
        for entry in record["evaluations"] or ():
            entry["confusion"] = np.array(entry["confusion"])[np.ix_(order, order)].tolist()
    return f"{key} in the order {order.tolist()}", _fleet_record(record)


def swapped_lines(rng: np.random.Generator, specimen: Specimen, record: Record) -> tuple[str, Files]:
    """Two lines of the table of members exchange some of what they say."""
    one, two = (record["members"][k] for k in rng.integers(len(record["members"]), size=2))
    keys = [key for key in one if rng.integers(2)]
    for key in keys:
        one[key], two[key] = two[key], one[key]
    return f"{keys} of {one['name']} and {two['name']} swapped", _fleet_record(record)


def better_tables(rng: np.random.Generator, specimen: Specimen, record: Record) -> tuple[str, Files]:
    """Matrices with rows moved to where they look better, and all that follows from them."""
    shift = rng.choice([0.25, 0.3, 1, 1, 2])
    for entry in record["evaluations"] or ():
        matrix = np.array(entry["confusion"], dtype=float if shift < 1 else int)
        i, j = (int(k) for k in rng.integers(len(matrix), size=2))
        if matrix[i, j] >= shift:
            matrix[i, j] -= shift
            matrix[i, i] += shift
        entry.update(confusion=matrix.tolist(), accuracy=float(np.trace(matrix)) / float(matrix.sum()))
    for line in record["validation"] or ():
        values = [e["accuracy"] for e in record["evaluations"] if e["C"] == line["C"] and e["fold"] is not None]
        line.update(accuracies=values, mean=float(np.mean(values)), std=float(np.std(values)))
    if record["validation"] and rng.integers(2):
        most = max(record["validation"], key=lambda line: (line["mean"], -line["C"]))
        record["chosen"] = {"C": most["C"], "by": "validation"}
    return f"rows moved in every matrix by {shift}", _fleet_record(record)


def all_stopped(rng: np.random.Generator, specimen: Specimen, record: Record) -> tuple[str, Files]:
    """Nothing is claimed of the members, who are others; the tables are as they were."""
    size, files = 10.0 ** rng.integers(0, 250), Files()
    record["status"] = "stopped"
    for entry in record["members"]:
        draft = Draft(specimen, _below(entry))
        draft.record["status"] = entry["status"] = "stopped"
        entry.update(lower=None, upper=None, ratio=None)
        draft.claims.update(
            lower=None, upper=None, ratio=None, kind="margin" if "loss" not in draft.asked else "duality_gap"
        )
        draft.arrays.update(b=np.array([size]), w=draft.arrays["w"] * rng.choice([0.0, 1.0]))
        files |= draft.files()
    return f"all stopped, b = {size!r}", {**files, **_fleet_record(record)}


def other_choice(rng: np.random.Generator, specimen: Specimen, record: Record) -> tuple[str, Files]:
    """Another C is said to be the best, or none, for another reason."""
    costs = [entry["C"] for entry in record["members"]]
    record["chosen"] = [
        None,
        {"C": costs[rng.integers(len(costs))], "by": str(rng.choice(["only", "validation", "me"]))},
    ][rng.integers(2)]
    return f"chosen {record['chosen']}", _fleet_record(record)


FLEET = (
    member_claims,
    member_claims,
    swapped_folders,
    other_order,
    swapped_lines,
    better_tables,
    all_stopped,
    other_choice,
)


def fleet(rng: np.random.Generator, specimen: Specimen) -> tuple[str, Files]:
    """One of the plans for many models."""
    plan, record = FLEET[rng.integers(len(FLEET))], json.loads(specimen.files["fleet.json"])
    told, files = plan(rng, specimen, record)
    return f"{plan.__name__}: {told}", files


def swapped_files(rng: np.random.Generator, specimen: Specimen, other: Specimen) -> tuple[str, Files]:
    """A file of another model in the place of one of this one's, or one that is missing."""
    names = list(specimen.files)
    name = names[rng.integers(len(names))]
    if rng.random() < 0.1:
        return f"{name} missing", {name: None}
    last = name.rsplit("/", 1)[-1]
    theirs = [path for path in other.files if path.rsplit("/", 1)[-1] == last] or list(other.files)
    path = theirs[rng.integers(len(theirs))]
    return f"{name} is {path} of {other.name}", {name: other.files[path]}


def drawn(rng: np.random.Generator, specimen: Specimen, other: Specimen) -> tuple[str, Any]:
    """One forgery: of one piece, or a file of another model."""
    if rng.random() < 0.2:
        return swapped_files(rng, specimen, other)
    return fleet(rng, specimen) if specimen.fleet else single(rng, specimen)
