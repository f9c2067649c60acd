"""What a stream leaves behind: the rows that were asked about, a model of them that can be verified, and the claim."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.active.labels import LACKING
from coremargin.data.folder import replacing
from coremargin.data.owned import STORE, Kind
from coremargin.data.writer import StoreWriter
from coremargin.formats.current_answers import same
from coremargin.formats.local_path import local_path
from coremargin.maths.margin import is_certified
from coremargin.models.files import MODEL, check_outside
from coremargin.problems.active import model as several
from coremargin.problems.active.state import Scanned
from coremargin.problems.common.driver_rows import DriverRows
from coremargin.problems.common.map_rounding import widen_margin_bounds
from coremargin.problems.common.model import model_of as hyperplane_model
from coremargin.problems.common.result import Result
from coremargin.problems.hard.kind import HardMarginJob

if TYPE_CHECKING:
    from coremargin.data.arrays import ArraySource
    from coremargin.data.source import Source
    from coremargin.maths.rows import Rows
    from coremargin.models.active_classes import ActiveClassesModel
    from coremargin.models.model import Model
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.spec import ActiveJob
    from coremargin.problems.active.state import ActiveState

CLAIM = "claim.txt"
#: What a hard margin of the rows that were asked about is asked for as the stream was.
SAME = ("epsilon", "intercept", "map", "components", "gamma", "degree", "coef0", "map_seed")
_PLACES = {"rows.zarr": STORE, "trial.zarr": STORE, "model": MODEL}
#: Only to be made: nothing there is ever replaced.
LEFT = Kind(
    what="what a stream has left",
    records={},
    files="|".join([CLAIM, *(f"{name}/(?:{kind.files})" for name, kind in _PLACES.items())]).replace(".txt", r"\.txt"),
    folders="|".join([*_PLACES, *(f"{name}/(?:{kind.folders})" for name, kind in _PLACES.items())]),
)


class Trial:
    """Rows that tried a hypothesis, none of them wrong so far, and their codes."""

    def __init__(self) -> None:
        self._parts: list[DriverRows] = []
        self.codes: list[int] = []

    def __len__(self) -> int:
        return len(self.codes)

    def add(self, row: DriverRows, code: int) -> None:
        """One more."""
        self._parts.append(row)
        self.codes.append(code)

    def rows(self, others: Sequence[DriverRows] = ()) -> DriverRows:
        """All of them, and others."""
        return DriverRows.concatenate([*self._parts, *others])

    def known(self) -> dict[int, int]:
        """Codes by row."""
        return {int(part.ids[0]): code for part, code in zip(self._parts, self.codes, strict=True)}


def model_of(
    problem: ActiveMargin, state: ActiveState, source: Source, classes: list[Any], job: ActiveJob
) -> Model | ActiveClassesModel:
    """The hard margin of the rows that a state knows, which are those of the source, mapped where rows are.

    classes: (negative, positive).

    Of several classes a model as campaigns have it, of rows that are all answered.
    """
    answered = replace(state.answered, ids=np.arange(len(state.answered)))
    if problem.planes > 1:
        nobody = Scanned(np.full(problem.planes, np.inf), np.zeros(problem.classes + 1, np.int64))
        status = "certified" if state.status == "running" else state.status
        alone = replace(state, status=status, answered=answered, scanned=nobody)
        return several.model_of(replace(problem, source=source), alone, classes, job.parameters(), None)
    ended, lower, upper = several.ENDED.get(state.status, "stopped"), float(state.lower[0]), float(state.upper[0])
    meet = ended == "not_separable"
    if not meet:
        ended = "certified" if is_certified(lower, upper, problem.epsilon) else "stopped"
    found = Result(
        status=ended,
        reason="",
        kind="not_separable" if meet else "margin",
        w=state.hypothesis.w[0],
        b=float(state.hypothesis.b[0]),
        lower=None if meet else lower,
        upper=upper,
        proof=answered.take(answered.support).against(0),
        final=True,
    )
    same = {name: getattr(job, name) for name in SAME}
    asked = HardMarginJob(store=Path("rows.zarr"), out=Path("model"), **same)
    negative, positive = (_place(source, label) for label in classes)
    claimed = widen_margin_bounds(found, source, problem.epsilon)
    return hyperplane_model(source, (positive, negative), claimed, "hard_margin", asked.parameters())


def _place(source: Source, label: Any) -> int:
    """The code that a label has."""
    return next(code for code, known in enumerate(source.classes) if same(known, label))


def claim_of(status: str, evidence: Mapping[str, Any], *, rows: int, asked: int, unsure: int, lacks: bool) -> str:
    """What is claimed of the rows of a stream, and on what that rests, for people.

    lacks: whether a trial has ended that found no row of a class that no answer has.
    """
    sure, drawn = evidence["confidence"], evidence["draws"]
    ended = {
        "certified": "all is shown that was asked for",
        "contradiction": "the answers contradict each other, or no hyperplane can tell the classes apart",
        "stalled": "float64 cannot tell the remaining rows apart",
        "running": "it goes on",
    }.get(status, LACKING if lacks else "the rows ended before all was shown that was asked for")
    lines = [
        f"{status}: {ended}; {asked:,} labels of {rows:,} rows were asked for",
        (
            f"labels: at most a share {evidence['error_bound']:.4g} of the rows to come is labelled wrongly (attempt "
            f"{evidence['attempt']}: {drawn:,} rows tried, none of them wrong)"
        ),
        (
            f"margin: at most a share {evidence['slab_bound']:.4g} of them lies within the slab "
            f"({evidence['slab_rows']:,} in succession did not)"
        ),
        f"each with confidence {sure}, and only if the rows were drawn from one source, independently of each other,",
        "or shuffled: the rows are gone, and nobody can check that, nor these numbers",
        "what can be checked: the margin of the rows that the model was made of, `coremargin verify model rows.zarr`;",
        "and that it has those right that tried it, `coremargin evaluate model trial.zarr`",
    ]
    if unsure:
        lines.insert(3, f"of rows such as the {unsure:,} that nobody could label nothing is claimed")
    return "\n".join(lines) + "\n"


def save(
    path: str | os.PathLike[str],
    model: Model | ActiveClassesModel,
    source: ArraySource,
    trial: Trial,
    claim: str,
    classes: list[Any],
) -> None:
    """Write the folder of ``StreamLearner.save``, whole or not at all. Raises UsageError, OutputError."""
    place = Path(os.path.realpath(local_path(path)))
    check_outside(place)
    names = source.classes
    with replacing(place, LEFT, overwrite=False) as aside:
        rows = source.rows_at(np.arange(source.rows))
        _store(aside / "rows.zarr", source, rows[0].astype(source.dtype), [names[code] for code in rows[1]])
        if len(trial):
            labels = [classes[code] for code in trial.codes]
            _store(aside / "trial.zarr", source, trial.rows().rows.astype(source.dtype), labels)
        (aside / CLAIM).write_text(claim, encoding="utf-8")
        model.save(aside / "model")


def _store(place: Path, like: ArraySource, rows: Rows, labels: list[Any]) -> None:
    """A store of rows as ``like`` has them."""
    with StoreWriter.create(place, features=like.features, dtype=like.dtype.name, sparse=like.sparse) as writer:
        writer.write(rows, labels, None, origin="a stream")
