"""Commands on stores in buckets: as on files, with options, without a word about secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import coremargin
from cloud_kit import KEYS
from coremargin.data.amend import write_labels
from coremargin.data.synth import Recipe, synth
from coremargin.formats.location import location

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    from cloud_kit import BucketServer
    from coremargin.data.store import Store
    from coremargin.formats.location import Location


@pytest.fixture
def options(server: BucketServer) -> list[str]:
    """Those of the bucket."""
    return ["--storage-option", f"endpoint={server.endpoint}"]


def bits(model: Path) -> bytes:
    """What a model is."""
    return (model / "arrays.npz").read_bytes()


def test_train_verify_predict_evaluate(
    run: Callable[..., Result], rows: Store, place: Location, options: list[str], tmp_path: Path
) -> None:
    """The same model as of the files, which both prove; the same predictions."""
    local, found = tmp_path / "local.model", tmp_path / "found.model"
    assert run("train", str(rows.path), "--out", str(local), "--epsilon", "0.01").exit_code == 0
    trained = run("train", str(place), "--out", str(found), "--epsilon", "0.01", *options)
    assert trained.exit_code == 0, trained.output
    assert bits(local) == bits(found)
    assert f"verify {found} {place} --storage-option endpoint=" in trained.output.replace("\n", " ")
    for words in (["verify", str(found), str(place), *options], ["verify", str(found), str(rows.path)]):
        result = run(*words)
        assert result.exit_code == 0, result.output
    for name, store, more in (("a.csv", str(rows.path), []), ("b.csv", str(place), options)):
        result = run("predict", str(found), store, str(tmp_path / name), *more)
        assert result.exit_code == 0, result.output
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    answers = [
        json.loads(run("evaluate", str(found), *words, "--json", "-q").stdout)
        for words in ([str(rows.path)], [str(place), *options])
    ]
    assert answers[0]["accuracy"] == answers[1]["accuracy"]


def test_info_check_log(run: Callable[..., Result], rows: Store, place: Location, options: list[str]) -> None:
    """As of the files, but for the name."""
    for command in ("info", "check", "log"):
        words = [] if command != "check" else ["-q"]
        local, found = (
            run(command, str(rows.path), "--json", *words),
            run(command, str(place), "--json", *words, *options),
        )
        assert found.exit_code == 0, found.output
        assert json.loads(found.stdout) == json.loads(local.stdout) | {"store": str(place)}
    text = run("info", str(place), *options)
    assert str(place) in text.output


def test_a_web_server(run: Callable[..., Result], rows: Store, server: BucketServer) -> None:
    """Cannot list; all but the bytes on disk is known."""
    address = f"{server.endpoint}/buck/rows.zarr"
    for command in ("info", "check"):
        result = run(command, address)
        assert result.exit_code == 0, result.output
    assert json.loads(run("info", address, "--json").stdout)["stored_bytes"] is None


def test_jobs(run: Callable[..., Result], rows: Store, place: Location, tmp_path: Path) -> None:
    """A job file names the address and its options; `plan` shows them; a retraining reads what has changed."""
    table = f'[store]\naddress = "{place}"\nendpoint_url = "{place.options["endpoint"]}"\n'
    job = tmp_path / "job.toml"
    job.write_text(f'job = "train"\nout = "rows.model"\nepsilon = 0.01\n{table}')
    planned = run("plan", str(job))
    assert planned.exit_code == 0, planned.output
    assert f'address = "{place}"' in planned.output
    assert run("run", str(job)).exit_code == 0
    write_labels(rows.path, np.array([3]), np.array([rows.read(0)[1][3]]))
    again = tmp_path / "again.toml"
    again.write_text(f'job = "retrain"\nmodel = "rows.model"\nout = "next.model"\n{table}')
    result = run("run", str(again))
    assert result.exit_code == 0, result.output
    options = [f"endpoint={place.options['endpoint']}"]
    words = ["verify", str(tmp_path / "next.model"), str(place), "--storage-option", *options]
    assert run(*words).exit_code == 0


@pytest.mark.parametrize("damage", ["flip", "delete"])
def test_verify_finds_damage(
    run: Callable[..., Result], rows: Store, place: Location, options: list[str], tmp_path: Path, damage: str
) -> None:
    """A chunk that is altered or gone is never read as fill values."""
    model = tmp_path / "rows.model"
    assert run("train", str(rows.path), "--out", str(model), "--epsilon", "0.01").exit_code == 0
    file = rows.path / "X/c.7.0"
    data = file.read_bytes()
    file.write_bytes(data[:200] + bytes([data[200] ^ 16]) + data[201:])
    if damage == "delete":
        file.unlink()
    for words in (["verify", str(model), str(place)], ["check", str(place)]):
        result = run(*words, *options)
        assert result.exit_code == 3, result.output
        assert "chunk 7" in result.output


def test_verify_survives_a_network(
    run: Callable[..., Result], rows: Store, place: Location, options: list[str], tmp_path: Path, server: BucketServer
) -> None:
    """Bits that flip on their way are fetched once more."""
    model = tmp_path / "rows.model"
    assert run("train", str(rows.path), "--out", str(model), "--epsilon", "0.01").exit_code == 0
    faults = server.faults
    faults.busy, faults.reset, faults.flip = 0.03, 0.03, 0.1
    result = run("verify", str(model), str(place), *options)
    assert result.exit_code == 0, result.output
    assert faults.happened["flip"] > 0


def test_no_secret_is_written_down(
    run: Callable[..., Result], rows: Store, place: Location, options: list[str], tmp_path: Path, server: BucketServer
) -> None:
    """Not in models, checkpoints, reports, messages or errors, whatever goes wrong."""
    seen = list[str]()
    model = tmp_path / "out" / "rows.model"
    for words in (
        ["train", str(place), "--out", str(model), "--epsilon", "0.01", "--cluster", "embedded"],
        ["verify", str(model), str(place)],
        ["info", "s3://missing/rows.zarr"],
        ["train", str(place), "--out", str(model), "--max-scans", "1", "--overwrite"],
    ):
        result = run(*words, *options)
        seen += [result.output, repr(result.exception)]
    server.allow = lambda header: "SignatureDoesNotMatch"
    denied = run("info", str(place), *options)
    assert denied.exit_code == 5
    assert "access denied (SignatureDoesNotMatch), with the credentials that botocore found (env)" in denied.output
    seen += [denied.output]
    seen += [path.read_bytes().decode("latin-1") for path in (tmp_path / "out").rglob("*") if path.is_file()]
    for secret in (KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"]):
        assert not any(secret in text for text in seen)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["info", "s3://key:hidden@bucket/rows.zarr"], "without user and password"),
        (["info", "https://host/rows.zarr?X-Amz-Signature=hidden"], "without a query"),
        (["info", "az://c/rows.zarr?sv=1&sig=hidden"], "without a query"),
        (["info", "s3://b/r", "--storage-option", "aws_secret_access_key=hidden"], "credentials are no options"),
        (["info", "s3://b/r", "--storage-option", "endpoint=http://u:hidden@host"], "without user"),
        (["info", "s3://b/r", "--storage-option", "regoin=x"], "not known"),
        (["info", "s3://b/r", "--storage-option", "hidden"], "KEY=VALUE"),
        (["info", "s3://b/../r"], "none of them empty"),
        (["info", "rows.zarr", "--storage-option", "region=x"], "is a path"),
    ],
)
def test_addresses_and_options_that_are_refused(run: Callable[..., Result], words: list[str], message: str) -> None:
    """By name, without what may be a secret."""
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.output
    assert "hidden" not in result.output


@pytest.mark.parametrize(
    "words",
    [
        ["active", "start", "rows.zarr", "--out", "{}"],
        ["nightly", "status", "{}"],
    ],
)
def test_other_commands_refuse_addresses(
    run: Callable[..., Result], place: Location, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name; nothing is made of such a name on this machine."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,label\n1,x\n2,y\n")
    before = sorted(tmp_path.rglob("*"))
    result = run(*(word.format(place) for word in words))
    assert result.exit_code == 2, result.output
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ('{ address = "s3://b/r", aws_secret_access_key = "hidden" }', "credentials are no options"),
        ('"s3://key:hidden@b/r"', "without user and password"),
        ('{ address = "abfs://c:hidden@account/r" }', "without user and password"),
        ('{ address = "s3://b/r", endpoint = "https://h?sig=hidden" }', "without user and query"),
        ('{ region = "hidden" }', "not an address"),
        ('{ address = "rows.zarr", region = "hidden" }', "not an address"),
    ],
)
@pytest.mark.parametrize("kind", ["train", "retrain"])
def test_job_files_that_are_refused(
    run: Callable[..., Result], tmp_path: Path, store: str, message: str, kind: str
) -> None:
    """By the name of the file, without what may be a secret."""
    job = tmp_path / "job.toml"
    model = 'model = "a"\n' if kind == "retrain" else ""
    job.write_text(f'job = "{kind}"\n{model}out = "b"\nstore = {store}\n')
    result = run("run", str(job))
    assert result.exit_code == 2
    assert message in result.output
    assert "job.toml: store: " in result.output
    assert "hidden" not in result.output


def test_options_of_others() -> None:
    """Names that delta-rs, polars and s3fs use mean the same."""
    names = {"aws_endpoint_url": "http://h:1", "AWS_REGION": "eu-west-1", "anon": "True", "requester_pays": "yes"}
    assert location("s3://b/r", names).options == {
        "endpoint": "http://h:1",
        "region": "eu-west-1",
        "skip_signature": "true",
        "request_payer": "true",
    }


def test_a_store_is_not_listed_where_it_need_not_be(
    run: Callable[..., Result], rows: Store, place: Location, options: list[str], tmp_path: Path, server: BucketServer
) -> None:
    """A key that may only read is enough to train and verify."""
    server.hidden = True
    model = tmp_path / "rows.model"
    assert run("train", str(place), "--out", str(model), "--epsilon", "0.01", *options).exit_code == 0
    assert run("verify", str(model), str(place), *options).exit_code == 0


def test_sparse_rows(run: Callable[..., Result], server: BucketServer, options: list[str], tmp_path: Path) -> None:
    """Are verified, too, also compressed ones."""
    path = server.root / "buck" / "sparse.zarr"
    synth(path, Recipe(2000, 200, chunk_bytes=20_000, density=0.1))
    model = tmp_path / "rows.model"
    assert run("train", "s3://buck/sparse.zarr", "--out", str(model), "--epsilon", "0.01", *options).exit_code == 0
    result = run("verify", str(model), "s3://buck/sparse.zarr", *options)
    assert result.exit_code == 0, result.output


def test_a_server_that_changes_its_mind(rows: Store, place: Location, server: BucketServer, tmp_path: Path) -> None:
    """Metadata that name another codec the second time are never opened by zarr-python."""
    model = tmp_path / "rows.model"
    coremargin.train(rows, out=model, epsilon=0.01)
    file, asked = rows.path / "X/zarr.json", list[bytes]()
    kept = file.read_bytes()

    def change(header: str) -> str:
        times = sum(key.endswith("X/zarr.json") for _, key in server.requests)
        file.write_bytes(kept if times <= 1 else kept.replace(b'"bytes"', b'"evil"'))
        asked.append(file.read_bytes())
        return ""

    server.allow = change
    assert coremargin.verify(model, str(place), storage_options=place.options).ok
    assert kept in asked
