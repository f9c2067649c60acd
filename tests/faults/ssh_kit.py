"""An sshd on 127.0.0.1 with keys of its own, as a process of this test; all it writes lies in one folder."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path

from daemons_kit import LocalDaemons, absent, free_ports, path_of_daemons

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


class LocalSshd(LocalDaemons):
    """``options`` lead the ssh command here, as this user, without asking anything."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self.port,) = free_ports(1)
        self.options = (
            *("-F", "none", "-p", str(self.port), "-l", pwd.getpwuid(os.geteuid()).pw_name),
            *("-i", str(folder / "user_key"), "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=accept-new"),
            *("-o", f"UserKnownHostsFile={folder / 'known_hosts'}", "-o", "LogLevel=ERROR"),
        )

    def begin(self) -> None:
        """Make keys, start sshd, and wait until it listens."""
        for name in ("host_key", "user_key"):
            self.ask("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
        (self.folder / "sshd_config").write_text(CONFIGURATION.format(folder=self.folder, port=self.port))
        sshd = shutil.which("sshd", path=path_of_daemons())
        words = [str(sshd), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        own = os.geteuid() == 0 and not Path("/run/sshd").is_dir()
        self.start(*OWN_RUN, *words) if own else self.start(*words)
        self.wait_for(self._listens)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True
