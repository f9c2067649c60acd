"""A stream as a job: rows from pipes, files and growing folders, few of which are queried, until a proof or the end.

The folder of a stream has ``stream.toml``, what was asked for; ``answers.jsonl``, the log of answers that people gave,
each on disk before the next question; ``state.npz``, from which the job continues after a kill, with the same result;
and ``result``, once it ends: see ``StreamLearner.save``. Memory holds the queried rows and a few batches.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from msgspec import Meta, structs

from coremargin.active.answers import Annotation, match_label, name_of
from coremargin.active.log import Log, entry_of
from coremargin.active.stream_learner import StreamLearner
from coremargin.active.stream_rows import PIPE, LabelledBatch, Position, StreamOptions, StreamSource, read_sources
from coremargin.blas import one_blas_thread
from coremargin.data.files import aside_of, output_errors, write_whole
from coremargin.data.folder import write_arrays
from coremargin.data.locked import Locked
from coremargin.errors import DataError, SpecError, UsageError
from coremargin.formats.choices import MapKind
from coremargin.formats.limits import MOST_ROWS
from coremargin.formats.local_path import local_path
from coremargin.formats.npz import read_arrays
from coremargin.spec import Spec, convert, dump, load, read_toml, resolve_path

if TYPE_CHECKING:
    from coremargin.problems.common.driver_rows import DriverRows

SETTINGS, ANSWERS, STATE, RESULT = "stream.toml", "answers.jsonl", "state.npz", "result"
_EVERY_S = 2.0  #: between two states, if nothing was asked meanwhile
_LEARNER = (
    "classes", "epsilon", "error", "confidence", "intercept", "map", "components", "gamma", "degree", "coef0",
    "map_seed",
)  # fmt: skip
Ask = Callable[[int, np.ndarray, Sequence[str], list[Any]], Any]


class StreamJob(Spec, tag_field="job", tag="stream", frozen=True, kw_only=True):
    """Learn from rows that are not stored; ``out`` is the folder of the stream.

    rows: files, folders and pipes, which are read in turn; "-" is standard input. label: the column of the labels;
    None: a person is asked. batch: rows that are looked at together. follow: wait for files that are added. pipe: to
    continue, whether pipes begin again with the rows that were seen, which are skipped and compared ("from-start"), or
    go on after them ("new-rows").
    """

    rows: Annotated[list[str], Meta(min_length=1)]
    out: Path
    label: str | int | None = None
    drop: list[str | int] = []  # noqa: RUF012 - msgspec gives every spec its own copy of a default
    delimiter: str = ","
    header: bool | None = None
    batch: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)], Meta(description="Rows of the stream that are looked at together.")
    ] = 1000
    follow: bool = False
    pipe: Literal["from-start", "new-rows"] | None = None
    classes: list[str | int | float | bool] | None = None
    epsilon: Annotated[float, Meta(description="Share of the best margin that may be missed.")] = 0.1
    error: Annotated[float, Meta(description="Share of the rows that may be labelled wrongly.")] = 0.01
    confidence: Annotated[float, Meta(description="How sure that share is to be.")] = 0.99
    intercept: Annotated[bool, Meta(description="A hyperplane through the origin.")] = True
    map: Annotated[MapKind | None, Meta(description="Map rows to features of a kernel.")] = None
    components: int | None = None
    gamma: float | Literal["scale"] | None = None
    degree: int | None = None
    coef0: float | None = None
    map_seed: int | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        for name in self.rows:
            local_path(name)  # an address is refused
        if len(set(self.rows)) < len(self.rows):
            raise ValueError("rows: expected different sources, found one twice; name it once")
        if self.follow and len(self.rows) > 1:
            raise ValueError("follow: expected one folder, found more sources; follow each in a stream of its own")
        if self.follow and self.rows[0] == PIPE:
            raise ValueError("follow: expected a folder, found standard input, which ends when it is closed")
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '\r\n"':
            raise ValueError(
                f"delimiter: expected one ASCII character, no quote or line break, found {self.delimiter!r}"
            )

    def learner(self) -> StreamLearner:
        """What learns, without any row. Raises SpecError for parameters out of range."""
        return StreamLearner(**{name: getattr(self, name) for name in _LEARNER})


def load_stream_job(path: Path) -> StreamJob | None:
    """The stream in a job file; None for a job of another kind. Raises SpecError."""
    options = read_toml(path)
    if options.get("job") != "stream":
        return None
    if isinstance(options.get("rows"), str):
        options["rows"] = [options["rows"]]
    if isinstance(options.get("rows"), list):
        try:
            rows = [name if name == PIPE else str(resolve_path(name, path.parent)) for name in options["rows"]]
        except UsageError as error:
            raise SpecError(f"{path}: rows: {error}") from error
        options["rows"] = rows
    return convert(options, StreamJob, where=str(path), base=path.parent)


class LoggedLabels:
    """Labels of rows: of their column, or of a person, whose answers are logged and asked for once."""

    def __init__(self, log: Log | None, ask: Ask | None, learner: StreamLearner) -> None:
        self._log, self._ask, self._learner = log, ask, learner
        self._given = {} if log is None else {line.row: line for line in log.lines}
        self.batch, self.first, self.asked = LabelledBatch(np.zeros((0, 0)), None, (), Position()), 0, 0

    def __call__(self, asked: DriverRows) -> Iterator[Any]:
        """The label of each row, one by one."""
        for place, row in enumerate(asked.ids.tolist()):
            yield self._label(row, np.asarray(asked.rows[place]))

    def known(self, place: int, labels: Iterator[Any] | Sequence[Any]) -> list[tuple[int, Any]]:
        """None: labels are taken one by one."""
        del place, labels
        return []

    def _label(self, row: int, values: np.ndarray) -> Any:
        if self.batch.labels is not None:
            return self.batch.labels[row - self.first]
        name = hashlib.sha256(f"{row}:".encode() + values.tobytes()).hexdigest()[:32]
        line = self._given.get(row)
        if line is not None:
            if line.id != name:
                raise DataError(
                    f"row {row:,} of the stream: its answer in the log is about another row; give the same rows again"
                )
            return line.label
        if self._ask is None or self._log is None:
            raise UsageError("a person has to be asked, and there is none here; name the column of labels with --label")
        self.asked += 1
        found = self._ask(row, values, self.batch.features, self._learner.classes)
        if found is not None:
            found = match_label(found, self._learner.classes, f"row {row:,} of the stream")
        given = Annotation(row, found, "unsure" if found is None else "label", id=name)
        self._log.append([entry_of(given, name_of(None), "query", None, 0)])
        self._given[row] = self._log.lines[-1]
        return found


# The folder of a stream.


class StreamFolder:
    """The files of a stream; callers hold its lock. Raises DataError, UsageError."""

    def __init__(self, job: StreamJob) -> None:
        self.path, settings = job.out, job.out / SETTINGS
        made, answers = settings.exists(), job.out / ANSWERS
        found = load(settings, StreamJob) if made else job
        if made and ((job.out / STATE).exists() or (answers.exists() and answers.stat().st_size > 0)):
            same = set(job.__struct_fields__) - {"out", "follow", "pipe"}
            other = sorted(name for name in same if getattr(found, name) != getattr(job, name))
            if other:
                was, now = (getattr(one, other[0]) for one in (found, job))
                raise UsageError(
                    f"{job.out}: was begun with {other[0]} {was!r}, found {now!r}; give what it was begun with, or "
                    "choose another folder"
                )
        else:  # of a job whose rows could not be read, other options may follow
            left = aside_of(settings).name  # of a process that was killed here
            if not made and job.out.exists() and any(place.name != left for place in job.out.iterdir()):
                raise UsageError(f"{job.out}: expected the folder of a stream or nothing, found another; choose one")
            with output_errors(job.out):
                job.out.mkdir(parents=True, exist_ok=True)
            write_whole(settings, [dump(structs.replace(job, out=Path(), pipe=None)).encode()])
        if not (job.out / STATE).exists():
            with output_errors(job.out):
                answers.touch()
        first = hashlib.sha256(settings.read_bytes()).hexdigest()
        self.log = Log(answers, first, MOST_ROWS, job.classes)
        self.log.refresh()

    def load_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The arrays of the learner, and where the sources were; None at the beginning."""
        place = self.path / STATE
        if not place.exists():
            return None
        with place.open("rb") as file:
            arrays = read_arrays(file, str(place))
        where = json.loads(arrays.pop("sources").tobytes())
        known, hashes = where.get("answers", [0, ""]), self.log.answers.hashes
        if known[0] and (len(hashes) < known[0] or hashes[known[0] - 1] != known[1]):
            raise DataError(
                f"{self.path / ANSWERS}: expected the {known[0]:,} lines that {STATE} is about, found {len(hashes):,}, "
                f"or others: answers are gone; get a whole copy, or remove {STATE} as well to learn from those left"
            )
        return arrays, where

    def save_state(self, arrays: Mapping[str, np.ndarray], where: dict[str, Any]) -> None:
        """Write both at once. Raises OutputError."""
        written, hashes = io.BytesIO(), self.log.answers.hashes
        where = where | {"answers": [len(hashes), hashes[-1] if hashes else ""]}
        write_arrays(written, {**arrays, "sources": np.frombuffer(json.dumps(where).encode(), np.uint8)})
        write_whole(self.path / STATE, [written.getbuffer()])


def run_stream(
    job: StreamJob,
    *,
    ask: Ask | None = None,
    report: Callable[[StreamLearner], None] | None = None,
) -> StreamLearner:
    """Begin or continue a stream, until its claim is proven or its sources end, and write its result.

    Parameters
    ----------
    job : StreamJob
        What is asked for.
    ask : callable, optional
        Called with the number of a row, its values (d,), the names of the features and the known classes; returns the
        label, None for a row that cannot be labelled. Needed without a column of labels.
    report : callable, optional
        Called after each batch.

    Returns
    -------
    StreamLearner
        With its status and claim.

    Raises
    ------
    BadRow, DataError, LabelError
        As ``StreamLearner.learn``; or the rows that were seen before are others by now.
    UsageError
        The folder is one of another job; or it is not known whether a pipe goes on.
    """
    with Locked(job.out, "this stream"), one_blas_thread(), ExitStack() as context:
        learner, folder = job.learner(), StreamFolder(job)
        labels = LoggedLabels(folder.log, ask, learner)
        options = StreamOptions(job.label, tuple(job.drop), job.delimiter, job.header, job.batch, job.follow)
        state = folder.load_state()
        where: dict[str, Any] = {"turn": 0, "features": None, "positions": [Position().to_dict() for _ in job.rows]}
        if state is not None:
            arrays, where = state
            learner.restore(arrays)
        positions = [Position.from_dict(one) for one in where["positions"]]
        sources = [StreamSource(name, options, at) for name, at in zip(job.rows, positions, strict=True)]
        for source in sources:
            if source.is_pipe and (source.position != Position() or (state is None and folder.log.lines)):
                _continue_pipe(source, job.pipe, folder, learner)
            source.position = replace(source.position, ended=False)  # files may have come since
        saved = time.monotonic()
        batches = read_sources(sources if learner.status in ("running", "stopped") else (), where["turn"])
        for number, batch in context.enter_context(closing(batches)):  # threads end with it
            _check_features(where, batch, job.rows[number])
            labels.batch, labels.first, before = batch, learner.rows_seen, labels.asked
            if len(batch.rows):
                learner.take_batch(batch.rows, labels)
            where["positions"][number], where["turn"] = batch.position.to_dict(), (number + 1) % len(sources)
            if labels.asked > before or time.monotonic() - saved > _EVERY_S:
                _save(folder, learner, where)
                saved = time.monotonic()
            if report is not None:
                report(learner)
            if learner.has_ended:
                break
        _save(folder, learner, where)
        learner.finish()
        learner.refuse_missing_classes()
        learner.save(job.out / RESULT, overwrite=True)
        return learner


def _save(folder: StreamFolder, learner: StreamLearner, where: dict[str, Any]) -> None:
    if where["features"] is not None:
        folder.save_state(learner.to_arrays(), where)


def _check_features(where: dict[str, Any], batch: LabelledBatch, name: str) -> None:
    """Raises DataError for other columns than before, in whatever source."""
    if where["features"] is None and len(batch.rows):
        where["features"] = list(batch.features)
    if len(batch.rows) and where["features"] != list(batch.features):
        known, found = where["features"], batch.features
        at = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(known, found, strict=False)))
        raise DataError(
            f"{name}: expected the {len(known):,} columns of the rows before, in their order, found {len(found):,}; "
            f"they differ from number {at} on"
        )


def _continue_pipe(
    source: StreamSource, pipe: Literal["from-start", "new-rows"] | None, folder: StreamFolder, learner: StreamLearner
) -> None:
    last = max((line.row for line in folder.log.lines), default=-1)
    seen = max(learner.rows_seen, 1 + last)
    if pipe is None:
        raise UsageError(
            f"{folder.path}: {seen:,} rows of a pipe were seen before; say whether it begins with them again "
            "(from-start) or goes on after them (new-rows)"
        )
    source.continued = pipe == "new-rows"
    if source.continued:  # numbers of rows that were asked about and lost are not given again
        learner.rows_seen = seen
        source.position = Position(source.position.files)
