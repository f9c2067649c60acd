"""Agreement of annotators beyond chance: Cohen's kappa for two, Fleiss' kappa for any number.

Cohen 1960, A coefficient of agreement for nominal scales; Fleiss 1971, Measuring nominal scale agreement among many
raters. Both are (observed - expected) / (1 - expected), with agreement expected by the shares of the labels: of each
person's own for Cohen, of all answers together for Fleiss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence


def cohen_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Cohen's kappa of pairs of labels; None without rows, or if both people used one and the same label only."""
    if not pairs:
        return None
    rows = len(pairs)
    first, second = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    observed = sum(one == other for one, other in pairs) / rows
    expected = sum(first[label] * second[label] for label in first) / rows**2
    return None if expected == 1.0 else (observed - expected) / (1.0 - expected)


def fleiss_kappa(rows: Sequence[Sequence[Hashable]]) -> float | None:
    """Fleiss' kappa of rows with the same number of labels, at least two each; None if it is undefined.

    Raises ValueError for rows of different numbers of answers.
    """
    if not rows:
        return None
    people = len(rows[0])
    if people < 2 or any(len(one) != people for one in rows):
        raise ValueError(f"expected the same number of answers about each row, two at least; found {people} and others")
    counts = [Counter(one) for one in rows]
    observed = sum(sum(n * (n - 1) for n in one.values()) for one in counts) / (len(rows) * people * (people - 1))
    shares = sum(counts, Counter[Hashable]())
    expected = sum((n / (len(rows) * people)) ** 2 for n in shares.values())
    return None if expected == 1.0 else (observed - expected) / (1.0 - expected)
