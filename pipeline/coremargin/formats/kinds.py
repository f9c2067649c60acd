"""The kinds of problems that there are: a line for each.

Readers of records need the list, so it is in the layer of records, as text: modules are imported when they
are asked for. Each layer asks for its own part: registry.py for records, models/registry.py for models,
problems/registry.py for kinds, cli/kinds.py for commands. There is one list more, the verifier's own, of who checks
which claim: verify/registry.py.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from types import ModuleType


class Parts(NamedTuple):
    """The modules of a kind, by what they export; a dot in front stands for this package."""

    kind: str  #: ``KIND``: from a job to its messages (problems/kind.py)
    model: str  #: ``MODEL_CLASS``: what its models are (models/base.py)
    record: str | None = None  #: ``RECORD``: the type of ``model.json``; None: its models hold those of other kinds
    commands: str | None = None  #: ``COMMANDS``: questions about its models, for the command line (problems/kind.py)
    cli: str | None = None  #: ``COMMANDS``, ``SECTION`` as in cli/, and ``run_job``: how `coremargin run` runs its jobs


#: By the names that records have for them; jobs are matched in this order, and the last one takes the rest.
#: A kind whose records are of two forms has two lines.
KINDS = {
    "active": Parts(".problems.active.kind", ".models.model", ".formats.active", cli=".cli.active"),
    "active_classes": Parts(".problems.active.kind", ".models.model", ".formats.active_classes"),
    "kernel_ball": Parts(".problems.kernel_ball.kind", ".models.kernel_ball", ".formats.kernel_ball"),
    "soft_ellipsoid": Parts(".problems.soft_ellipsoid.kind", ".models.soft_ellipsoid", ".formats.soft_ellipsoid"),
    "ellipsoid": Parts(".problems.ellipsoid.kind", ".models.ellipsoid", ".formats.ellipsoid"),
    "soft_ball": Parts(".problems.soft_ball.kind", ".models.soft_ball", ".formats.soft_ball"),
    "ball": Parts(".problems.ball.kind", ".models.ball", ".formats.ball"),
    "relative_margin": Parts(".problems.relative_margin.kind", ".models.model", ".formats.relative_margin"),
    "logistic": Parts(".problems.logistic.kind", ".models.model", ".formats.logistic"),
    "hard_or_soft": Parts(".problems.hard_or_soft.kind", ".models.model"),
    "outliers": Parts(".problems.outliers.kind", ".models.model", ".formats.outliers", ".problems.outliers.commands"),
    "kernel_fleet": Parts(".problems.kernel.fleet_kind", ".models.fleet"),
    "kernel": Parts(".problems.kernel.kind", ".models.kernel", ".formats.kernel", cli=".cli.reduce"),
    "ranking": Parts(".problems.ranking.kind", ".models.ranking", ".formats.ranking"),
    "structured": Parts(".problems.structured.kind", ".models.structured", ".formats.structured"),
    "user_structure": Parts(".problems.structured.kind", ".models.user_structure", ".formats.user_structure"),
    "crammer_singer": Parts(".problems.multiclass.kind", ".models.model", ".formats.crammer_singer"),
    "fleet": Parts(".problems.fleet.kind", ".models.fleet"),
    "soft_margin": Parts(".problems.soft.kind", ".models.model", ".formats.soft_margin"),
    "hard_margin": Parts(".problems.hard.kind", ".models.model", ".formats.hard_margin", cli=".cli.compare"),
}


def module(name: str) -> ModuleType:
    """The module that a line names."""
    return import_module(name, "coremargin")
