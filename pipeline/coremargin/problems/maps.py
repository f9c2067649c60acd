"""What jobs say of a feature map: words of the command line, and what does not go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coremargin.formats.limits import GAMMAS
from coremargin.formats.map_asked import KEYS

#: What machines with kernels have by the same names.
_SHARED = ("gamma", "degree", "coef0")


def gamma_of(text: str) -> float | str | list[float | str]:
    """The word scale, a number, or several with commas. Raises ValueError."""
    try:
        found = [word if word == "scale" else float(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"expected scale, a number above 0, or several as in 0.1,1; found {text!r}") from None
    return found if len(found) > 1 else found[0]


def check_map_options(job: Any) -> None:
    """Refuse parameters of a map without one, or of another one, and numbers out of range. Raises ValueError."""
    for name in ("components", "gamma", "degree", "coef0", "map_seed"):
        found = getattr(job, name)
        if found is None:
            continue
        if job.map is None:
            raise ValueError(
                f"{name}: only a map has it, found {found!r}; give map too: {', '.join(KEYS)}"
                f"{'; or kernel: it belongs to a machine with a kernel, too' if name in _SHARED else ''}"
            )
        if name not in KEYS[job.map]:
            raise ValueError(f"{name}: only a polynomial map has it, found {found!r}; map is {job.map!r}")
    if job.map in ("nystroem", "fourier") and job.components is None:
        raise ValueError(f"components: expected how many features mapped rows are to have, with map {job.map!r}")
    check_gammas(job.gammas)
    if job.coef0 is not None and not 0 <= job.coef0 <= GAMMAS[1]:
        raise ValueError(
            f"coef0: expected a number from 0 to {GAMMAS[1]:g}; found {job.coef0}: a polynomial of a negative one is "
            f"no product of mapped rows"
        )


def check_gammas(gammas: Sequence[str | float]) -> None:
    """Refuse values of gamma that are out of range, or said twice. Raises ValueError."""
    for gamma in gammas:
        if gamma != "scale" and not GAMMAS[0] <= float(gamma) <= GAMMAS[1]:
            raise ValueError(
                f"gamma: expected scale, or a number above 0, from {GAMMAS[0]:g} to {GAMMAS[1]:g}; found {gamma}"
            )
    if not gammas or len(set(gammas)) < len(gammas):
        raise ValueError(f"gamma: expected different numbers; found {list(gammas)}")
