"""What is written down of a job: each number under a name of its own, each array as a digest."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from click.testing import CliRunner

from coremargin.cli import main as command

#: Left out, for they vary from run to run: times, memory in use, versions of software, places, and who and where. So do
#: hashes over files that have these, and sizes of files, which names are in. How much was read stays.
LEFT_OUT = re.compile(
    r"seconds|_rss_|_rate|stored_bytes|^(time|when|started|ended|software|versions|executor|host|pid|who|by|path|store|out|registry"
    r"|created|job|resume|before|parent|record|model|model_digest|files|log|retraining_bytes|retraining)$"
)
#: Arrays beside a model that say how the others are called, and the hash over all of them.
ABOUT_ARRAYS = ("form", "seal")
#: Strings are words and digests; what has blanks or slashes is prose, which may be reworded, or a path.
PROSE = re.compile(r"[\s/]")
LONG = 8


def digest(values: Any) -> str:
    """Kind, shape and hash of an array, and its sum of absolute values, which tells how far another one is."""
    values = np.asarray(values)
    plain = values.astype(str) if values.dtype.hasobject else values
    told = hashlib.sha256(np.ascontiguousarray(plain).tobytes()).hexdigest()[:16]
    total = f" sum {math.fsum(np.abs(values).ravel().tolist()):.12g}" if values.dtype.kind in "fiub" else ""
    return f"{values.dtype} {values.shape} {told}{total}"


def numbers(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers, words and digests of what was JSON, each under its path."""
    if isinstance(value, dict):
        for name in sorted(value):
            timed = name == "bounds" and isinstance(value[name], list)  # by seconds, as often as there was time for
            if not timed and not LEFT_OUT.search(name):
                yield from numbers(value[name], f"{key}/{name}")
    elif isinstance(value, list) and len(value) > LONG and all(isinstance(one, int | float) for one in value):
        yield key, digest(value)
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from numbers(one, f"{key}/{place}")
    elif not (isinstance(value, str) and (PROSE.search(value) or value.startswith("files:"))):  # of paths and times
        yield key, value


class Record(dict[str, Any]):
    """What is known of one job: values by path, of which the first part is the step. Works in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        folder.mkdir(parents=True)

    def put(self, step: str, value: Any) -> None:
        """All numbers of a value under a step."""
        self.update((step + key, one) for key, one in numbers(value))

    def run(self, step: str, *words: Any) -> Any:
        """Run a command in this process; its exit code and its JSON are written down, the latter is returned."""
        done = CliRunner().invoke(command, [str(word) for word in words])
        self[f"{step}/exit"] = done.exit_code
        if done.exit_code == 1:
            self[f"{step}/bug"] = type(done.exception).__name__
        try:
            found = json.loads(done.stdout)
        except ValueError:
            return None
        checks = found.pop("checks", []) if isinstance(found, dict) else []
        self.put(step, found)
        self.update({f"{step}/checks/{one['name']}": one["ok"] for one in checks})
        return found

    def arrays(self, step: str, path: Path) -> None:
        """The arrays of an NPZ file or a Zarr group."""
        if path.is_dir():
            group = zarr.open_group(path, mode="r")
            found = ((name, one) for name, one in group.members(max_depth=None) if isinstance(one, zarr.Array))
            self.update({f"{step}/{name}": digest(one[...]) for name, one in found})
            return
        with np.load(path) as file:
            self.update({f"{step}/{name}": digest(file[name]) for name in file.files if name not in ABOUT_ARRAYS})

    def model(self, step: str, folder: Path) -> None:
        """All numbers of the files of a model's folder, but for its report."""
        for path in sorted(folder.rglob("*")):
            name = f"{step}/{path.relative_to(folder)}"
            if path.suffix == ".npz":
                self.arrays(name, path)
            elif path.suffix == ".json":
                self.put(name, json.loads(path.read_text()))
            elif path.suffix == ".jsonl":
                lines = [dict(numbers(json.loads(line))) for line in path.read_text().splitlines()]
                for key in sorted({key for line in lines for key in line}):
                    self[name + key] = [line.get(key) for line in lines]

    def store(self, step: str, path: Path) -> None:
        """What a store says of itself, and all of its arrays."""
        self.run(f"{step}/info", "info", path, "--json")
        self.run(f"{step}/log", "log", path, "--json")
        self.arrays(f"{step}/arrays", path)

    def mutations(self, step: str, model: Path, store: Path, *words: str) -> None:
        """The verdicts on a model of which one number is another: each of a certificate, and one of each array.

        Of a fleet it is the first member that is changed. Where nothing is changed but written anew, it verifies.
        """
        members = sorted(path.parent for path in model.rglob("model.json"))
        place = (members or [model])[0].relative_to(model)
        files = [path for path in (model / place).glob("*.json") if path.name in ("model.json", "fleet.json")]
        records = {path.name: json.loads(path.read_text()) for path in sorted(files)}

        def verdict(name: str, change: Any) -> None:
            forged = self.folder / "forged"
            shutil.copytree(model, forged)
            change(forged / place)
            self.run(f"{step}/{name}", "verify", forged, store, "--json", "--threads", 1, *words)
            shutil.rmtree(forged)
            for key in [key for key in self if key.startswith(f"{step}/{name}/")]:
                if not key.endswith("/exit") and self[key] is not False:
                    del self[key]  # what else is found of a forged model is not promised

        for name, record in records.items():
            for key, value in numbers(record.get("certificate", {})):
                for word, other in _others(value):

                    def change(folder: Path, name: str = name, key: str = key, other: Any = other) -> None:
                        forged = json.loads((folder / name).read_text())
                        *inner, last = key.strip("/").split("/")
                        entry = forged["certificate"]
                        for part in inner:
                            entry = entry[int(part) if isinstance(entry, list) else part]
                        entry[int(last) if isinstance(entry, list) else last] = other
                        (folder / name).write_text(json.dumps(forged))

                    verdict(f"{name}/{key.strip('/')} {word}", change)
        for path in sorted((model / place).glob("*.npz")):
            if path.name in UNREAD:
                continue
            with np.load(path) as file:
                arrays = {name: file[name] for name in file.files}
            for name in ["nothing", *(name for name in arrays if arrays[name].size)]:
                changed = arrays if name == "nothing" else arrays | {name: _changed(arrays[name])}

                def write(folder: Path, file: str = path.name, changed: Any = changed) -> None:
                    (folder / file).unlink()
                    np.savez(folder / file, **changed)

                verdict(f"{path.name}/{name}", write)


#: Files from which only retraining goes on.
UNREAD = ("retraining.npz", "near-rows.npz")


def _others(value: Any) -> list[tuple[str, Any]]:
    """Other values of one in a certificate."""
    if isinstance(value, bool):
        return [("turned", not value)]
    if isinstance(value, int):
        return [("up", value + 1)]
    if isinstance(value, float):
        return [("up", value + 1e-3 * abs(value)), ("down", value - 1e-3 * abs(value))]
    return [("turned", value[:-1] + ("0" if value[-1] != "0" else "1"))] if isinstance(value, str) else []


def _changed(values: np.ndarray) -> np.ndarray:
    """The array with another value in the place of its largest one."""
    other = values.copy()
    flat = other.reshape(-1)
    place = int(np.abs(flat).argmax()) if flat.dtype.kind in "fiu" else 0
    if flat.dtype.kind == "f":
        flat[place] = flat[place] * 1.001 if flat[place] else 1.0
    elif flat.dtype.kind in "iu":
        flat[place] -= 1
    elif flat.dtype.kind == "b":
        flat[place] = not flat[place]
    elif flat.dtype.kind in "US":
        flat[place] = flat[place][:-1]
    return other
