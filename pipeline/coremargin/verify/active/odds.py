"""How likely it is that no draw is wrong, in whole numbers that are rounded up at every step: no float decides here.

Of N rows K are labelled wrongly; T are drawn without replacement, none of them is wrong. That speaks against a large K
(Clopper and Pearson 1934, for the hypergeometric distribution): K is ruled out where

    P(none wrong) = C(N - K, T) / C(N, T)  <=  delta

which falls as K grows.
"""

from __future__ import annotations

from fractions import Fraction

_BITS = 256  # of a number's whole part: a step loses less than 2^-255 of it


class Upper:
    """A number of at least what it stands for: ``whole`` 2^``exponent``."""

    def __init__(self) -> None:
        """One."""
        self.whole, self.exponent = 1 << _BITS, -_BITS

    def times(self, above: int, below: int) -> None:
        """Multiply by above / below, both at least 0 and below above 0."""
        bits = below.bit_length()  # so that the quotient has as many as before
        self.whole = -((-self.whole * above << bits) // below)
        self.exponent -= bits
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
    """The chance of an error that attempt 1, 2, ... may have: those of all attempts sum up to 1 - confidence."""
    return (1 - Fraction(confidence)) / (attempt * (attempt + 1))


def ruled_out(rows: int, bad: int, draws: int, delta: Fraction) -> bool:
    """Whether ``bad`` wrong ones of ``rows`` leave a chance of at most ``delta`` that none of them is drawn.

    Raises ValueError for more rows than there are.
    """
    if not 0 <= draws <= rows or not 0 <= bad <= rows:
        raise ValueError(f"expected draws <= rows, bad <= rows, found {draws}, {rows}, {bad}")
    few, many = sorted((draws, bad))  # no bad row is drawn: or, which is the same, no drawn one is bad
    if few + many > rows:
        return True
    chance = Upper()
    for i in range(few):
        chance.times(rows - many - i, rows - i)
    return chance.at_most(delta)


def at_most_wrong(rows: int, draws: int, bound: int, delta: Fraction) -> bool:
    """Whether the draws rule out that more than ``bound`` rows are wrong."""
    return bound >= rows - draws or ruled_out(rows, bound + 1, draws, delta)


def least_bound(rows: int, draws: int, delta: Fraction) -> int:
    """The smallest bound that the draws prove."""
    least, most = 0, rows - draws
    while least < most:
        middle = (least + most) // 2
        if at_most_wrong(rows, draws, middle, delta):
            most = middle
        else:
            least = middle + 1
    return least
