"""A certificate of our own, for clusters of this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from coremargin.engine.clusters.specs import Tls


def own_certificate(folder: Path) -> Tls:
    """Valid for 127.0.0.1 for two days; the test is skipped where there is no openssl to make it with."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    key, cert = folder / "key.pem", folder / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    words += ["-keyout", str(key), "-out", str(cert), "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(words, check=True, capture_output=True)
    return Tls(ca=cert, cert=cert, key=key)
