"""What a job may be made of: a plain function. All else is refused where it is decorated, with what to do."""

import functools
import inspect
from typing import Any

from celery import Task
from celery.local import Proxy

from harness.core.errors import UsageError

#: Celery's own tasks, and nobody else's, have names that begin so.
RESERVED = "celery."


def check(function: Any) -> None:
    """Raise UsageError for what `@harness.job` stands above and can't make a job of."""
    _refuse_task(function)
    if isinstance(function, str):
        raise UsageError(f"harness.job({function!r}): a job's name is an option, @harness.job(name={function!r}).")
    if isinstance(function, functools.partial):
        raise UsageError(
            f"harness.job of {function!r}: a partial has no name of its own. Write a function that calls it."
        )
    if inspect.isclass(function):
        raise UsageError(
            f"harness.job of the class {function.__qualname__}: a job is a function. Write one that makes and calls "
            "the object."
        )
    if not callable(function) or isinstance(function, staticmethod) or not hasattr(function, "__name__"):
        raise UsageError(
            f"harness.job of {function!r}, which is no function. Write a function at the level of the module."
        )
    if function.__name__ == "<lambda>":
        raise UsageError(
            f"harness.job of a lambda in {function.__module__}: Celery needs a function with a name. Use def."
        )


def check_class(cls: type[Task], function: Any, bound: bool) -> None:
    """The same for the class that Celery has made of it, whichever decorator was used."""
    _refuse_task(function)
    first = next(iter(_parameters(function)), None)
    is_self = first is not None and first.name in ("self", "cls") and first.annotation is first.empty
    if is_self and not bound and "run" in cls.__dict__:
        raise UsageError(
            f"{cls.name}: the first parameter is {first.name!r}, which no message carries. For the task itself write "  # type: ignore[union-attr]
            "bind=True; a method can't be a job: write a function at the level of the module."
        )


def check_call(job: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise TypeError where the arguments are too few, too many or of other names; what they are is the worker's."""
    try:
        job.signature_of_handler.sent.bind(*args, **kwargs)
    except TypeError as error:
        injected = ", ".join(job.signature_of_handler.injected)
        more = f" ({injected}: injected, not sent)" if injected else ""
        raise TypeError(f"{job.__name__}() {error}{more}") from None


def is_celerys_own(cls: type[Task]) -> bool:
    """Is it one of the tasks that Celery itself brings? UsageError for a task of the project with such a name."""
    if not str(cls.name).startswith(RESERVED):
        return False
    _refuse_task(vars(cls).get("__wrapped__"))  # whose module is that of Celery's proxy
    if str(cls.__module__).partition(".")[0] == "celery":
        return True
    raise UsageError(
        f"{cls.name}: names that begin with {RESERVED!r} are those of Celery's own tasks, which are no jobs. Give the "
        f'job another one: name="{cls.name.removeprefix(RESERVED)}".'
    )


def forget(cls: type[Task], app: Any) -> None:
    """Take a class that was refused out of the app's tasks: Celery enters it before it is looked at."""
    if type(app._tasks.get(cls.name)) is cls:
        del app._tasks[cls.name]


def refuse_taken(made: Any, function: Any) -> None:
    """Celery answers with the task that has the name already: a plain one is no job, whoever decorated what."""
    if not getattr(made, "is_job", False):
        raise UsageError(
            f"{getattr(function, '__qualname__', function)!s} can't be the job {made.name!r}: a plain task of "
            f"{type(made).__module__} has this name already. Give one of the two another name."
        )


def _refuse_task(function: Any) -> None:
    # Of a proxy `isinstance` would ask the task behind it.
    function = function.__func__ if isinstance(function, staticmethod) else function
    if not (issubclass(type(function), Proxy) or isinstance(function, Task)):
        return
    try:
        name = str(function.__name__)
    except Exception:  # a proxy whose task can't be made
        name = "This"
    raise UsageError(
        f"`{name}` is a task already: put @harness.job in place of @app.task, or write @app.task(base=JobTask)."
    )


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []  # Signature.of says it
