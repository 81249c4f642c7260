"""Celery's own log lines about a job say that it ended and how, not with what: results and errors quote payloads.

Its line of a success is left out: the harness's own says as much, and each line costs every job.
"""

import logging

from billiard.util import LOGGER_NAME as billiard_logger
from celery.app.trace import LOG_SUCCESS

from harness.core.outcome import Dead, Deferred
from harness.worker.delivery import Delivery

_QUOTES = ("return_value", "exc", "traceback", "args", "kwargs")


def install() -> None:
    """Put filters on the loggers of Celery's tracer and pool; what they say of other tasks stays as it is."""
    for name, made in (("celery.app.trace", _NoPayload()), (billiard_logger, _NoAlarm())):
        logger = logging.getLogger(name)
        if not any(isinstance(one, type(made)) for one in logger.filters):
            logger.addFilter(made)


class _NoPayload(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        delivery = Delivery.current()
        if delivery is None or not isinstance(record.args, dict):
            return True
        if record.msg is LOG_SUCCESS:
            return False
        known = dict.fromkeys(_QUOTES, "…")
        if isinstance(delivery.outcome, (Deferred, Dead)):
            known["exc"] = delivery.outcome.failure.error_type
        record.args = {key: known.get(key, value) for key, value in record.args.items()}
        record.data = record.args
        # The traceback ends with the error's text; the letter has it.
        record.exc_info = record.exc_text = None
        return True


class _NoAlarm(logging.Filter):
    """A child's death is a warning: the harness names the job, counts the try and reports the letter, if it is one."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno == logging.ERROR and "exited with" in str(record.msg):
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        return True
