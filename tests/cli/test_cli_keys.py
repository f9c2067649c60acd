"""Keys on the command line: given at ingest, and then rows go, and are corrected, by the numbers that people know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    Run = Callable[..., Result]


@pytest.fixture
def orders(run_cli: Run, tmp_path: Path) -> Path:
    """A store of 20 orders, numbered from 4700, of which every other one is paid."""
    lines = [f"{4700 + number},{number / 2},{1 - number},{'yes' if number % 2 else 'no'}" for number in range(20)]
    (tmp_path / "orders.csv").write_text("\n".join(["order,x,z,paid", *lines]) + "\n")
    done = run_cli("ingest", tmp_path / "orders.csv", tmp_path / "o.zarr", "--label", "paid", "--key", "order")
    assert "keys from column 'order'" in done.output
    return tmp_path / "o.zarr"


def file(orders: Path, content: str) -> Path:
    """A table beside the store."""
    path = orders.with_name("given.csv")
    path.write_text(content)
    return path


def test_rows_go_and_change_by_key(run_cli: Run, orders: Path) -> None:
    """Named on the command line or in files; what is said of rows names their keys."""
    done = run_cli("remove", orders, "--key", "4711", "--key", "4712.0")
    assert done.output.startswith(f"{orders}: 2 rows removed\n")
    done = run_cli("remove", orders, "--from", file(orders, "order,why\n4713,asked\n"))
    assert done.output.startswith(f"{orders}: 1 row removed\n")
    done = run_cli("reweigh", orders, file(orders, "weight,order\n2,4711\n0.5,4700\n"))
    assert done.output.startswith(f"{orders}: 1 row restored, 1 row with another weight\n")
    done = run_cli("relabel", orders, file(orders, "order,label\n4701,no\n4702,yes\n"))
    assert "key '4701' (row 1): 'yes' became 'no'" in done.output
    found = json.loads(run_cli("info", orders, "--json").output)
    assert (found["key_column"], found["features"]) == ("order", 2)
    assert "order   keys" in run_cli("info", orders).output
    run_cli("check", orders)
    run_cli("compact", orders)
    assert run_cli("remove", orders, "--key", "4719").output.startswith(f"{orders}: 1 row removed\n")


@pytest.mark.parametrize(
    ("command", "content", "message"),
    [
        ("relabel", "order,label\n4701,no\n4799,yes\n", "given.csv, line 3: found the key '4799', which no row of "),
        ("relabel", "order,label\n4701,no\n,yes\n", "given.csv, line 3, column 'order': found no key"),
        (
            "relabel",
            "order,label\n4701,no\n4701.0,no\n",
            "given.csv, line 3: expected each row once, found key '4701' (row 1) twice",
        ),
        ("relabel", "order,row,label\n4701,1,no\n", "found columns 'row' and 'order', expected one that names rows"),
        (
            "relabel",
            "number,label\n4701,no\n",
            "expected a column 'order' of keys, or 'row' of row ids, found 'number'",
        ),
        ("reweigh", "order,weight\n4701,2\n17,2\n", "given.csv, line 3: found the key '17', which no row of "),
        ("reweigh", "order,weight\n4701,-2\n", "given.csv, line 2, column 'weight': found weight -2"),
    ],
)
def test_what_is_refused(run_cli: Run, orders: Path, command: str, content: str, message: str) -> None:
    """An unknown key, one that is not there or there twice, with file and line; nothing is changed."""
    before = (orders / "zarr.json").read_bytes()
    done = run_cli(command, orders, file(orders, content), exit_code=None)
    assert done.exit_code != 0
    assert message in done.output
    assert (orders / "zarr.json").read_bytes() == before


def test_removing_twice_and_in_two_ways(run_cli: Run, orders: Path) -> None:
    """A key whose row is gone is told by its name; ids, files and keys do not go together."""
    run_cli("remove", orders, "--key", "4711")
    done = run_cli("remove", orders, "--from", file(orders, "order\n4710\n4711\n"), exit_code=2)
    assert "given.csv, line 3: key '4711' (row 11) has been taken out already" in done.output
    for words in (("17", "--key", "4701"), (), ("--key", "1", "--from", str(orders)), ("17", "--group", "a")):
        done = run_cli("remove", orders, *words, exit_code=2)
        assert "expected row ids, --from FILE, --key KEY or --group ID, and only one of these" in done.output
    done = run_cli("remove", orders, "3-5")
    assert done.output.startswith(f"{orders}: 3 rows removed\n")


@pytest.mark.parametrize("rows", ["5-3", "20", "0-20", "7-" + "9" * 30, "9" * 30])
def test_ranges_that_cannot_be(run_cli: Run, orders: Path, rows: str) -> None:
    """Ranges the wrong way round, and of rows that are not there, however many they would be."""
    done = run_cli("remove", orders, rows, exit_code=2)
    assert f"{rows!r}: expected row ids from 0 to 19; in a range the smaller id comes first" in done.stderr
