"""Who labels rows that lie in no store: one row at a time, or many together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from coremargin.errors import DataError
from coremargin.maths.rows import take

if TYPE_CHECKING:
    from coremargin.maths.rows import Rows


class Labeller:
    """Labels of rows (m, d), one by one as somebody is asked, or all together."""

    def __init__(self, ask: Callable[[Any], Any], *, batched: bool) -> None:
        self._ask, self._batched = ask, batched

    def __call__(self, rows: Rows) -> Iterator[Any] | Sequence[Any]:
        """Each of them, None where nobody can tell."""
        if not self._batched:
            return (self._ask(take(rows, [k]) if hasattr(rows, "tocsr") else rows[k]) for k in range(rows.shape[0]))
        found = list(self._ask(rows))
        if len(found) != rows.shape[0]:
            raise DataError(f"oracle: expected a label for each of {rows.shape[0]} rows, found {len(found)}")
        return found

    def known(self, place: int, labels: Iterator[Any] | Sequence[Any]) -> list[tuple[int, Any]]:
        """Those behind a place that were given together with it: nobody is asked for them."""
        return list(enumerate(labels))[place + 1 :] if isinstance(labels, Sequence) else []
