"""Campaigns about rows in a bucket: the same questions, answers and proofs as about the same rows on this machine."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import coremargin
from coremargin.active import Campaign
from coremargin.active.answer_files import oracle_of
from coremargin.data.synth import Recipe, synth
from coremargin.data.writer import StoreWriter
from coremargin.errors import DataError, RunError, StoreError
from coremargin.formats.campaign import read_campaign
from coremargin.page.row_view import RowView

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    from cloud_kit import BucketServer
    from coremargin.data.store import Store
    from coremargin.formats.location import Location


@pytest.fixture
def rows(server: BucketServer) -> Store:
    """Few enough for a campaign of seconds."""
    return synth(server.root / "buck" / "rows.zarr", Recipe(2_000, 4, chunk_bytes=4_000))


@pytest.fixture
def words(server: BucketServer) -> list[str]:
    """The option of the address."""
    return ["--storage-option", f"endpoint={server.endpoint}"]


def test_a_campaign_from_start_to_proof(
    run: Callable[..., Result], rows: Store, place: Location, words: list[str], tmp_path: Path
) -> None:
    """By commands, which need the options once; the page shows rows; the model is that of the rows as files."""
    found = []
    for store, more in ((str(place), words), (str(rows.path), [])):
        folder = tmp_path / f"{len(more)}.campaign"
        started = run("active", "start", store, "--out", str(folder), "--epsilon", "0.3", "--error", "0.1", *more)
        assert started.exit_code == 0, started.output
        ended = run("active", "run", str(folder), "--oracle", str(rows.path), "--json")
        assert ended.exit_code == 0, ended.output
        found.append(json.loads(ended.stdout))
        assert run("verify", str(folder), store, *more).exit_code == 0
        with Campaign(folder) as campaign:
            assert RowView(campaign.store).content(7)
            campaign.report()
    assert found[0]["store"] == "s3://buck/rows.zarr"
    left = {"seconds", "peak_rss_bytes", "store", "store_options", "out"}
    assert {k: v for k, v in found[0].items() if k not in left} == {k: v for k, v in found[1].items() if k not in left}
    models = [coremargin.load(tmp_path / f"{count}.campaign/model") for count in (2, 0)]
    np.testing.assert_array_equal(models[0].w, models[1].w)
    shown = run("active", "status", str(tmp_path / "2.campaign"))
    assert f"s3://buck/rows.zarr {' '.join(words)}" in shown.output


def test_rows_that_are_appended(rows: Store, place: Location, tmp_path: Path) -> None:
    """Join the campaign at its next scan; a store that lost its rows is refused."""
    with Campaign.create(tmp_path / "c", str(place), storage_options=place.options, classes=[-1, 1]) as campaign:
        assert campaign.newest_rows == 2_000
        with StoreWriter.append(rows.path) as writer:
            writer.write(rows.read(0)[0], [rows.classes[code] for code in rows.read(0)[1]])
        assert campaign.newest_rows == 2_000 + rows.chunk_rows
    synth(rows.path, Recipe(2_000, 4, seed=8, chunk_bytes=4_000), overwrite=True)
    with pytest.raises(StoreError, match="s3://buck/rows.zarr"):
        Campaign(tmp_path / "c")


def test_what_is_wrong_is_named(
    run: Callable[..., Result], rows: Store, place: Location, words: list[str], server: BucketServer, tmp_path: Path
) -> None:
    """As of training; nothing is made."""
    out = str(tmp_path / "c")
    missing = run("active", "start", "s3://buck/none.zarr", "--out", out, *words)
    assert missing.exit_code == 3
    assert "s3://buck/none.zarr: expected a store, found nothing there" in missing.output
    secret = run("active", "start", str(place), "--out", out, "--storage-option", "aws_secret_access_key=hidden")
    assert secret.exit_code == 2
    assert "hidden" not in secret.output
    server.allow = lambda header: "AccessDenied"
    refused = run("active", "start", str(place), "--out", out, *words)
    assert refused.exit_code == 5
    assert "access denied (AccessDenied)" in refused.output
    assert not Path(out).exists()
    server.allow = lambda header: ""
    assert run("active", "start", str(place), "--out", out, *words).exit_code == 0
    server.allow = lambda header: "AccessDenied"
    with pytest.raises(RunError, match="access denied"):
        Campaign(out)


def test_damaged_chunks(rows: Store, place: Location, server: BucketServer, tmp_path: Path) -> None:
    """Are fetched once more, and refused by name where they lie there damaged."""
    seen = Counter[str]()

    def alter(key: str, data: bytes) -> bytes:
        seen[key] += 1
        flipped = "/X/c." in key and (always or seen[key] == 1)
        return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:] if flipped else data

    always, answers = False, oracle_of(rows.path, rows.rows)
    server.alter = alter
    with Campaign.create(tmp_path / "c", place, classes=[-1, 1], epsilon=0.3, error=0.1) as campaign:
        campaign.run(answers, most=5)
    assert max(seen.values()) > 1
    always = True
    with pytest.raises(DataError, match=r"s3://buck/rows.zarr: chunk .*, file X/c"):
        Campaign.create(tmp_path / "d", place, classes=[-1, 1], epsilon=0.3, error=0.1).run(answers)


def test_options_in_the_file_of_a_campaign(rows: Store, place: Location, tmp_path: Path) -> None:
    """Are those of addresses, and never credentials."""
    Campaign.create(tmp_path / "c", place, classes=[-1, 1]).close()
    data = (tmp_path / "c/campaign.toml").read_bytes()
    assert read_campaign(data, "c").location.options == place.options
    for old, new in (
        (b'store = "s3://buck/rows.zarr"', b'store = "/rows.zarr"'),
        (b"[store_options]\n", b'[store_options]\naws_secret_access_key = "x"\n'),
        (b"[store_options]\n", b'[store_options]\nanon = "1"\n'),
    ):
        assert old in data
        with pytest.raises(DataError, match="store_options|credentials"):
            read_campaign(data.replace(old, new), "c")
