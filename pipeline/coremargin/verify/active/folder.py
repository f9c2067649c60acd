"""A campaign's folder as ``verify`` reads it: what it is about, its log, and the model that is in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from coremargin.errors import DataError
from coremargin.formats.answers import VOTES, read_answers, read_votes
from coremargin.formats.campaign import ANSWERS, FILE, LARGEST, MAP, MODEL, first_hash, read_campaign, read_map
from coremargin.formats.current_answers import check_lines, effective
from coremargin.formats.model_files import read_model_files
from coremargin.formats.npz import LARGEST as LARGEST_NPZ
from coremargin.formats.open_folder import previous_of, read_folder
from coremargin.formats.storage import MISSING, ReadableStorage, object_size, opened_object
from coremargin.verify.active.claim import ActiveClaim, Coded, History, active_claim

_LONGEST = 1 << 30  # bytes of a log


def read_campaign_claim(folder: ReadableStorage) -> ActiveClaim:
    """What the model of the campaign in an open folder claims, and the log that it is about.

    Raises DataError: a file is missing, or is not what a campaign has; the map is another one than it began with; a
    line of the log, or a vote, does not follow from the one before it, or from what the campaign is about.
    """
    path = Path(folder.name)
    place = path / MODEL
    if not (folder.exists(MODEL) or folder.exists(previous_of(place).name)):
        raise DataError(f"{path}: expected a campaign with a model, found none yet; answer more questions")
    files = read_folder(place, read_model_files)  # before the log, which only grows
    if files.record.problem not in ("active", "active_classes"):
        raise DataError(
            f"{place}: expected the model of a campaign, found one of {files.record.problem!r}; get an unaltered copy"
        )
    with _opened(folder, FILE, LARGEST) as file:
        data = file.read()
    settings = read_campaign(data, f"{path}/{FILE}")
    if settings.map is not None:
        with _opened(folder, MAP, LARGEST_NPZ) as file:
            read_map(file, settings, f"{path}/{MAP}")
    place_of_log = f"{path}/{ANSWERS}"
    with _opened(folder, ANSWERS, _LONGEST) as file:
        answers = read_answers(file, first_hash(data), place_of_log)
    check_lines(answers.entries, settings.rows, settings.classes, place_of_log)
    votes = None
    if settings.people is not None:  # after the log, whose labels they have settled
        with _opened(folder, VOTES, _LONGEST) as file:
            votes = read_votes(file, first_hash(data), f"{path}/{VOTES}")
    return with_later_answers(replace(active_claim(files), path=str(path), history=History(settings, answers, votes)))


def with_later_answers(claim: ActiveClaim) -> ActiveClaim:
    """The claim with the rows answered after the lines that the model knows, except unsure ones."""
    if claim.history is None or claim.last_line is None:
        return claim
    before, now = effective(claim.known_lines), effective(claim.history.answers.lines)
    new = set(now) - set(before) - set(claim.unsure.tolist())
    rows = sorted(row for row in new if row < claim.rows)  # others have no labels
    codes = np.array([claim.code_of(now[row]) for row in rows], np.int64)
    return replace(claim, later=Coded(np.array(rows, np.int64), codes))


@contextmanager
def _opened(folder: ReadableStorage, name: str, most: int) -> Iterator[BinaryIO]:
    """Open a file of the campaign for reading; refuse one with more bytes than the limit."""
    try:
        with opened_object(folder, name, advice="get a whole copy") as file:
            if (size := object_size(file)) > most:
                text = f"expected at most {most:,} bytes, found {size:,}"
                raise DataError(f"{folder.name}/{name}: {text}; get an unaltered copy")
            yield file
    except MISSING:
        raise DataError(
            f"{folder.name}: expected a campaign, found a folder without {name}; get a whole copy"
        ) from None
