"""Labels of a campaign: which two there are, and what people write for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from coremargin.data.labels import checked_label, is_missing
from coremargin.data.sources.vocabulary import label_from_text
from coremargin.errors import LabelError
from coremargin.formats.current_answers import fits, same
from coremargin.formats.limits import MOST_CLASSES
from coremargin.formats.model_record import different_labels
from coremargin.formats.strict_json import cut

#: What to do where a third label is no mistake.
THIRD = (
    "more classes than two are named when a campaign begins: `coremargin active start STORE --out NEW --classes A,B,C "
    "--examples OLD` takes over the answers that hold"
)
#: Why something stops where draws find no row of a class.
LACKING = "there is a class that no answer has"


def meant(given: Any, classes: Sequence[Any], place: str, *, named: bool = True) -> Any:
    """The label of the campaign that somebody means; classes: those known, fewer than two where others may come.

    A text means the label that is written like it. named: whether the classes were known from the start on. Raises
    LabelError for any other label.
    """
    missing = is_missing(given)
    for label in [] if missing else classes:
        if same(given, label) or (isinstance(given, str) and given.strip() in _written(label)):
            return label
    try:
        new = None if missing else label_from_text(given) if isinstance(given, str) else checked_label(given)
    except LabelError as error:
        raise LabelError(f"{place}: {error}") from error
    known = next((label for label in classes if new is not None and same(new, label)), None)
    if known is not None:
        return known
    if new is None or not fits(new, classes):
        expected = cut(" or ".join(repr(label) for label in classes)) or "a label"
        more = "" if len(classes) != 1 else " or another of its kind"
        advice = "" if named or len(classes) < 2 else f"; {THIRD}"
        raise LabelError(f"{place}: expected {expected}{more}, found {cut(repr(given))}; correct the answer{advice}")
    return new


def named_classes(classes: Iterable[Any], place: str) -> list[Any]:
    """The labels as somebody names them, of two (negative, positive), as the plain values that files hold.

    Raises LabelError.
    """
    found = [checked_label(label) for label in classes]
    if not 2 <= len(found) <= MOST_CLASSES:
        raise LabelError(
            f"{place}: classes: expected two labels, (negative, positive), or more, up to {MOST_CLASSES:,}; found "
            f"{len(found):,}; name all that there are"
        )
    try:
        different_labels(found)
    except ValueError as error:
        raise LabelError(f"{place}: classes: {error}") from error
    return found


def _written(label: Any) -> tuple[str, ...]:
    return (str(label), str(label).lower()) if isinstance(label, bool) else (str(label),)


def codes_of(labels: Mapping[int, Any], classes: Sequence[Any]) -> dict[int, int]:
    """The place of its class by row."""
    places = {key_of(label): code for code, label in enumerate(classes)}
    return {row: places[key_of(label)] for row, label in labels.items()}


def counts_of(labels: Mapping[int, Any], classes: Sequence[Any]) -> list[int]:
    """How many rows have each class."""
    codes = Counter(codes_of(labels, classes).values())
    return [codes[code] for code in range(len(classes))]


def lacking(classes: Sequence[Any], seen: Collection[int], number: int, answers: int, most: str = "") -> str:
    """What is wrong where there is a class that no answer has; number: how many there are, of two some not yet known.

    seen: places of the classes that answers have; most: the rows that may be of another, as far as draws tell.
    """
    if number == 2:
        wanted, found = "two classes", [f"all of them {cut(repr(classes[code]))}" for code in seen]
    else:
        missing = [repr(label) for code, label in enumerate(classes) if code not in seen]
        wanted, found = f"{number} classes", [f"none of them {cut(', '.join(missing))}"]
    head = ", ".join([f"expected rows of {wanted}", f"found {answers:,} answers", *found])
    other = "have another label" if number == 2 else "are labelled wrongly, and no more can have such a label"
    return f"{head}; {most} {other}" if most else head


def key_of(label: Any) -> tuple[bool, Any]:
    """Two labels are ``same`` where their keys are equal."""
    return isinstance(label, bool), label
