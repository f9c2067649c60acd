"""How one goes on from a campaign whose answers contradict each other: with another that has a loss."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from msgspec.structs import fields

from coremargin.problems.active.spec import SOFT, ActiveJob
from coremargin.units import exact_size

FOLDS = 5  #: of the answers, by which C is found: each class has to have as many
_NAMES = (
    "method",
    "epsilon",
    "error",
    "confidence",
    "by_class",
    "loss",
    "C",
    "trial",
    "seed",
    "intercept",
    "scaling",
    "map",
    "components",
    "gamma",
    "degree",
    "coef0",
    "map_seed",
    "memory",
)
#: What one campaign takes over from another, with what holds where nothing is said.
TAKEN_OVER = {field.name: field.default for field in fields(ActiveJob) if field.name in _NAMES}


def with_loss(store: str, campaign: str, said: Mapping[str, Any], *, fewest: int) -> str:
    """The command that goes on from answers which no hyperplane agrees with, asking for what was asked for.

    said: parameters of the campaign. fewest: answers of the class that has the fewest.
    """
    cost = "auto" if fewest >= FOLDS else "1"
    possible = {**said, "method": said.get("method") if said.get("method") in SOFT else TAKEN_OVER["method"]}
    return started(store, campaign, ["--loss", "hinge", "--C", cost, *options_of(possible)])


def started(store: str, campaign: str, options: list[str]) -> str:
    """The command that begins another campaign with the answers of one."""
    begin = ["coremargin", "active", "start", store, "--out", "NEW"]
    return shlex.join([*begin, *options, "--examples", campaign])


def options_of(said: Mapping[str, Any]) -> list[str]:
    """Parameters of a campaign that are not as they are where nothing is said, as options."""
    found = list[str]()
    for name, default in TAKEN_OVER.items():
        value, option = said.get(name), name.replace("_", "-")
        if value is None or value == default:
            continue
        if isinstance(value, bool):
            found.append(f"--{option}" if value else f"--no-{option}")
        else:
            found += [f"--{option}", str(exact_size(value) if name == "memory" else value)]
    return found
