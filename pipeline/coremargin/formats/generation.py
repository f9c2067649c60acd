"""Generations: how all that lies at an address is replaced at once, as services of objects cannot rename a folder.

The objects are uploaded below ``generations/ID/``. Then one conditional put of ``current.json``, which names this
generation, makes them what lies at the address. A reader looks that up once and reads one generation; where it is
removed meanwhile, the reader finds objects missing, and starts again with the next one. Without ``current.json`` the
objects lie directly below the address, as other tools upload them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coremargin.formats.model_record import Strict, check_version
from coremargin.formats.strict_json import read_object, typed

FILE, FOLDER = "current.json", "generations"
FORMAT, VERSION = "coremargin-generation", 1
LARGEST = 64 << 20  #: bytes of the record


class Generation(Strict, frozen=True, kw_only=True):
    """What ``current.json`` says.

    generation: "" where the objects lie directly below the address all the same.
    objects: keys and bytes of all of them, where they were all written together: then none has to be looked for, which
    without the right to list has the same answer as a refusal.
    """

    format: str
    version: int
    generation: Annotated[str, Meta(pattern="^([0-9a-f]{16})?$")]
    objects: dict[str, Annotated[int, Meta(ge=0)]] | UnsetType = UNSET

    @property
    def prefix(self) -> str:
        """What the keys of its objects begin with."""
        return f"{FOLDER}/{self.generation}/" if self.generation else ""

    def holds(self, key: str) -> bool | None:
        """Whether there is such an object, or any below it; None: not known."""
        if self.objects is UNSET:
            return None
        return not key or key in self.objects or any(name.startswith(f"{key}/") for name in self.objects)

    def encoded(self) -> bytes:
        """For ``current.json``."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


def new_generation(objects: Mapping[str, int] | None = None) -> Generation:
    """One that no other process makes."""
    known = UNSET if objects is None else dict(sorted(objects.items()))
    return Generation(format=FORMAT, version=VERSION, generation=secrets.token_hex(8), objects=known)


def below_the_address() -> Generation:
    """What says that objects lie directly below the address, as they do without a word on it."""
    return Generation(format=FORMAT, version=VERSION, generation="")


def parse_generation(data: bytes, place: str) -> Generation:
    """Raises DataError."""
    content = read_object(data, place, largest=LARGEST)
    check_version(content, FORMAT, VERSION, place, "the address of a store or a model")
    return typed(Generation, content, place)


def is_of_generations(key: str) -> bool:
    """Whether a key directly below an address is that of this mechanism, not of a store or a model."""
    return key.split("/", maxsplit=1)[0] in (FILE, FOLDER)
