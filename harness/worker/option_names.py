"""Misspelt options of a job: Celery keeps whatever it is given, so that a slip would be passed over in silence."""

import difflib
import inspect
from collections.abc import Iterator
from typing import Any

from celery import Task

from harness.core.errors import UsageError

#: How alike two names are where one is taken for a slip: as in the check of Celery's settings.
CUTOFF = 0.85
#: Options of the decorator that do not stay in the class, and those of which a Task has no attribute to begin with.
_OF_DECORATOR = frozenset(
    {"base", "bind", "name", "shared", "lazy"}
    | {"pydantic", "pydantic_strict", "pydantic_context", "pydantic_dump_kwargs"}
    | {"autoretry_for", "dont_autoretry_for", "retry_kwargs"}
    | {"retry_backoff", "retry_backoff_max", "retry_jitter"}
    | {"queue", "exchange", "exchange_type", "routing_key", "delivery_mode", "compression", "immediate", "mandatory"}
)
#: What belongs to one message and not to the job.
_OF_MESSAGE = frozenset(("ordering_key", "job_id", "task_id", "countdown", "eta"))
_OF_ENQUEUE = {"task_id": "job_id", "countdown": "delay"}
#: Options of a job whose value is a function.
_FUNCTIONS = ["can_replay", "permanent", "unknown"]
#: Real words that are like an option: never taken for a slip.
_WORDS = frozenset(("shard",))


def check(cls: type[Task], root: type[Task]) -> None:
    """Raise UsageError for a name that is almost that of an option, in `cls` or between it and `root` (JobTask)."""
    known = {name for name in dir(root) if not name.startswith("_")} | _OF_DECORATOR
    for given, value in _given(cls, root):
        if given in _OF_MESSAGE:
            raise UsageError(
                f"{cls.name}: {given}= belongs to one message and not to the job: "
                f"harness.enqueue(session, job.s(…), {_OF_ENQUEUE.get(given, given)}=…)."
            )
        if given in known:
            _refuse_hidden_method(cls, given, value, root)
        elif not _is_own_word(given, value, root) and (
            close := difflib.get_close_matches(given, _meant(cls, value, known), n=1, cutoff=CUTOFF)
        ):
            raise UsageError(
                f"{cls.name}: there is no option {given}= of a job; is {close[0]}= meant? An attribute of your own "
                "needs a name that is less like it."
            )


def _is_own_word(name: str, value: Any, root: type[Task]) -> bool:
    """A word of its own, or several of what Celery has one of (`queues`)."""
    several = name.endswith("s") and isinstance(value, (list, tuple, set, dict))
    return name in _WORDS or (several and name[:-1] in _OF_DECORATOR | (vars(Task).keys() - vars(root).keys()))


def _given(cls: type[Task], root: type[Task]) -> Iterator[tuple[str, Any]]:
    """What the decorator was given, and what classes below `root` say."""
    for one in cls.__mro__[: cls.__mro__.index(root)] if root in cls.__mro__ else ():
        for name, value in vars(one).items():
            if not name.startswith("_"):
                yield name, value


def _meant(cls: type[Task], value: Any, known: set[str]) -> list[str]:
    """A method of the project's own class is no option, however it is called; but a gate is a function."""
    if inspect.isroutine(value) or isinstance(value, (property, staticmethod, classmethod, type)):
        return _FUNCTIONS if value in vars(cls).values() else _FUNCTIONS[:1]
    return [
        name
        for name in known
        if name in _OF_DECORATOR or not inspect.isroutine(inspect.getattr_static(Task, name, None))
    ]


def _refuse_hidden_method(cls: type[Task], name: str, value: Any, root: type[Task]) -> None:
    hidden = inspect.getattr_static(root, name, None)
    if inspect.isfunction(hidden) and not (callable(value) or hasattr(value, "__get__")):
        raise UsageError(
            f"{cls.name}: {name}={value!r} would stand in place of the method {name}() of every task. Give it another "
            "name."
        )
