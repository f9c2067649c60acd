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

import coremargin
from append_many import ROWS, append_once
from coremargin.data import conditional_puts, lease
from coremargin.data.check import check_store
from coremargin.data.store import Store
from coremargin.data.vacuum import vacuum
from coremargin.errors import CoremarginError
from coremargin.registry.add_version import add
from coremargin.registry.registry import Registry
from registry_kit import check_whole, grown
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


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kills", [12])
def test_writers_of_a_registry(bucket: Callable[..., Location], moto: str, tmp_path: Path, kills: int) -> None:
    """Five processes, one after the other of which is killed at any moment: what one was told of is there, once."""
    _, models = grown(tmp_path, 3)
    address = bucket("models")
    registry = Registry.create(address)
    add(registry, models[0])
    chance, files = random.Random(4), list[Path]()  # noqa: S311

    def start(name: str) -> subprocess.Popen[bytes]:
        files.append(tmp_path / f"{name}.txt")
        command = [sys.executable, str(Path(__file__).with_name("change_registry.py"))]
        return subprocess.Popen([*command, str(address), moto, name, "12", str(files[-1]), *map(str, models)])

    running, killed = [start(f"w{k}") for k in range(5)], 0
    while any(one.poll() is None for one in running):
        time.sleep(1 + 3 * chance.random())
        k = chance.randrange(5)
        if killed < kills and running[k].poll() is None:
            running[k].kill()
            running[k].wait()
            killed += 1
            running[k] = start(f"w{k}-{killed}")
        coremargin.load(f"{address}@candidate", storage_options=address.options)
    assert all(one.returncode == 0 for one in running)
    told = [line for file in files if file.exists() for line in file.read_text().split()]
    registry.complete()
    check_whole(registry)
    lines = registry.state().lines
    notes = [line.comment for line in lines if line.comment.startswith("w")]
    assert len(set(notes)) == len(notes)
    assert set(told) <= set(notes)
    assert len(notes) <= len(told) + killed
    assert killed > 3
    trained = [line.version for line in lines if line.action == "trained"]
    assert trained == list(range(1, len(trained) + 1))
    vacuum(address, older_than=0)
    check_whole(registry)
