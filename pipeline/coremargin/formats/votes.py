"""What several people say of rows: a log beside that of a campaign, chained as that is (formats/chained.py)."""

from __future__ import annotations

from typing import BinaryIO

from coremargin.formats.answers import Action, AnswerId
from coremargin.formats.chained import LONGEST_LINE, Chain, Hash, Number, When, read_chain
from coremargin.formats.model_record import Count, Label, Strict, Word
from coremargin.formats.strict_json import read_object, typed

FILE = "votes.jsonl"


class Vote(Strict, frozen=True, kw_only=True):
    """What somebody says of a row, or takes back; number, before: as of any such line."""

    number: Number
    before: Hash
    id: AnswerId
    row: Count
    label: Label | None
    action: Action
    who: Word
    when: When


def read_votes(data: bytes | BinaryIO, first: str, place: str, after: Chain[Vote] | None = None) -> Chain[Vote]:
    """The votes in the bytes, or in the file, of a log; as ``read_chain``."""

    def vote_of(text: bytes, where: str) -> Vote:
        one: Vote = typed(Vote, read_object(text, where, largest=LONGEST_LINE), where)
        return one

    return read_chain(data, first, place, vote_of, after)
