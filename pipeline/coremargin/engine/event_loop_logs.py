"""Hides log messages of the event loops that run a cluster; the debug log has them.

Dask leaves tasks behind when workers are killed, a start fails or a run ends: asyncio reports each with a traceback
("Task exception was never retrieved", "Task was destroyed but it is pending"), and tornado those of its callbacks.
Errors of a cluster that matter reach the driver as exceptions of a call.
"""

from __future__ import annotations

import logging
import traceback

log = logging.getLogger(__name__)

#: Loggers of event loops; other programs in this process may use them, too.
LOOPS = ("asyncio", "tornado.application", "tornado.general")


class ClusterMessages(logging.Filter):
    """Passes records unless they, or their tracebacks, name files of ``distributed``.

    One message names none: interrupted before its first step, ``distributed.utils.sync`` cancels a future that does not
    exist yet. The interrupt itself arrives as usual.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage() + ("" if error is None else "".join(traceback.format_exception(error)))
        if "/distributed/" not in text and not (isinstance(error, NameError) and error.name == "future"):
            return True
        log.debug("%s", text)
        return False


_CLUSTER_MESSAGES = ClusterMessages()


def hide_cluster_messages() -> None:
    """Hide messages of event loops about clusters for the rest of this process."""
    for name in LOOPS:
        logging.getLogger(name).addFilter(_CLUSTER_MESSAGES)  # once, however often
