"""An sshd on 127.0.0.1 with keys of its own, as a process of this test; all it writes lies in one folder."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from cluster_kit import absent, dies_with_us, free_ports, path_of_daemons

CONFIGURATION = """
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
"""
#: sshd as root wants an empty folder that only boot scripts make: it gets one of its own, which nobody else sees.
OWN_RUN = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && mkdir /run/sshd && exec "$@"', "sh"]


def missing() -> str | None:
    """Why there can be no sshd here; None where there can."""
    if names := absent("sshd", "ssh", "ssh-keygen"):
        return f"no {names} here: apt-get install openssh-server"
    if os.geteuid() == 0 and not Path("/run/sshd").is_dir():
        tried = subprocess.run([*OWN_RUN, "true"], capture_output=True, check=False)
        return "no /run/sshd here, and none of our own: mounting is not allowed" if tried.returncode else None
    return None


class LocalSshd:
    """``options`` lead the ssh command here, as this user, without asking anything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        (self.port,) = free_ports(1)
        (folder / "sshd_config").write_text(CONFIGURATION.format(folder=folder, port=self.port))
        sshd = shutil.which("sshd", path=path_of_daemons())
        words = [str(sshd), "-D", "-e", "-f", str(folder / "sshd_config")]
        if os.geteuid() == 0 and not Path("/run/sshd").is_dir():
            words = [*OWN_RUN, *words]
        with (folder / "sshd.log").open("wb") as log:
            self._daemon = subprocess.Popen(
                [*dies_with_us(), *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.options = (
            *("-F", "none", "-p", str(self.port), "-l", pwd.getpwuid(os.geteuid()).pw_name),
            *("-i", str(folder / "user_key"), "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=accept-new"),
            *("-o", f"UserKnownHostsFile={folder / 'known_hosts'}", "-o", "LogLevel=ERROR"),
        )

    def __enter__(self) -> Self:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                if self._daemon.poll() is not None or time.monotonic() > deadline:
                    self.__exit__()
                    raise AssertionError((self.folder / "sshd.log").read_text()) from None
                time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._daemon.terminate()
        self._daemon.wait(20)
