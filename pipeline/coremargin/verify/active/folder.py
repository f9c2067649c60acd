"""A campaign's folder as ``verify`` reads it: what it is about, its log, and the model that is in it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from coremargin.errors import DataError
from coremargin.formats.answers import check_lines, read_answers
from coremargin.formats.campaign import ANSWERS, FILE, first_hash, read_campaign
from coremargin.formats.model_files import read_model_files
from coremargin.formats.open_folder import opened, previous_of, read_folder
from coremargin.verify.active.claim import ActiveClaim, History, active_claim
from coremargin.verify.active.log import with_late

MODEL = "model"
_LONGEST = 1 << 30  # bytes of a log


def read_campaign_claim(folder: int, path: Path) -> ActiveClaim:
    """What the model of the campaign in an open folder claims, and the log that it is about; path: for messages.

    Raises DataError: a file is missing, or is not what a campaign has; a line of the log does not follow from the one
    before it, or from what the campaign is about.
    """
    names, place = os.listdir(folder), path / MODEL
    if MODEL not in names and previous_of(place).name not in names:
        raise DataError(f"{path}: expected a campaign with a model, found none yet; answer more questions")
    files = read_folder(place, lambda handle: read_model_files(handle, place))  # before the log, which only grows
    if files.record.problem != "active":
        raise DataError(
            f"{place}: expected the model of a campaign, found one of {files.record.problem!r}; get an unaltered copy"
        )
    data = _bytes(folder, path, FILE)
    campaign = read_campaign(data, f"{path}/{FILE}")
    where = f"{path}/{ANSWERS}"
    answers = read_answers(_bytes(folder, path, ANSWERS), first_hash(data), where)
    check_lines(answers.lines, campaign.rows, campaign.classes, where)
    return with_late(replace(active_claim(files), path=path, history=History(campaign, answers)))


def _bytes(folder: int, path: Path, name: str) -> bytes:
    try:
        with opened(folder, path, name) as file:
            data = file.read(_LONGEST + 1)
    except FileNotFoundError:
        raise DataError(f"{path}: expected a campaign, found a folder without {name}; get a whole copy") from None
    except OSError as error:
        raise DataError(f"{path}/{name}: cannot be read: {error.strerror}; get a whole copy") from error
    if len(data) > _LONGEST:
        raise DataError(f"{path}/{name}: expected at most {_LONGEST:,} bytes, found more; get an unaltered copy")
    return data
