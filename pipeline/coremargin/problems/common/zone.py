"""The zone near the margin: rows whose sides a step may change, and which therefore come home from a scan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Zone:
    """widen: how much wider than at first the zone is; idle: scans in a row that hardly narrowed the gap."""

    widen: int
    idle: int
