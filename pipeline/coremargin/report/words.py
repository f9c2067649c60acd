"""Words of the field that terminals and pages use, each explained in one way."""

from __future__ import annotations

POOL = "rows that the driver keeps in memory, one by one, and solves on"

_CARRY = "rows that carry the proof: they alone show that no more is possible"
_NEAR = "rows near the margin with dual weights of their own: the proof rests on them, and on sums over all others"


def coreset(*, value: bool) -> str:
    """What the coreset is of a certificate about a margin, or about the value of an objective."""
    return _NEAR if value else _CARRY


#: For templates.
GLOSSARY = {"pool": POOL, "coreset": _CARRY, "near": _NEAR}
