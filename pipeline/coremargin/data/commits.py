"""What a commit writes last: its line in the log (formats/store_log.py), then the root, which makes both visible."""

from __future__ import annotations

import getpass
import os
import socket
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from msgspec import UNSET

from coremargin.data.checksum import crc32c
from coremargin.data.format import ROOT
from coremargin.data.storage import write_json
from coremargin.formats.store_log import FILE, LogEntry
from coremargin.formats.store_record import LogMark, effective_commits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coremargin.data.format import Commit, Facts
    from coremargin.data.storage import Storage
    from coremargin.formats.store_log import Did, FileMark

_LONGEST = 4000  # characters of a note


@dataclass(frozen=True)
class CommitInfo:
    """What a commit is about, for the log; see ``LogEntry``."""

    did: Did
    note: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    time: float | None = None  #: when rows came that are written again; None: now
    by: str = ""  #: who added them; "": the user of this process
    files: tuple[FileMark, ...] = ()  #: that were taken in, and are not to come again


def commit_root(storage: Storage, facts: Facts, commit: Commit, info: CommitInfo) -> Facts:
    """Add a commit to the log, then to the root, which makes it visible. Returns the facts after it.

    Everything that it needs is written. Raises OutputError; Busy: the root is not the one that ``facts`` were read of.
    """
    kept = facts.log
    entry = LogEntry(
        commit=commit.record(),
        did=info.did,
        time=round(time.time(), 3) if info.time is None else info.time,
        by=info.by or current_user(),
        note=info.note[:_LONGEST],
        counts=dict(info.counts),
        files=list(info.files) or UNSET,
    )
    data = entry.encoded()
    storage.append(FILE, kept.nbytes if kept else 0, data)
    mark = LogMark(
        commits=commit.number + 1,
        nbytes=(kept.nbytes if kept else 0) + len(data),
        crc32c=crc32c(data, kept.crc32c if kept else 0),
    )
    after = replace(facts, commits=tuple(effective_commits((*facts.commits, commit))), log=mark)
    tag = write_json(storage, ROOT, after.root(), replaces=facts.root_tag)
    storage.sync("")
    return replace(after, root_tag=tag)


def taken_before(entries: Iterable[LogEntry]) -> dict[str, int]:
    """The hashes of all files that were taken in, and the numbers of the commits that have their rows."""
    marks = ((mark, entry.commit.number) for entry in entries for mark in entry.files or ())
    return {mark.sha256: number for mark, number in marks if mark.sha256 is not UNSET}


def current_user() -> str:
    """User and machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:_LONGEST]
