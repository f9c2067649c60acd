"""Replace command-line options in messages by the arguments of Python functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from coremargin.errors import CoremarginError

_FLAGS = {
    "append": "append=True",
    "columns-of MODEL": "columns=model.columns",
    "dense": "sparse=False",
    "header": "header=True",
    "new-labels": "new_labels=True",
    "no-default-na": "keep_default_na=False",
    "no-header": "header=False",
    "one-based": "zero_based=False",
    "overwrite": "overwrite=True",
    "restart": "begin='restart'",
    "resume": "begin='resume'",
    "sparse": "sparse=True",
    "unlabelled": "unlabelled=True",
    "zero-based": "zero_based=True",
}
_NAMES = {"chunk-size": "chunk_bytes"} | {
    option: option.replace("-", "_")
    for option in (
        "C",
        "categorical",
        "categories",
        "classes",
        "date-format",
        "dates",
        "decimal",
        "delimiter",
        "drop",
        "dtype",
        "features",
        "folds",
        "format",
        "gamma",
        "kernel",
        "key",
        "label",
        "labels",
        "loss",
        "map",
        "memory",
        "missing",
        "na-values",
        "names",
        "only",
        "outlier-search",
        "outliers",
        "scaling",
        "text",
        "thousands",
        "unknown",
        "weights",
    )
}
_FOLLOW = (  # words of a sentence, not values
    "alone and applies apply are beside do does for goes handles if in is less name names nor of one or out say says "
    "stands that to was were when where with would"
).replace(" ", "|")
_COMMAND = r"`[^`]*`|coremargin [a-z]+ .*"  # unchanged
_FLAG = "|".join(sorted(_FLAGS, key=len, reverse=True))
_NAME = "|".join(sorted(_NAMES, key=len, reverse=True))
_VALUE = rf"(?: (?!(?:{_FOLLOW})\b)(?P<value>'[^']*'|\"[^\"]*\"|[^\s;:)('\"]*[^\s;:)('\",.]))?"
_OPTION = re.compile(
    rf"(?P<command>{_COMMAND})|(?<![\w-])--(?:(?P<flag>{_FLAG})(?![\w-])|(?P<name>{_NAME})(?![\w-]){_VALUE})"
)


@contextmanager
def named_arguments() -> Iterator[None]:
    """For public functions: errors name arguments, such as ``drop='age'`` for ``--drop age``."""
    try:
        yield
    except CoremarginError as error:
        error.args = tuple(as_arguments(part) if isinstance(part, str) else part for part in error.args)
        if hasattr(error, "__notes__"):
            error.__notes__ = [as_arguments(note) for note in error.__notes__]
        raise


def as_arguments(text: str) -> str:
    """Replace options by arguments, except in commands."""
    return _OPTION.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    if found["command"]:
        return found.group()
    if found["flag"]:
        return _FLAGS[found["flag"]]
    name, value = _NAMES[found["name"]], found["value"]
    if not value:
        return name
    number = re.fullmatch("-?[0-9]+", value) is not None
    plain = value[0] in "'\"" or number or (value.isupper() and value.isalpha() and len(value) > 1)
    return f"{name}={value if plain else repr(value)}"
