"""What users of other projects reported about object storage, and the test here that shows what happens instead.

Reports whose case another test shows are only linked to it; the tests below show the others.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coremargin
from cloud_kit import WaitProbe
from coremargin.data.store import Store
from coremargin.engine.clusters.embedded import start_embedded
from coremargin.engine.plan import plan_blocks
from coremargin.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloud_kit import BucketServer
    from coremargin.formats.location import Location

TESTS = Path(__file__).parents[1]
HERE = "cloud/test_public_reports.py"

#: Project and number, and the tests that show the case.
REPORTS: dict[str, tuple[str, ...]] = {
    # workers have no credentials although the driver has
    "dask/dask-kubernetes#372": (f"{HERE}::test_workers_without_credentials",),
    "pangeo-data/pangeo-cloud-federation#485": (
        "cloud/test_workers.py::test_a_refusal_on_a_worker_is_reported_by_name",
    ),
    # KilledWorker, in truth a token of a service account that cannot be read
    "pangeo-data/pangeo-binder#137": (f"{HERE}::test_a_token_that_cannot_be_read",),
    # a token expires in the middle of a long job
    "fsspec/s3fs#632": ("cloud/test_credentials.py::test_credentials_that_expire_are_renewed",),
    "dask/dask-cloudprovider#422": ("cloud/test_credentials.py::test_credentials_that_expire_are_renewed",),
    # a missing chunk reads as NaN
    "zarr-developers/zarr-python#486": ("cloud/test_object_storage.py::test_damage",),
    "pydata/xarray#9701": ("cloud/test_commands.py::test_verify_finds_damage",),
    # a public bucket "does not exist", after minutes, where there are no credentials
    "ScrollPrize/villa#1665": (
        "cloud/test_credentials.py::test_no_credentials_are_reported_at_once",
        "cloud/test_credentials.py::test_a_public_bucket",
    ),
    # a store that was just written looks empty, by an old listing
    "pangeo-forge/pangeo-forge-recipes#113": (f"{HERE}::test_an_old_listing",),
    # a stream breaks off in the middle of an array; SlowDown is not tried again
    "earth-mover/icechunk#363": (
        "cloud/test_object_storage.py::test_faults_of_a_network",
        "cloud/test_sources.py::test_an_answer_without_its_end_is_fetched_again",
    ),
    "earth-mover/icechunk#1767": ("cloud/test_sources.py::test_faults_of_a_network",),
    # of two writers, one commit is lost
    "delta-io/delta#1830": (
        "data/test_storage.py::test_a_commit_that_another_overtook_is_refused",
        "cloud/test_many_writers.py::test_sixteen_writers",
    ),
    "delta-io/delta-rs#2843": ("cloud/test_conditional_puts.py::test_one_of_many_writers_wins",),
    # a server ignores conditions, or knows half of them
    "minio/minio#21526": ("cloud/test_conditional_puts.py::test_a_server_that_ignores_conditions",),
    "versity/versitygw#1708": ("cloud/test_conditional_puts.py::test_a_server_that_ignores_conditions",),
    # the output of a killed job is taken in by the next
    "apache/spark#25795": (f"{HERE}::test_what_a_killed_job_left", "data/test_crash.py::test_killed_at_every_step"),
    # all rows must fit into the memory of the cluster
    "dmlc/xgboost#6217": ("cloud/test_object_storage.py::test_memory_for_what_is_fetched_ahead_is_bounded",),
    "dmlc/xgboost#10853": ("cloud/test_sources.py::test_memory_for_what_is_fetched_ahead_is_bounded",),
    "dask/dask-ml#765": ("data/test_ingest_memory.py::test_memory_does_not_grow_with_the_source",),
    # addresses of buckets are an untested feature, or none
    "dmlc/xgboost#9470": ("cloud/test_services.py::test_the_same_from_servers_of_others",),
    "lightgbm-org/LightGBM#1039": (
        "cloud/test_commands.py::test_train_verify_predict_evaluate",
        "cloud/test_sources.py::test_training_from_an_object",
    ),
}


@pytest.mark.parametrize("report", list(REPORTS))
def test_each_report_has_its_test(report: str) -> None:
    """Under the name that is linked here."""
    for link in REPORTS[report]:
        file, _, name = link.partition("::")
        tree = ast.parse((TESTS / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, link


def test_workers_without_credentials(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """They say so by themselves, at once, although the driver can read: its credentials stay with it."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    own = {name: os.environ[name] for name in names}
    store = Store.open(place)
    store.scalars()
    for name in names:
        monkeypatch.delenv(name)
    with start_embedded(workers=1, threads=1) as executor:
        for name in names:
            monkeypatch.setenv(name, own[name])
        Store.open(place)
        with pytest.raises(RunError, match="no credentials found; set the environment variables") as caught:
            list(executor.run(store, WaitProbe(0.0), plan_blocks(store)))
    assert any("on worker" in note for note in caught.value.__notes__)


def test_a_token_that_cannot_be_read(place: Location, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Is reported as such, not as a worker that died or a bucket that is not there."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path))  # a folder: nobody can read it, not even root
    with pytest.raises(RunError, match=r"s3://buck/rows.zarr: botocore cannot get credentials \(IsADirectoryError"):
        Store.open(place)


def test_an_old_listing(place: Location, rows: Store, server: BucketServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not matter: chunks and commits of a store are known by its records, which are read."""

    def empty(handler: Any, *_: Any) -> None:
        handler.answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>", {})

    monkeypatch.setattr(server._server.RequestHandlerClass, "list", empty)
    found = Store.open(place)
    assert found.digest == rows.digest
    assert coremargin.train(found).status == "certified"


def test_what_a_killed_job_left(at: Callable[..., Location], server: BucketServer, tmp_path: Path) -> None:
    """Spark's files of tasks that were not committed are not taken for rows."""
    folder = server.root / "buck" / "out"
    left = folder / "_temporary" / "0" / "_temporary" / "attempt_202611280000_0001_m_000000_0"
    left.mkdir(parents=True)
    table = pa.table({"a": [1.0, 2.0, 3.0], "label": [0, 1, 0]})
    pq.write_table(table, folder / "part-00000.parquet")
    pq.write_table(table, left / "part-00001.parquet")
    pq.write_table(table, folder / ".part-00002.parquet.crc")
    assert coremargin.ingest(at("out"), tmp_path / "rows.zarr").rows == 3
