"""Published bounds as numbers, for comparison with measurements.

The papers state most of them as O(...). Constants are those of their proofs if these have any, else derived here in the
same way, as each docstring states. R: the length of the longest row or, where hyperplanes have an intercept, the radius
of a ball around all rows; rho: the best margin, from the hyperplane to the nearest row (2 rho between the hulls: the M
of Jebara's lecture); diameter and distance: of all rows, and between the hulls of the classes.
"""

from __future__ import annotations

import math


def coreset_rows(R: float, rho: float, epsilon: float) -> float:
    """Har-Peled, Roth, Zimak 2006, Lemma 3.1: rows that the coreset method adds, each with the least margin of all.

    64 (R / rho)^2 / epsilon. The lemma says O((R / rho)^2 / epsilon); its proof takes 64 (R / rho)^2 / epsilon steps to
    come to (1 + epsilon) rho and at most 16 more from there. 64 is enough for both: with e = rho_i / rho - 1, e falls
    by e^2 rho^2 / (8 R^2) and more a step, so that 1 / e grows by rho^2 / (8 R^2), and 8 (R / rho)^2 / epsilon steps
    come to e <= epsilon; after them each takes a share epsilon^2 rho^2 / (8 R^2), and 8 (R / rho)^2 / epsilon take it
    all. (The proof prints epsilon for epsilon^2 in that step, and continues with epsilon^2.) Needs all labels.
    """
    return 64.0 * (R / rho) ** 2 / epsilon


def sharp_coreset_rows(R: float, rho: float, epsilon: float) -> float:
    """The same from the recursion of the proof: 16 (R / rho)^2 / epsilon, 8 to come to (1 + epsilon) rho and 8 more.

    ``coreset_rows`` has the derivation. It is below what Jaggi 2013 (*Revisiting Frank-Wolfe*), Theorem 2, gives for
    hyperplanes through the origin, 27 (R / rho)^2 / epsilon + 2, the method being fully corrective Frank-Wolfe.
    """
    return 16.0 * (R / rho) ** 2 / epsilon


def any_row(R: float, rho: float, epsilon: float) -> float:
    """Corollary 3.2 of the same: rows added, any of them with a margin below (1 - epsilon) rho_i.

    4 (R / rho)^2 / epsilon^2. The corollary says O((R / rho)^2 / epsilon^2) (and prints epsilon rho_i for (1 - epsilon)
    rho_i, and rho_i for rho_i^2 in the share lost). By (2), with alpha_i >= epsilon rho_i, 1 / rho_i^2 grows by
    epsilon^2 / (4 R^2) and more a step, and never passes 1 / rho^2. It applies to queried labels: the row nearest to
    the hyperplane need not be the one with the least margin.
    """
    return 4.0 * (R / rho) ** 2 / epsilon**2


def labels_asked(coreset: float, error: float, delta: float) -> float:
    """Lemmas 4.1 and 4.2 of the same: queried labels, draws included: |C| / e (ln |C| + ln 1 / delta), and |C|.

    The lemmas say O(...) of the first part; each of at most |C| hypotheses lasts for (ln |C| + ln 1 / delta) / e draws.
    """
    return coreset + coreset / error * (math.log(coreset) + math.log(1.0 / delta))


def log10_subsets(rows: int, size: float) -> float:
    """Lemma 5.2 of the same: log10 of M^(c + 1), the factor of M rows in the time of its search for outliers.

    size: c, the size of a coreset, O((R / rho_k)^2 / epsilon) in the lemma.
    """
    return (size + 1.0) * math.log10(rows)


def log10_leaves(features: int, k: int) -> float:
    """log10 of (d + 2)^k, the leaves of a tree that excludes one row of a certificate at each of k levels.

    A certificate of a margin needs d + 2 rows at most (Carathéodory). No source states this; it is for comparison.
    """
    return k * math.log10(features + 2)


def slab_steps(diameter: float, distance: float, epsilon: float) -> float:
    """Har-Peled 2015, Lemma 1.1: steps of the slab method. 4 ((diameter / distance)^2 - 1) / epsilon^2.

    The lemma says O((diameter / distance)^2 / epsilon^2). By (1.1) each step leaves l_{i+1}^2 <= l_i^2 (1 - (epsilon
    l_i / 2 diameter)^2), so that 1 / l^2 grows by epsilon^2 / (4 diameter^2) and more; it begins at 1 / diameter^2 or
    above and never passes 1 / distance^2. The same constant as in Corollary 3.2: rows within R have a diameter of at
    most 2 R, and hulls a distance of 2 rho.
    """
    return 4.0 * ((diameter / distance) ** 2 - 1.0) / epsilon**2


def perceptron_updates(R: float, gamma: float) -> float:
    """Novikoff 1962: (R / gamma)^2; with rows of length 1 Louche and Ralaivola 2015, Proposition 2: 1 / gamma^2."""
    return (R / gamma) ** 2


def compression(
    rows: int, kept: int, delta: float, wrong: int = 0, *, ordered: bool = False, choices: int = 1
) -> float:
    """Louche and Ralaivola 2015, (8): the error on new rows, of a hypothesis that ``kept`` of ``rows`` rows determine.

    (8) is "something like" share wrong + O(sqrt(1 / (N - |S|))), and leaves the rest to Floyd and Warmuth 1995 and
    Graepel, Herbrich, Shawe-Taylor 2005. Theirs: with confidence 1 - delta over rows drawn independently, the largest p
    for which (N - k) kl(wrong / (N - k), p) <= ln(ways to choose k of N) + ln(N / delta), kl being that of Chernoff's
    bound; with none wrong p = 1 - exp(-that / (N - k)). ordered: the order of the rows matters too, as for a
    perceptron. choices: of so many hypotheses that the same kept rows determine it is one.

    wrong is a number of rows that were not kept: *their labels must be known*. In active learning they are not. There,
    the bound holds for all N rows, any k of which may be kept, on condition that the hypothesis labels all of them
    correctly; it adds nothing to the evidence of draws. Queried rows are not a random sample, and the bound does not
    apply to them.
    """
    rest = rows - kept
    if rest <= 0 or not 0 <= wrong <= rest:
        return 1.0
    ways = math.lgamma(rows + 1) - math.lgamma(rest + 1) - (0.0 if ordered else math.lgamma(kept + 1))
    allowed = (ways + math.log(choices) + math.log(rows / delta)) / rest
    low, high = wrong / rest, 1.0
    for _ in range(100):  # halves the interval: more would be below rounding
        middle = (low + high) / 2
        low, high = (middle, high) if _kl(wrong / rest, middle) <= allowed else (low, middle)
    return high


def vc_dimension(R: float, rho: float, features: int) -> int:
    """Jebara's lecture: VC dimension of gap-tolerant classifiers, at most min(ceil(4 R^2 / M^2), d) + 1, M = 2 rho.

    The classes are half-spaces at least rho from the hyperplane, and rows in between or outside of a ball of radius R
    count as neither. The theorem fixes R and rho before the rows are drawn. d + 1, the VC dimension of all half-spaces,
    needs no such condition.
    """
    return min(math.ceil((R / rho) ** 2), features) + 1


def guaranteed_risk(rows: int, dimension: int, delta: float, risk: float = 0.0) -> float:
    """Vapnik 1995, as Jebara's lecture has it: error on new rows with confidence 1 - delta; at most 1.

    J = risk + 2 a / N (1 + sqrt(1 + N risk / a)), a = h ln(2 e N / h) + ln(4 / delta); risk: the share of the N rows
    that is misclassified, h: the VC dimension.
    """
    if rows < dimension:  # the number of ways to label them is then 2^N: nothing is learnt
        return 1.0
    a = dimension * math.log(2.0 * math.e * rows / dimension) + math.log(4.0 / delta)
    return min(1.0, risk + 2.0 * a / rows * (1.0 + math.sqrt(1.0 + rows * risk / a)))


def margin_risk(
    rows: int, loss: float, norm: float, radius: float, delta: float, *, offset: float | None = None, slope: float = 1.0
) -> float:
    """Error on new rows of one function with a margin: share of errors and capacity, as J, but for margins.

    Mohri, Rostamizadeh, Talwalkar 2018, Theorem 3.3 with Talagrand's lemma: with confidence 1 - delta, for all f(x) =
    w.x + b with ||w|| <= A and |b| <= B at once, A and B fixed before the rows are drawn, the error is at most

        loss + 2 slope (A radius + B) / sqrt(N) + 3 sqrt(ln(2 / delta) / (2 N)).

    loss: mean of the N rows' losses, a bound on that of min(1, loss), which is 1 for every error and whose slope is 1
    (hinge) or 2 (squared hinge). radius: no row is longer; of a kernel sqrt(k(x, x)). norm, offset: ||w||, |b| as
    trained (None: no intercept). A and B are these rounded up to powers of 2^(1/4): ``_level`` divides delta among
    them. Unlike Vapnik's bound with the VC dimension of gap-tolerant classifiers, it counts rows within the margin, and
    holds whatever margin was found. Not cut at 1: bounds that say nothing still have an order.
    """
    reach, share = _level(norm)
    capacity = reach * radius
    if offset is not None:
        reach, more = _level(offset)
        capacity, share = capacity + reach, share * more
    return (
        min(1.0, loss)
        + 2.0 * slope * capacity / math.sqrt(rows)
        + 3.0 * math.sqrt(math.log(2.0 / (delta * share)) / (2.0 * rows))
    )


def _level(size: float) -> tuple[float, float]:
    """The least 2^(j / 4) >= size with a whole number j >= -200, and its share of delta.

    1 / (2.3 (1 + |j|)^2): over all whole numbers these sum to (pi^2 / 3 - 1) / 2.3 < 1.
    """
    j = max(-200, math.ceil(4.0 * math.log2(size))) if size > 0 else -200
    return 2.0 ** (j / 4.0), 1.0 / (2.3 * (1.0 + abs(j)) ** 2)


def simple_vc_bound(rows: int, dimension: int, delta: float) -> float:
    """Awasthi's lecture, Theorem 1, as printed: error at most VCdim log(1 / delta) / m where no row is misclassified.

    The theorem proven elsewhere (Blumer et al. 1989) has O((VCdim log(m / VCdim) + log(1 / delta)) / m): without
    the logarithm of m, and with 1 for the constant, the printed form promises too much. At most 1.
    """
    return min(1.0, dimension * math.log(1.0 / delta) / rows)


def _kl(q: float, p: float) -> float:
    """kl(q, p) = q ln(q / p) + (1 - q) ln((1 - q) / (1 - p)), for q <= p."""
    if p >= 1.0:
        return 0.0 if q >= 1.0 else math.inf
    first = q * math.log(q / p) if q > 0 else 0.0
    return first + (1.0 - q) * (math.log1p(-q) - math.log1p(-p) if q < 1.0 else 0.0)
