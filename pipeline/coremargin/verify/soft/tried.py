"""What is claimed of the hard margin that was tried before there was a loss: the hulls of these rows meet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET
from scipy import sparse

from coremargin.verify.checks import Check
from coremargin.verify.claim import Claim
from coremargin.verify.feature_map import SPREAD
from coremargin.verify.hard.dual import dual
from coremargin.verify.store import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.soft_margin import SoftMargin
    from coremargin.verify.rows import Chunk


def tried_claim(record: SoftMargin, files: ModelFiles, shared: Mapping[str, Any]) -> Claim | None:
    """The claim of that margin, whose rows are for the scan to bring; shared: the fields of the model's own claim."""
    if record.tried is UNSET:
        return None
    arrays = files.arrays
    own = {
        "status": "not_separable",
        "kind": "not_separable",
        "lower": None,
        "upper": record.tried.upper,
        "ratio": None,
        "soft": False,
        "ids": arrays["tried_ids"],
        "y": arrays["tried_y"].astype(np.int64),
        "alpha": arrays["tried_alpha"],
        "x": np.zeros((record.tried.coreset_rows, 0)),
    }
    claim = Claim(**{**shared, **own})
    return claim.tightened(SPREAD * claim.moved)


@dataclass(frozen=True)
class Part:
    """The rows of a chunk: places (m,) in the claim, x (m, d), and the signs (m,) that the store has for them."""

    places: np.ndarray
    x: Any
    signs: np.ndarray


class TriedScan:
    """The rows of the proof as the store has them."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self._parts: list[Part] = []

    def ask(self, chunk: Chunk, signs: np.ndarray) -> Part:
        """Those of one chunk, whose rows have these signs."""
        local = self.claim.ids - chunk.start
        places = np.flatnonzero((local >= 0) & (local < len(signs)))
        return Part(places, chunk.x[local[places]].astype(np.float64), signs[local[places]])

    def add(self, part: Part) -> None:
        """Take the rows of one chunk."""
        if len(part.places):
            self._parts.append(part)

    def checks(self) -> list[Check]:
        """Whether they are rows of the store, and their hulls meet; after all chunks."""
        claim, parts = self.claim, self._parts
        places = np.concatenate([np.zeros(0, np.intp), *(part.places for part in parts)])
        signs = np.concatenate([np.zeros(0, np.int64), *(part.signs for part in parts)])
        missing = np.setdiff1d(np.arange(len(claim.ids)), places)
        other, none = places[signs == -claim.y[places]], places[signs == 0]
        kinds = ((missing, "not in the store"), (other, "of another class"), (none, "without label or weight"))
        problems = [f"{listed(claim.ids[rows].tolist())} {what}" for rows, what in kinds if len(rows)]
        text = "; ".join(problems) or f"all {len(places):,} rows of its proof are the store's, with its labels"
        found = [Check("hard margin", not problems, text)]
        if problems:
            return found
        x = [part.x for part in parts]
        rows = sparse.csr_array(sparse.vstack(x)) if sparse.issparse(x[0]) else np.concatenate(x)
        _, proven = dual(replace(claim, x=rows, y=claim.y[places], alpha=claim.alpha[places], ids=claim.ids[places]))
        return found + [replace(check, text=f"of the hard margin that was tried: {check.text}") for check in proven]
