"""Messages about outliers: overlap, outlook of a search, published algorithms.

``figures`` are those of a round (``rounds.jsonl``) or of ``run.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coremargin.formats.choices import LOSS_TAKEN
from coremargin.maths.outliers.forecast import AHEAD


def describe_inseparable(k: int, least: int) -> str:
    """State that excluding k rows is proven not to be enough."""
    return f"excluding {k:,} rows cannot make the classes separable: at least {least:,} must be excluded (proven)"


def describe_search(bounds: str, figures: Mapping[str, Any]) -> str:
    """The progress of a search for the best rows to leave out, in one line."""
    nodes = f"{figures['nodes']:,} nodes" if "nodes" in figures else "begins"
    return "; ".join([f"search: {bounds}", nodes, *describe_outlook_briefly(figures), "Ctrl-C stops here"])


def describe_overlap(figures: Mapping[str, Any]) -> str:
    """Describe a proven or likely overlap of more than k rows, and what helps; "" without one."""
    k, wrong, least = (figures.get(name) or 0 for name in ("outliers", "wrong", "least"))
    if least > k:
        return f"{describe_inseparable(k, least)}; --loss {LOSS_TAKEN} handles overlap"
    if wrong <= k:
        return ""
    proven = f" and at least {least:,} rows must be excluded (proven)" if least else ""
    return (
        f"excluding {k:,} rows may not make the classes separable: {wrong:,} labels look wrong{proven}; "
        f"--loss {LOSS_TAKEN} handles overlap"
    )


def describe_work_bounds(run: Mapping[str, Any], nodes: int) -> str:
    """Lemma 5.2 of Har-Peled, Roth and Zimak next to the nodes of a search; "" if no margin is proven."""
    work = run.get("work")
    if not isinstance(work, Mapping):
        return ""
    subsets, leaves = (_power(work[key]) for key in ("log10_subsets", "log10_leaves"))
    lemma = f"Lemma 5.2 allows M^(c + 1) = {subsets} solves for M rows, c = {work['coreset']:,.3g}"
    return f"{nodes:,} nodes of the search; a tree with d + 2 branches has (d + 2)^k = {leaves} leaves; {lemma}"


def _power(log10: float) -> str:
    """A number by its logarithm."""
    return f"{10**log10:,.3g}" if log10 < 12 else f"10^{log10:,.3g}"


def describe_outlook(figures: Mapping[str, Any]) -> list[str]:
    """Describe what to expect of a search that has not finished."""
    sentences, k, wrong, later = [], figures.get("outliers"), figures.get("wrong"), figures.get("gap_later")
    if k is not None and wrong is not None and wrong < k:
        sentences.append(
            f"the heuristic finds {wrong:,} wrong labels and {k:,} rows may be excluded: the other {k - wrong:,} are "
            f"labelled correctly, and proving which of these to exclude is slow"
        )
    elif k is not None and wrong is not None and wrong > k:
        sentences.append(
            f"the heuristic finds {wrong:,} wrong labels and only {k:,} rows may be excluded: the others may not be "
            f"separable; --loss {LOSS_TAKEN} handles overlap"
        )
    if later is not None:
        sentences.append(f"expect a gap of about {later:.2g} after {AHEAD} times as long")
    return sentences


def describe_outlook_briefly(figures: Mapping[str, Any]) -> list[str]:
    """The same for a progress line."""
    parts, k, wrong, later = [], figures.get("outliers"), figures.get("wrong"), figures.get("gap_later")
    if k is not None and wrong is not None and wrong != k:
        parts.append(f"{wrong:,} labels look wrong, {k:,} may be excluded")
    if later is not None:
        parts.append(f"gap after {AHEAD} times as long about {later:.2g}")
    return parts


def describe_enumeration(records: Sequence[Mapping[str, Any]]) -> str:
    """Describe how far a published algorithm came, given its part of ``run.json``; "" when none ran."""
    if not records:
        return ""
    subsets, most = (sum(one[key] for one in records) for key in ("subsets", "subsets_at_most"))
    rows = f"{records[-1]['subset_rows']:,} row{'s' if records[-1]['subset_rows'] != 1 else ''}"
    if all(one["ended"] for one in records):
        return f"the published algorithm has finished after {subsets:,} subsets, the last of {rows}"
    return f"the published algorithm has tried {subsets:,} of at most {most:,} subsets"


def describe_theorem(k: int, separated: bool, epsilon: float) -> str:
    """State what a finished published algorithm implies."""
    if not separated:
        return f"by its theorem, which verify cannot check, excluding {k:,} rows never makes the others separable"
    return f"by its theorem, which verify cannot check, the margin is at least 1 - {epsilon:g} of the best possible"
