"""Is the pool ending this process? Then a job has not failed, it is cut off."""

from billiard import common as billiard_common


def pool_is_ending(error: BaseException) -> bool:
    """The pool's own signal handler has begun to end this process: the job has not failed, it is cut off."""
    return isinstance(error, SystemExit) and billiard_common.terminate_handler_fired()
