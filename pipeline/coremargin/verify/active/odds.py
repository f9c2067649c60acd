"""How likely so few wrong draws are, in whole numbers that are rounded up at every step: no float decides here.

Of N rows K are labelled wrongly; T are drawn without replacement, s of them are wrong. Few wrong ones among many speak
against a large K (Clopper and Pearson 1934, for the hypergeometric distribution): K is ruled out where

    P(at most s wrong) = sum over k <= s of C(K, k) C(N - K, T - k) / C(N, T)  <=  delta

which falls as K grows. Its first term is the chance that all draws are right or, where right rows are too few for that,
that all of them are drawn; each of the next follows from the one before it.
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

    def add(self, other: Upper) -> None:
        """Add another number."""
        least = min(self.exponent, other.exponent)
        if abs(self.exponent - other.exponent) > 4 * _BITS:  # one of them is nothing beside the other
            large, small = (self, other) if self.exponent > other.exponent else (other, self)
            least = large.exponent - 2 * _BITS
            self.whole = (large.whole << (2 * _BITS)) + (small.whole > 0)
        else:
            self.whole = (self.whole << (self.exponent - least)) + (other.whole << (other.exponent - least))
        self.exponent = least
        self._shorten()

    def copy(self) -> Upper:
        """The same number again."""
        other = Upper()
        other.whole, other.exponent = self.whole, self.exponent
        return other

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


def ruled_out(rows: int, bad: int, draws: int, wrong: int, delta: Fraction) -> bool:
    """Whether ``bad`` wrong ones of ``rows`` leave a chance of at most ``delta`` for so few among the draws.

    Raises ValueError for more rows than there are.
    """
    good = rows - bad
    if not 0 <= wrong <= draws <= rows or not 0 <= bad <= rows:
        raise ValueError(f"expected wrong <= draws <= rows, bad <= rows, found {wrong}, {draws}, {rows}, {bad}")
    first = max(0, draws - good)
    if first > wrong:
        return True
    term = _first_term(rows, bad, draws)
    total = term.copy()
    for k in range(first, min(wrong, bad, draws)):
        term.times((bad - k) * (draws - k), (k + 1) * (good - draws + k + 1))
        total.add(term)
    return total.at_most(delta)


def _first_term(rows: int, bad: int, draws: int) -> Upper:
    """The chance of the least number of wrong draws that there can be."""
    good = rows - bad
    if draws <= good:  # all draws are right; or, which is the same, all wrong rows are left
        count, start = min((draws, good), (bad, rows - draws))
    else:  # all right rows are drawn; or all that is left is wrong
        count, start = min((good, draws), (rows - draws, bad))
    term = Upper()
    for i in range(count):
        term.times(start - i, rows - i)
    return term


def at_most_wrong(rows: int, draws: int, wrong: int, bound: int, delta: Fraction) -> bool:
    """Whether the draws rule out that more than ``bound`` rows are wrong."""
    return bound >= rows - (draws - wrong) or ruled_out(rows, bound + 1, draws, wrong, delta)


def least_bound(rows: int, draws: int, wrong: int, delta: Fraction) -> int:
    """The smallest bound that the draws prove."""
    least, most = wrong, rows - (draws - wrong)
    while least < most:
        middle = (least + most) // 2
        if at_most_wrong(rows, draws, wrong, middle, delta):
            most = middle
        else:
            least = middle + 1
    return least
