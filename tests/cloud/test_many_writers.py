"""Many writers of one store: each commit that a writer was told of is there, once, whoever was killed meanwhile."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from append_many import ROWS, append_once
from coremargin.data import conditional_puts, lease
from coremargin.data.check import check_store
from coremargin.data.store import Store
from coremargin.errors import CoremarginError
from writing_kit import Buckets, Kill, create

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.formats.location import Location


def check(address: Location, told: list[str], doubtful: int) -> None:
    """Every commit told of is there once, few others are, and all is whole."""
    store = Store.open(address)
    notes = [entry.note for entry in store.log[1:]]
    assert len(set(notes)) == len(notes)
    assert set(told) <= set(notes)
    assert len(notes) <= len(told) + doubtful
    assert store.rows == 100 + ROWS * len(notes)
    assert check_store(address).whole


def test_leases_that_protect_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """All leases have expired from the start, so writers take over from each other at any moment; some are killed."""
    monkeypatch.setattr(lease, "now_there", lambda puts: time.time() + 1e6)
    monkeypatch.setattr(conditional_puts, "_PAUSE", 0.0)
    buckets = Buckets(monkeypatch)
    create(buckets.at("s"))
    told, killed, adding = list[str](), list[str](), threading.Lock()

    def write(name: str) -> None:
        chance, done, tries = random.Random(name), 0, 0  # noqa: S311
        while done < 3 and tries < 400:
            tries += 1
            region = f"{name}-{tries}"
            if chance.random() < 0.1:
                buckets.hooks[region] = Kill(chance.randrange(1, 120))
            note = f"{name}-{tries}"
            try:
                if append_once(buckets.at("s", region), note, tries):
                    with adding:
                        told.append(note)
                    done += 1
            except CoremarginError:
                with adding:
                    killed.append(note)
            time.sleep(0.05 * chance.random())

    threads = [threading.Thread(target=write, args=(f"w{k}",)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) >= 3
    check(buckets.at("s"), told, 4 * 400)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(2400)
def test_sixteen_writers(bucket: Callable[..., Location], moto: str, tmp_path: Path) -> None:
    """Two hundred commits by processes, of which a third are killed at any moment, and started again."""
    address = bucket("s.zarr")
    create(address)
    chance = random.Random(3)  # noqa: S311
    files = list[Path]()
    kills = 0

    def start(name: str, commits: int) -> subprocess.Popen[bytes]:
        files.append(tmp_path / name)
        command = [sys.executable, str(Path(__file__).with_name("append_many.py"))]
        return subprocess.Popen([*command, str(address), moto, name, str(commits), str(files[-1])])

    running = [start(f"w{k}", 13) for k in range(16)]
    while any(one.poll() is None for one in running):
        time.sleep(1 + 4 * chance.random())
        if kills < 6:
            k = chance.randrange(16)
            if running[k].poll() is None:
                running[k].kill()
                running[k].wait()
                kills += 1
                running[k] = start(f"w{k}-{kills}", 13)
    assert all(one.returncode == 0 for one in running)
    told = [line for file in files if file.exists() for line in file.read_text().split()]
    assert len(told) >= 16 * 13
    assert kills == 6
    check(address, told, kills)
