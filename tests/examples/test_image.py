"""cluster/Dockerfile: what a linter says of it, and its steps in a container."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wheel_kit import build_wheel, site_packages

#: What Docker gives to a process of root by default, as far as building needs it.
CAPABILITIES = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_SETGID", "CAP_SETUID"]
BASE = "/opt/base"  #: where the container has the Python of the base image


def instructions(dockerfile: Path) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile with their arguments; lines that go on are joined."""
    text = re.sub(r"\\\n\s*", "", dockerfile.read_text())
    for line in text.splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word, rest


def test_a_linter_finds_nothing(repository: Path) -> None:
    """hadolint has no complaints about the file, and has one if it ends as root."""
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("no hadolint on this machine")
    text = (repository / "cluster" / "Dockerfile").read_text()
    for changed, code in ((text, 0), (f"{text}USER root\n", 1)):
        done = subprocess.run([hadolint, "-"], input=changed, capture_output=True, text=True, check=False, timeout=120)
        assert (done.returncode, bool(done.stdout)) == (code, bool(code)), done.stdout


def test_it_ends_as_a_user_by_number(repository: Path) -> None:
    """Kubernetes refuses a name with runAsNonRoot, which the manifest has; nothing sets an entry point, which would get
    the commands of pods as arguments.
    """
    found = list(instructions(repository / "cluster" / "Dockerfile"))
    assert [rest for word, rest in found if word == "USER"] == ["1000:1000"]
    assert {word for word, _ in found} == {"ARG", "FROM", "RUN", "USER", "WORKDIR", "CMD"}


class Container:
    """Runs processes by runc, in a layer above this machine's files, without a network."""

    def __init__(self, folder: Path) -> None:
        """Mounts the layer; the base image's Python is a virtual environment with this interpreter's packages."""
        self.folder, self.root = folder, folder / "layer" / "root"
        (folder / "layer").mkdir()
        self._mount("-t", "tmpfs", "none", folder / "layer")  # a layer cannot lie in what it is above
        for name in ("root", "upper", "work"):
            (folder / "layer" / name).mkdir()
        try:
            options = f"lowerdir=/,upperdir={folder}/layer/upper,workdir={folder}/layer/work"
            self._mount("-t", "overlay", "none", "-o", options, self.root)
        except BaseException:
            self.close()
            raise
        users = {"passwd": "root:x:0:0::/root:/bin/sh", "group": "root:x:0:", "shadow": "root:*:0::::::", "gshadow": ""}
        for name, line in users.items():  # those of a base image, not of this machine
            (self.root / "etc" / name).write_text(f"{line}\n" if line else "")
        for place in (Path(sys.base_prefix), *map(Path, site_packages())):
            for parent in (place, *place.parents[:-1]):  # a home may be closed to others
                (self.root / parent.relative_to("/")).chmod(0o755)
        python = self.root / BASE.removeprefix("/")
        subprocess.run([sys.executable, "-m", "venv", "--copies", "--without-pip", python], check=True, timeout=120)
        own = next((python / "lib").iterdir()) / "site-packages"
        (own / "packages.pth").write_text("\n".join(site_packages()))
        (python / "bin" / "pip").write_text(f'#!/bin/sh\nexec {BASE}/bin/python -m pip "$@"\n')
        (python / "bin" / "pip").chmod(0o755)
        self.runs = 0

    @staticmethod
    def _mount(*words: object) -> None:
        subprocess.run(["mount", *map(str, words)], check=True, capture_output=True, timeout=60)

    def close(self) -> None:
        """Remove the layer."""
        for place in (self.root, self.folder / "layer"):
            subprocess.run(["umount", "--lazy", place], check=False, capture_output=True, timeout=60)

    def run(
        self, words: list[str], *, user: str = "0:0", cwd: str = "/", mounts: tuple[tuple[Path, str], ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a command; only root has capabilities, and no process gets more than it has."""
        self.runs += 1
        uid, gid = map(int, user.split(":"))
        held = CAPABILITIES if uid == 0 else []
        kinds = ("bounding", "effective", "permitted")
        home = "/root" if uid == 0 else "/home/coremargin"
        variables = {"PATH": f"{BASE}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": home, "PIP_NO_INDEX": "1"}
        variables |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
        config: dict[str, Any] = {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": uid, "gid": gid},
                "args": words,
                "env": [f"{name}={value}" for name, value in variables.items()],
                "cwd": cwd,
                "capabilities": dict.fromkeys(kinds, held),
                "noNewPrivileges": True,
            },
            "root": {"path": str(self.root)},
            "hostname": "image",
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "mode=1777"]},
                {"destination": "/tmp", "type": "tmpfs", "source": "tmp", "options": ["nosuid", "mode=1777"]},
                *(
                    {"destination": there, "type": "bind", "source": str(here), "options": ["rbind", "ro"]}
                    for here, there in mounts
                ),
            ],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")]},
        }
        bundle = self.folder / f"bundle{self.runs}"
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(config))
        name = f"coremargin-{os.getpid()}-{self.runs}"
        command = ["runc", "--root", str(self.folder / "state"), "run", "--bundle", str(bundle), name]
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600
        )


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_its_steps_run_in_a_container(repository: Path, tmp_path: Path) -> None:
    """The steps install the wheel; then the image's user, who cannot write to it, trains and verifies."""
    if shutil.which("runc") is None or os.geteuid() != 0:
        pytest.skip("needs runc, and root to mount layers")
    wheel = build_wheel(repository, tmp_path / "dist")
    try:
        container = Container(tmp_path)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no layers here: {error.stderr!r}")
    try:
        user, folder, command = "0:0", "/", list[str]()
        for word, rest in instructions(repository / "cluster" / "Dockerfile"):
            if word == "RUN":
                mount = re.match(r"--mount=type=bind,source=dist,target=(\S+) ", rest)
                mounts = ((wheel.parent, mount[1]),) if mount else ()
                done = container.run(["/bin/sh", "-c", rest[mount.end() if mount else 0 :]], user=user, mounts=mounts)
                assert done.returncode == 0, f"{rest}: {done.stdout}{done.stderr}"
            elif word == "USER":
                user = rest
            elif word == "WORKDIR":
                folder = rest
            elif word == "CMD":
                command = json.loads(rest)

        def run(words: list[str]) -> str:
            done = container.run(words, user=user, cwd=folder)
            assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
            return done.stdout

        assert "coremargin train" in run(command)
        where = "import coremargin, os; print(os.getuid(), os.getpid(), coremargin.__file__)"
        uid, pid, file = run(["python", "-c", where]).split()
        assert (uid, pid) == ("1000", "1")
        assert file.startswith(f"{BASE}/lib/")
        assert container.run(["touch", f"{BASE}/bin/new"], user=user).returncode != 0
        run(["coremargin", "synth", "rows.zarr", "--rows", "3000", "--features", "5"])
        assert "certified" in run(["coremargin", "train", "rows.zarr", "--out", "rows.model"])
        run(["coremargin", "verify", "rows.model", "rows.zarr"])
        assert "worker" in run(["python", "-m", "dask", "worker", "--help"])
    finally:
        container.close()
