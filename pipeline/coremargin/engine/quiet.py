"""What event loops complain of that run a cluster: the complaints are logged for those who debug, not shown.

Dask leaves tasks behind when workers are killed, a start fails or a run ends: asyncio reports each with a traceback
("Task exception was never retrieved", "Task was destroyed but it is pending"), and tornado those of its callbacks. What
matters of a cluster reaches the driver as an error of a call.
"""

from __future__ import annotations

import logging
import traceback

log = logging.getLogger(__name__)

#: Loggers of event loops; other programs in this process may use them, too.
LOOPS = ("asyncio", "tornado.application", "tornado.general")


class ClusterComplaints(logging.Filter):
    """Lets records pass that are about anything but a cluster, told by the files that they or their tracebacks name.

    One complaint names none: interrupted before its first step, ``distributed.utils.sync`` cancels a future that is not
    there yet. The interrupt itself arrives as ever.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage() + ("" if error is None else "".join(traceback.format_exception(error)))
        if "/distributed/" not in text and not (isinstance(error, NameError) and error.name == "future"):
            return True
        log.debug("%s", text)
        return False


_COMPLAINTS = ClusterComplaints()


def quiet() -> None:
    """Show no complaints of event loops about clusters in this process from now on."""
    for name in LOOPS:
        logging.getLogger(name).addFilter(_COMPLAINTS)  # once, however often
