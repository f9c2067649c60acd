"""A search, and the proof of its bound, as plain arrays and back, to the bit: for checkpoints and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.named import below, under
from coremargin.maths.outliers.certificates import Certificates, Verdict
from coremargin.maths.outliers.explore import Candidate, Leaves
from coremargin.maths.outliers.heuristic import Found
from coremargin.maths.outliers.published import Enumerated, Published
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.outliers.search import Level, Search

Arrays = dict[str, NDArray[Any]]

_NUMBERS = ("k", "epsilon", "radius", "upper", "batch", "step", "waited", "nodes", "work")
_COUNTS = ("k", "batch", "waited", "nodes", "work")
_ENUMERATED = ("k", "turn", "number", "subsets", "ended")
_STATUSES = ("open", "done", "bounded", "full")


def ragged(name: str, lists: Ragged) -> Arrays:
    """Lists of different length as one array, and where each ends in ``NAME_ends``."""
    return {name: lists.values, f"{name}_ends": lists.ends}


def unragged(name: str, arrays: Mapping[str, NDArray[Any]]) -> Ragged:
    """Inverse of ``ragged``."""
    return Ragged(arrays[name], arrays[f"{name}_ends"])


def certificates_to_arrays(certificates: Certificates) -> Arrays:
    """The rows, weights and values of certificates."""
    return {
        **ragged("rows", certificates.rows), **ragged("weights", certificates.weights),
        "values": certificates.values, "since": certificates.since, "uses": certificates.uses,
    }  # fmt: skip


def certificates_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Certificates:
    """Inverse of ``certificates_to_arrays``."""
    numbers = (arrays[name] for name in ("values", "since", "uses"))
    return Certificates(unragged("rows", arrays), unragged("weights", arrays), *numbers)


def leaves_to_arrays(leaves: Leaves) -> Arrays:
    """The paths of the leaves, and the numbers of the certificates that end them."""
    return {**ragged("paths", leaves.paths), **ragged("proofs", leaves.proofs)}


def leaves_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Leaves:
    """Inverse of ``leaves_to_arrays``."""
    return Leaves(unragged("paths", arrays), unragged("proofs", arrays))


def search_to_arrays(search: Search, *, own: bool = True) -> Arrays:
    """Everything that a search knows; own: False leaves out its certificates, which are another's."""
    arrays: Arrays = {name: np.array(getattr(search, name), np.float64) for name in _NUMBERS}
    arrays |= {"trace": np.array(search.trace, np.float64).reshape(-1, 3)}
    arrays |= {"status": np.array(_STATUSES.index(search.status))}
    arrays |= {"best_w": search.best.w, "best_b": np.array(search.best.b), "best_margin": np.array(search.best.margin)}
    arrays |= under("certificates", certificates_to_arrays(search.certificates)) if own else {}
    arrays |= under("candidates", _candidates_to_arrays(search.candidates, len(search.best.w)))
    for name, level in (("level", search.level), ("paused", search.paused)):
        arrays |= under(name, {} if level is None else _level_to_arrays(level))
    if search.proof is not None:
        arrays |= under("proof", leaves_to_arrays(search.proof))
    return arrays


def search_from_arrays(arrays: Mapping[str, NDArray[Any]], others: Certificates | None = None) -> Search:
    """Inverse of ``search_to_arrays``; others: the certificates of a search that has none of its own."""
    numbers: dict[str, Any] = {name: float(arrays[name]) for name in _NUMBERS}
    numbers |= {name: int(numbers[name]) for name in _COUNTS}
    paused, proof, own = (below(name, arrays) for name in ("paused", "proof", "certificates"))
    return Search(
        **numbers,
        best=Found(arrays["best_w"], float(arrays["best_b"]), float(arrays["best_margin"])),
        status=_STATUSES[int(arrays["status"])],
        trace=tuple((int(work), lower, upper) for work, lower, upper in arrays["trace"].tolist()),
        certificates=certificates_from_arrays(own) if own or others is None else others,
        candidates=_candidates_from_arrays(below("candidates", arrays)),
        level=_level_from_arrays(below("level", arrays)),
        paused=_level_from_arrays(paused) if paused else None,
        proof=leaves_from_arrays(proof) if proof else None,
    )


def enumerated_to_arrays(enumerated: Enumerated) -> Arrays:
    """Everything that an enumeration knows."""
    best = enumerated.found
    return {
        "counts": np.array([getattr(enumerated, name) for name in _ENUMERATED], np.int64),
        "numbers": np.array([enumerated.epsilon, enumerated.radius, best.b, best.margin]),
        "algorithm": np.array(get_args(Published).index(enumerated.algorithm)),
        "sizes": np.array(enumerated.sizes, np.int64), "w": best.w,
    }  # fmt: skip


def enumerated_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Enumerated:
    """Inverse of ``enumerated_to_arrays``."""
    counts = dict(zip(_ENUMERATED, arrays["counts"].tolist(), strict=True))
    epsilon, radius, b, margin = arrays["numbers"].tolist()
    return Enumerated(
        **counts | {"ended": bool(counts["ended"])}, epsilon=epsilon, radius=radius,
        algorithm=get_args(Published)[int(arrays["algorithm"])], sizes=tuple(arrays["sizes"].tolist()),
        found=Found(arrays["w"], b, margin),
    )  # fmt: skip


def _level_to_arrays(level: Level) -> Arrays:
    arrays = {"numbers": np.array([level.share, level.worst, level.work]), **ragged("open", level.open)}
    return arrays if level.leaves is None else arrays | leaves_to_arrays(level.leaves)


def _level_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Level:
    share, worst, work = arrays["numbers"].tolist()
    return Level(
        share, unragged("open", arrays), worst, leaves_from_arrays(arrays) if "paths" in arrays else None, int(work)
    )


def _candidates_to_arrays(candidates: Sequence[Candidate], features: int) -> Arrays:
    return {
        **ragged("paths", Ragged.of(c.path for c in candidates)),
        **ragged("rows", Ragged.of(c.verdict.rows for c in candidates)),
        **ragged("weights", Ragged.of((c.verdict.weights for c in candidates), np.float64)),
        "points": np.array([c.verdict.point for c in candidates]).reshape(-1, features),
    }


def _candidates_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> tuple[Candidate, ...]:
    parts = zip(
        unragged("paths", arrays), unragged("rows", arrays), unragged("weights", arrays), arrays["points"], strict=True
    )
    return tuple(Candidate(tuple(path.tolist()), Verdict(False, rows, w, point)) for path, rows, w, point in parts)
