"""What looks like a slip in a call of `enqueue`, and what was most likely meant."""

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from harness.core.errors import UsageError


def refuse_arguments(args: Sequence[Any], kwargs: Mapping[str, Any], options: Sequence[str]) -> None:
    """A signature has its own arguments: UsageError for more of them, which names what is no option."""
    if not (args or kwargs):
        return
    named = ", ".join([*(f"{name}=" for name in kwargs), *(repr(value)[:40] for value in args)])
    close = [f"{found[0]}=" for name in kwargs if (found := difflib.get_close_matches(name, options, n=1))]
    meant = f"; is {', '.join(close)} meant?" if close else "."
    raise UsageError(
        f"{named}: no option of an enqueue{meant} A signature has its arguments already: "
        f"harness.enqueue(session, job.s(…), job_id=…). Options: {', '.join(options)}."
    )


def refuse_slips(job: str, sent: inspect.Signature, kwargs: Mapping[str, Any], options: Sequence[str]) -> None:
    """UsageError for what is no parameter of the handler's and almost the name of an option."""
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in sent.parameters.values()):
        return
    for name in kwargs.keys() - sent.parameters.keys():
        if close := difflib.get_close_matches(name, options, n=1, cutoff=0.8):
            raise UsageError(f"{name}= is no parameter of {job} and no option of an enqueue; is {close[0]}= meant?")


def refuse_name(app: Any, name: str) -> NoReturn:
    """UsageError for the name of a job in place of the job."""
    known = getattr(app.tasks.get(name), "is_job", False)
    is_one = "is the name of a job" if known else "is a text"
    raise UsageError(
        f"{name!r} {is_one}. Give the job itself, whose signature is known: harness.enqueue(session, job, …)"
        f", or harness.enqueue(session, job.s(…)). By name: app.tasks[{name!r}]."
    )
