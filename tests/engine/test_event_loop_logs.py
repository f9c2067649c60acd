"""Complaints of event loops about clusters are not shown; those about anything else are."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

import distributed
import pytest

from coremargin.engine.event_loop_logs import LOOPS, hide_cluster_messages


def shown(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The loggers of what was shown."""
    found = [record.name for record in caplog.records if record.name in LOOPS]
    caplog.clear()
    return found


def test_tasks_of_a_cluster_that_nobody_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    """A task of distributed that fails, or is thrown away, is nobody's business; one of another program is shown."""
    hide_cluster_messages()

    async def fails() -> NoReturn:
        raise OSError("mine")

    async def program(task: object) -> None:
        asyncio.ensure_future(task)  # type: ignore[call-overload]  # noqa: RUF006 - nobody keeps it
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(program(distributed.utils.All([fails()])))
    assert shown(caplog) == []
    asyncio.run(program(fails()))
    assert shown(caplog) == ["asyncio"]


@pytest.mark.parametrize("name", LOOPS)
def test_records_are_told_apart_by_files(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of the message or of its traceback."""
    hide_cluster_messages()
    logger = logging.getLogger(name)
    logger.critical("Task exception was never retrieved\nfuture: <Task coro=<f() done, /x/distributed/nanny.py:9>>")
    try:
        distributed.comm.resolve_address("nowhere://1")
    except ValueError:
        logger.exception("in a callback")
    assert shown(caplog) == []
    logger.critical("Task exception was never retrieved\nfuture: <Task coro=<f() done, /x/mine.py:9>>")
    assert shown(caplog) == [name]
