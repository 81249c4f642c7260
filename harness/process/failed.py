"""A try that has failed, on its way to the verdict."""

from harness.core.errors import HarnessError
from harness.core.failure import Failure
from harness.core.text import safe_repr


class Failed(HarnessError):
    """The handler raised, or the job may not run: `error` is what a verdict is made from."""

    def __init__(self, error: BaseException | Failure) -> None:
        super().__init__(safe_repr(error))
        self.error = error
