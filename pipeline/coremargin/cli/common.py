"""Shared parts of all commands: errors and exit codes, grouped help, option types, progress."""

from __future__ import annotations

import io
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from coremargin.cli.printing import print_error, print_lines
from coremargin.engine.outputs import lost_output
from coremargin.engine.resources import prepare_command
from coremargin.errors import CoremarginError, Interrupted, OutputError, RunError, SpecError, UsageError, machine_limit
from coremargin.formats.local_path import local_path
from coremargin.formats.location import is_remote, last_name, location, parse_storage_options, with_storage_options
from coremargin.interruption import command_was_interrupted
from coremargin.spec import format_seconds, format_size
from coremargin.units import parse_size

SECTIONS = ("Data", "Train", "Models", "Registry")  #: order of the headings in ``coremargin --help``; others follow

BROKEN_PIPE = 141
PLAIN_SECONDS = 5.0  #: without a terminal there is at most one line of progress in this many seconds


class Main(click.Group):
    """The command ``coremargin``: help in sections; errors become one line ``error: ...`` and an exit code."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections: dict[str, list[str]] = {}

    def add_to_section(self, section: str, command: click.Command) -> None:
        """Register a command under a heading. Raises UsageError if its name is taken."""
        if command.name in self.commands:
            raise UsageError(
                f"coremargin {command.name}: two commands have this name, one of them of a kind in "
                f"formats/kinds.py; rename the newer one"
            )
        self.add_command(command)
        self._sections.setdefault(section, []).append(str(command.name))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Commands in the order of the help."""
        order = {name: place for place, name in enumerate(SECTIONS)}
        sections = sorted(self._sections, key=lambda name: order.get(name, len(order)))
        return [command for section in sections for command in self._sections[section]]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One definition list per section."""
        names = self.list_commands(ctx)
        width = max((len(name) for name in names), default=0)
        order = {name: place for place, name in enumerate(SECTIONS)}
        for section in sorted(self._sections, key=lambda name: order.get(name, len(order))):
            commands = [self.commands[name] for name in self._sections[section]]
            limit = formatter.width - width - 6
            with formatter.section(section):
                formatter.write_dl([(str(c.name).ljust(width), c.get_short_help_str(limit)) for c in commands])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        prepare_command(str(ctx.info_name))
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # click would print an empty line
            raise Interrupted("interrupted") from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run; standalone, every error ends the process with its exit code."""
        call = super().main
        if not standalone_mode:
            return call(args, prog_name or self.name, complete_var, standalone_mode=False, **extra)
        _escape_unencodable()
        code = _exit_code(lambda: call(args, prog_name or self.name, complete_var, standalone_mode=False, **extra))
        sys.exit(code or _output_exit_code())


#: Headings of the options of a command, in this order, after its most important ones. "Other options" are in none.
OPTION_GROUPS: dict[str, tuple[str, ...]] = {
    "Problem": (
        "--no-intercept",
        "--class-weight",
        "--folds",
        "--fold-seed",
        "--choose",
        "--outliers",
        "--outlier-search",
        "--relative-margin",
        "--strategy",
        "--centre",
        "--pick",
        "--scaling",
        "--method",
        "--hypothesis",
        "--multi-class",
        "--error",
        "--confidence",
        "--by-class",
        "--loss",
        "--C",
        "--classes",
        "--epsilon",
        "--trial",
        "--seed",
    ),
    "Kernels and feature maps": (
        "--kernel",
        "--kernel-error",
        "--map",
        "--components",
        "--gamma",
        "--degree",
        "--coef0",
        "--map-seed",
    ),
    "Labels and rows of files": (
        "--label",
        "--labels",
        "--new-labels",
        "--only",
        "--unlabelled",
        "--weights",
        "--key",
        "--group",
        "--append",
    ),
    "Columns of files": (
        "--drop",
        "--categorical",
        "--categories",
        "--unknown",
        "--missing",
        "--dates",
        "--date-format",
        "--text",
        "--columns-of",
        "--names",
    ),
    "How files are written": (
        "--format",
        "--delimiter",
        "--header",
        "--decimal",
        "--thousands",
        "--na-values",
        "--no-default-na",
        "--features",
        "--zero-based",
    ),
    "The store": ("--dtype", "--sparse", "--compression", "--chunk-size"),
    "Resources and limits": (
        "--cluster",
        "--workers",
        "--memory",
        "--storage-option",
        "--max-scans",
        "--time-limit",
        "--sample",
        "--block",
        "--keep-for-retraining",
    ),
    "Run and output": ("--resume", "--restart", "--overwrite", "--dry-run", "--json", "--quiet", "--help"),
}


class GroupedCommand(click.Command):
    """A command with many options: its help shows the most important ones first, the others in groups."""

    def __init__(self, *args: Any, important: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.important = important

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One definition list per group."""
        options = [found for found in self.get_params(ctx) if isinstance(found, click.Option)]
        shown = {option.opts[-1]: record for option in options if (record := option.get_help_record(ctx))}
        width = min(30, max(len(usage) for usage, _ in shown.values()))  # click breaks the line after longer ones
        # `ingest` has an option --only of its own, about rows of files.
        one_class = ("--one-class", "--only", "--nu") if "--one-class" in shown else ()
        groups = {
            "Options": tuple(self.important),
            "One class": one_class,
            **OPTION_GROUPS,
            "Other options": tuple(shown),
        }
        for title, names in groups.items():
            records = [
                (usage.ljust(width), text) for usage, text in (shown.pop(name) for name in names if name in shown)
            ]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _escape_unencodable() -> None:
    """Escape characters that the encoding of the output lacks, such as those of file names."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _exit_code(run: Callable[[], Any]) -> int:
    """Run, and return the exit code; unexpected errors keep their traceback."""
    try:
        result = run()
    except (click.Abort, KeyboardInterrupt):
        return _interrupted("interrupted")
    except Interrupted as error:
        return _interrupted(str(error))
    except Exception as error:
        if command_was_interrupted():  # a KeyboardInterrupt may have caused another error
            return _interrupted("interrupted")
        code = _report_error(machine_limit(error) or error, getattr(error, "__notes__", ()))
        if code is None:
            raise
        return code
    if command_was_interrupted():
        return _interrupted("interrupted; the work so far is saved")
    return result if isinstance(result, int) else 0


def _interrupted(message: str) -> int:
    # a pending read of Zarr is discarded with the traceback
    warnings.filterwarnings("ignore", "coroutine '.*' was never awaited", RuntimeWarning)
    print_error(message)
    return Interrupted.exit_code


def _report_error(error: Exception, notes: Sequence[str]) -> int | None:
    """Print an expected error, and return its exit code; None for any other."""
    if isinstance(error, CoremarginError):
        print_error(str(error), *notes)
        return error.exit_code
    if isinstance(error, NoArgsIsHelpError):
        print_lines(*error.format_message().split("\n"), err=True)
        return error.exit_code
    if isinstance(error, click.UsageError):
        hint = f"\nsee `{error.ctx.command_path} --help`" if error.ctx is not None else ""
        print_error(error.format_message() + hint)
        return error.exit_code
    if isinstance(error, click.ClickException):
        print_error(error.format_message())
        return error.exit_code
    if (
        isinstance(error, OSError) and error.filename is not None
    ):  # a name that is too long, a loop of links, missing permissions
        print_error(f"{os.fsdecode(error.filename)}: {error.strerror}; give a path that this user can open")
        return RunError.exit_code
    return None


def _output_exit_code() -> int:
    """The exit code of a successful command, which depends on whether its output was written."""
    lost = lost_output()
    if lost is None:
        return 0
    if isinstance(lost, BrokenPipeError):  # as with `| head`
        return BROKEN_PIPE
    print_error(f"standard output cannot be written: {lost.strerror}; the command has finished, its report is lost")
    return OutputError.exit_code


def number(value: str | int) -> int:
    """Parse an integer such as 1000000, 1_000_000 or 1e6. click shows the name of this function."""
    text = str(value).replace("_", "").replace(",", "")
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if found < 0 or not found.is_integer():
        raise click.BadParameter(f"{value!r} is not a whole number: write 1000000, 1_000_000 or 1e6")
    return int(found)


def size(value: str | int) -> int:
    """Parse a size such as "8 MiB" or "30 GB". click shows the name of this function."""
    try:
        return parse_size(value)
    except SpecError as error:
        raise click.BadParameter(str(error)) from error


class LocalPath(click.Path):
    """A local path (formats/local_path.py)."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Called by click."""
        return super().convert(local_path(value), param, ctx)


class StorePath(LocalPath):
    """A local path, or an address with the options of ``storage_option``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Called by click."""
        if not is_remote(value):
            return super().convert(value, param, ctx)
        return location(value, {} if ctx is None else storage_options_of(ctx))


class ModelPath(StorePath):
    """The folder of a model, or its address; REGISTRY@ALIAS is resolved once."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Called by click."""
        place = super().convert(value, param, ctx)
        if "@" not in last_name(place):
            return place
        from coremargin.formats.versions import resolve_model

        return resolve_model(place)


PATH = LocalPath()  #: type of arguments and options that name a file or a folder
STORE = StorePath()  #: type of arguments that name a store that is read, or where a model is written
MODEL = ModelPath()  #: type of arguments that name a model
WHOLE = number  #: type of options that take a count
BYTES = size  #: type of options that take a size


def _cluster(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Any:
    """Check the value before anything else runs."""
    from coremargin.engine.clusters.specs import local_cluster

    return value if value is None else local_cluster(value)


cluster_option = click.option(
    "--cluster",
    metavar="FILE|ADDRESS",
    callback=_cluster,
    help="Where to run: a file of cluster/, tcp://host:port, embedded or threads.",
)


class _StorageOption(click.Option):
    """Options of the addresses of a command, which are converted later."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Called by click; opts: the words of all options and arguments."""
        result = super().handle_parse_result(ctx, opts, args)
        ctx.meta[_STORAGE_OPTIONS] = options = parse_storage_options(opts.get(str(self.name)) or ())
        given = [opts.get(name) for name in ("path", "store", "model", "out", "labels", "weights", "names")]
        words = [word for word in (*given, *(opts.get("sources") or ())) if isinstance(word, str)]
        if words:
            with_storage_options(options, *words)  # raises UsageError where none of them is an address
        return result


def storage_options_of(context: click.Context) -> dict[str, str]:
    """What ``storage_option`` was given."""
    found: dict[str, str] = context.meta.get(_STORAGE_OPTIONS, {})
    return found


_STORAGE_OPTIONS = f"{__name__}.storage_options"
storage_option = click.option(
    "--storage-option",
    metavar="KEY=VALUE",
    multiple=True,
    is_eager=True,
    expose_value=False,
    cls=_StorageOption,
    help="Option of all addresses, such as region, endpoint or skip_signature; repeatable.",
)


def locate(context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    """For options whose text may be an address: with the options of ``storage_option``."""
    return location(value, storage_options_of(context)) if is_remote(value) else value


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only the result and errors.")


def _gamma(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | float | None:
    try:
        return value if value in (None, "scale") else float(value)
    except ValueError:
        raise click.BadParameter(f"expected scale or a number, found {value!r}") from None


cost_option = click.option(
    "--C", "C", type=float, help="Select models by C, if there are several.  [default: the selected one]"
)
gamma_option = click.option(
    "--gamma",
    metavar="scale|NUMBER",
    callback=_gamma,
    help="Select models by gamma, if there are several.  [default: the selected one]",
)


def _function(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Any:
    """Import the named function, which the user of the command has chosen, not a model."""
    if value is None:
        return None
    from coremargin.models.function import imported

    return imported(value)


kernel_option = click.option(
    "--kernel", metavar="MODULE:FUNCTION", callback=_function, help="The kernel function of a model that has one."
)


def _structure(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Any:
    """Import the named structure, as ``_function``."""
    if value is None:
        return None
    from coremargin.models.function import imported_structure

    return imported_structure(value)


structure_option = click.option(
    "--structure", metavar="MODULE:NAME", callback=_structure, help="Your structure, of a model trained with one."
)


@contextmanager
def compiler_announced(*, quiet: bool) -> Iterator[None]:
    """Announce compilations, unless quiet."""
    if quiet:
        yield
        return
    from coremargin.maths.jit import watched_compiler

    with watched_compiler(lambda: print_lines(COMPILING, err=True)):
        yield


COMPILING = "compiling, once on this machine: this may take a minute"

Advance = Callable[[str, int, int | None, str], None]  #: (activity, bytes done, bytes in total, detail)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Advance | None]:
    """Show progress: a bar on a terminal, lines now and then elsewhere; None when quiet."""
    with compiler_announced(quiet=quiet):
        if quiet:
            yield None
        elif sys.stderr.isatty():
            yield from _bar()
        else:
            yield _plain()


def _bar() -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Bytes per second in the binary units of everything else that we print."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{format_size(speed)}/s" if speed else "")

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),  # so that all of a line fits into 80 columns
        DownloadColumn(binary_units=True),
        Rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
    )
    tasks: MutableMapping[str, Any] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def advance(what: str, done: int, total: int | None, detail: str) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total, detail=detail)
            bar.update(tasks[what], completed=done, total=total, detail=detail)

        yield advance


def _plain() -> Advance:
    started = last = time.monotonic()

    def advance(what: str, done: int, total: int | None, detail: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PLAIN_SECONDS:
            last = now
            share = f"{done / total:4.0%} " if total else ""
            rate = f"{format_size(done / (now - started))}/s"
            left = f", {format_seconds((now - started) * (total - done) / done)} left" if total and done else ""
            print_lines(f"{what}: {share}{format_size(done)}, {detail}, {rate}{left}", err=True)

    return advance
