"""On what the bench ran: processor, memory, versions, date, load."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from threadpoolctl import threadpool_info

from coremargin.spec import format_size

PACKAGES = ("coremargin", "numpy", "scipy", "scikit-learn", "zarr", "dask", "distributed")


def processor() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def load() -> str:
    """Load average over 1, 5 and 15 minutes."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def versions() -> str:
    """Python and the packages that matter, and the BLAS behind NumPy."""
    found = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} from source")
    blas = {f"{pool['internal_api']} {pool['version']}" for pool in threadpool_info() if pool["user_api"] == "blas"}
    found += sorted(blas)
    return ", ".join(found)


def facts() -> dict[str, Any]:
    """What is known before the bench runs; ``load`` is asked again at its end."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": processor(),
        "cores": cores,
        "memory": format_size(psutil.virtual_memory().total),
        "system": f"{platform.system()} {platform.release()}",
        "versions": versions(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load average at the start": load(),
    }
