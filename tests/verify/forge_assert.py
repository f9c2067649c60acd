"""What tests of forgeries ask: is it refused, with an error of our own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from coremargin.cli import main
from coremargin.errors import ClaimRefuted, CoremarginError, DataError
from coremargin.models.registry import load
from coremargin.verify import verify
from forge_plans import Draft
from forge_run import Guard, asked, loaded

if TYPE_CHECKING:
    from click.testing import Result

    from forge_specimens import Specimen


def forged(specimen: Specimen, place: Path, change: Callable[[Draft], Any], below: str = "") -> Path:
    """A copy of a model, or of a fleet with one member, that is changed."""
    draft = Draft(specimen, below)
    change(draft)
    return with_files(specimen, place, draft.files())


def with_files(specimen: Specimen, place: Path, files: dict[str, bytes | None]) -> Path:
    """A copy of a model with other files; None: that one is missing."""
    for name, content in {**specimen.files, **files}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            (place / name).write_bytes(content)
    return place


def refused(model: Path, store: Path) -> str:
    """The words with which the verifier refuses; loading refuses with an error of our own, or loads."""
    with pytest.raises((ClaimRefuted, DataError)) as caught:
        verify(model, store, threads=1)
    assert caught.value.exit_code in (3, 4)
    loads(model)
    return str(caught.value)


def answer(model: Path, store: Path) -> str:
    """Whether it is "refused", else what happened: for tests that try many forgeries."""
    try:
        refused(model, store)
    except pytest.fail.Exception:
        return "accepted"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return f"{type(error).__name__}: {error}"
    return "refused"


def loads(model: Path) -> Any:
    """The model as everybody else gets it, None where it is refused."""
    try:
        return load(model)
    except CoremarginError:
        return None


def called(*words: Any) -> Result:
    """The command line in this process. Fails where it ends in a traceback, or prints what is not printable."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), f"{words[0]}: {done.exception!r}"
    assert all(line.isprintable() for line in done.output.split("\n")), f"{words[0]}: {done.output!r}"
    return done


def calm(model: Path, store: Path) -> str:
    """As ``answer``, of a verification and a loading that may not take long, nor much memory, nor wait for ever."""
    guard = Guard()
    with guard.watching():
        outcome, (_, wrong) = asked(guard, model, store), loaded(guard, model, show=True)
    return outcome.wrong or wrong or ("accepted" if outcome.answer == "accepted" else "refused")
