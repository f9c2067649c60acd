"""How likely draws are that are as good, or as bad, in whole numbers that are rounded up: no float decides here.

Of N rows K are labelled wrongly; T are drawn without replacement, s of them are wrong. A large K is ruled out where

    P(at most s wrong) = sum over k <= s of C(K, k) C(N - K, T - k) / C(N, T)  <=  delta

which falls as K grows, and a small one where P(at least s wrong) <= delta, which grows with K (Clopper and Pearson
1934, for the hypergeometric distribution). That at least s drawn rows are wrong is the same as that at most T - s are
right, and N - K rows are: one sum does for both.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

_BITS = 256  # of a number's whole part: a step loses less than 2^-255 of it


class UpperNumber:
    """A number of at least what it stands for: ``whole`` 2^``exponent``."""

    def __init__(self, whole: int = 1 << _BITS, exponent: int = -_BITS) -> None:
        """Begin with one, or with another number."""
        self.whole, self.exponent = whole, exponent

    def times(self, above: int, below: int) -> None:
        """Multiply by above / below, both at least 0 and below above 0."""
        bits = below.bit_length()  # so that the quotient has as many as before
        self.whole = -((-self.whole * above << bits) // below)
        self.exponent -= bits
        self._shorten()

    def plus(self, other: UpperNumber) -> None:
        """Add another number."""
        if not self.whole or not other.whole:
            self.whole, self.exponent = (self.whole, self.exponent) if self.whole else (other.whole, other.exponent)
            return
        high, low = (self, other) if self.exponent >= other.exponent else (other, self)
        apart = high.exponent - low.exponent
        if apart > 2 * _BITS:  # far less than a unit of the larger one
            self.whole, self.exponent = high.whole + 1, high.exponent
        else:
            self.whole, self.exponent = (high.whole << apart) + low.whole, low.exponent
        self._shorten()

    def at_most(self, limit: Fraction) -> bool:
        """Whether it is no larger than a fraction."""
        left, right = self.whole * limit.denominator, limit.numerator
        if self.exponent < 0:
            return left <= right << -self.exponent
        return left << self.exponent <= right

    def _shorten(self) -> None:
        excess = self.whole.bit_length() - _BITS
        if excess > 0:
            self.whole = -(-self.whole >> excess)
            self.exponent += excess


def share_of(confidence: float, attempt: int) -> Fraction:
    """The error probability allowed to attempt 1, 2, ...; over all attempts they sum to 1 - confidence."""
    return (1 - Fraction(confidence)) / (attempt * (attempt + 1))


def ruled_out(rows: int, bad: int, draws: int, delta: Fraction, wrong: int = 0) -> bool:
    """Whether ``bad`` wrong ones of ``rows`` leave a chance of at most ``delta`` that so few of them are drawn.

    Raises ValueError for more rows than there are.
    """
    if not 0 <= wrong <= draws <= rows or not 0 <= bad <= rows:
        raise ValueError(f"expected wrong <= draws <= rows, bad <= rows, found {wrong}, {draws}, {rows}, {bad}")
    least = max(0, draws + bad - rows)  # so many are drawn in any case
    if least > wrong:
        return True
    term, total = _least(rows, bad, draws), UpperNumber(0, 0)
    for k in range(least, min(wrong, bad, draws) + 1):
        total.plus(term)
        if not total.at_most(delta):
            return False
        term.times((bad - k) * (draws - k), (k + 1) * (rows - bad - draws + k + 1))
    return True


def _least(rows: int, bad: int, draws: int) -> UpperNumber:
    """The probability of the least possible number of wrong draws: none, or all correct rows are drawn."""
    chance, good = UpperNumber(), rows - bad
    if draws <= good:
        few, many = sorted((draws, bad))  # no bad row is drawn: or, which is the same, no drawn one is bad
        for i in range(few):
            chance.times(rows - many - i, rows - i)
    else:
        for i in range(good):
            chance.times(draws - i, rows - i)
    return chance


def at_most_wrong(rows: int, draws: int, bound: int, delta: Fraction, wrong: int = 0) -> bool:
    """Whether the draws, with this number of wrong ones, rule out more than ``bound`` wrong rows."""
    return bound >= rows - (draws - wrong) or ruled_out(rows, bound + 1, draws, delta, wrong)


def at_least_wrong(rows: int, draws: int, least: int, delta: Fraction, wrong: int) -> bool:
    """Whether the draws, with this number of wrong ones, rule out fewer than ``least`` wrong rows."""
    return least <= wrong or ruled_out(rows, rows - (least - 1), draws, delta, draws - wrong)


def least_bound(rows: int, draws: int, delta: Fraction, wrong: int = 0) -> int:
    """The smallest bound that the draws prove."""
    return _first(wrong, rows - (draws - wrong), lambda bound: at_most_wrong(rows, draws, bound, delta, wrong))


def most_least(rows: int, draws: int, delta: Fraction, wrong: int) -> int:
    """The largest number of wrong rows that the draws prove to exist."""
    beyond = rows - (draws - wrong) + 1
    return _first(wrong + 1, beyond, lambda least: not at_least_wrong(rows, draws, least, delta, wrong)) - 1


def _first(least: int, most: int, found: Callable[[int], bool]) -> int:
    """The first number below ``most`` that satisfies a monotone condition, else ``most``."""
    while least < most:
        middle = (least + most) // 2
        if found(middle):
            most = middle
        else:
            least = middle + 1
    return least
