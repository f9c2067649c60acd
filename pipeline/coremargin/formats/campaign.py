"""What a campaign is about (``campaign.toml``): written once; everything that decides about it is here.

The log of answers (answers.py) goes on from its bytes, so that neither can be changed without the other.
"""

from __future__ import annotations

import hashlib
import tomllib
from typing import Annotated, Literal

from msgspec import Meta

from coremargin.errors import DataError
from coremargin.formats.choices import Method, ScalingKind
from coremargin.formats.limits import MOST_SEED
from coremargin.formats.model_record import (
    Digest,
    Epsilon,
    Features,
    Label,
    Rows,
    Share,
    Strict,
    check_version,
    different_labels,
)
from coremargin.formats.strict_json import LARGEST, typed

FORMAT = "coremargin-campaign"
VERSION = 1
FILE = "campaign.toml"
ANSWERS = "answers.jsonl"


class Campaign(Strict, frozen=True, kw_only=True):
    """The rows that are asked about, and what is to be proven.

    store, digest, rows, features: the store, and its commit. method: how rows are chosen. epsilon: what may be missing
    of the margin; error, confidence: at most this share of the rows is labelled wrongly, and how sure that is to be.
    seed: of the draws. classes: (negative, positive), where they were known. memory, block: for the rows in memory, and
    bytes that one task reads. expires: seconds after which a question without an answer may be asked again.
    """

    format: Literal["coremargin-campaign"]
    version: Literal[1]
    store: str
    digest: Digest
    rows: Rows
    features: Features
    method: Method
    epsilon: Epsilon
    error: Share
    confidence: Share
    seed: Annotated[int, Meta(ge=0, le=MOST_SEED)]
    intercept: bool
    memory: Annotated[int, Meta(ge=1)]
    block: Annotated[int, Meta(ge=1)]
    scaling: ScalingKind | None = None
    classes: Annotated[list[Label], Meta(min_length=2, max_length=2)] | None = None
    expires: Annotated[float, Meta(gt=0, le=1e12)] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for two labels that are one."""
        if self.classes is not None:
            different_labels(self.classes)


def read_campaign(data: bytes, place: str) -> Campaign:
    """What the bytes of a ``campaign.toml`` say; place: its path, for messages. Raises DataError."""
    if len(data) > LARGEST:
        raise DataError(f"{place}: expected at most {LARGEST:,} bytes of TOML, found more; get an unaltered copy")
    try:
        content = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise DataError(f"{place}: expected TOML, cannot be read: {error}; get an unaltered copy") from error
    check_version(content, FORMAT, VERSION, place, "a campaign's folder")
    return typed(Campaign, content, place)


def first_hash(data: bytes) -> str:
    """What the first line of the log has as the hash of the line before it: that of ``campaign.toml``."""
    return hashlib.sha256(data).hexdigest()
