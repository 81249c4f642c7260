"""From an exception to a failure: what it means for the job, and plain text about it."""

import hashlib
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from harness.core.errors import InvalidPayload, NotReady, OutcomeUnknown, Permanent, RetryLater, UsageError
from harness.core.failure import Failure, Kind
from harness.core.text import safe_str, type_name

Permanents = tuple[type[BaseException] | Callable[[BaseException], bool], ...]
"""What a job counts as permanent: exception types, and predicates that are asked about each cause in turn."""

_Verdict = tuple[Kind, float | None]
# By name, for core does not know billiard.
_TIME_LIMITS = frozenset({"SoftTimeLimitExceeded", "TimeLimitExceeded"})
_HARNESS = str(Path(__file__).resolve().parents[1]) + "/"
_STDLIB = sysconfig.get_paths()["stdlib"] + "/"
_MOST_CAUSES = 1000


def classify(exc: BaseException, permanent: Permanents = (), unknown: Permanents = ()) -> Failure:
    """What `exc` means for the job that raised it. Never raises, whatever the exception's own methods do.

    The first exception that says something decides, from the outermost to the causes (`__cause__`,
    `__context__` unless suppressed, `.orig`, the members of a group): the handler's last word counts. What
    says nothing is transient. `unknown` is matched as `permanent` is: whether the job took effect can't be told.
    """
    try:
        verdict = (Kind.invalid, None) if _refused_by_harness(exc) else _verdict(exc, permanent, unknown)
    except BaseException:  # a retry is the answer that loses nothing
        verdict = None
    kind, delay = verdict or (Kind.transient, None)
    return Failure(
        kind=kind,
        error_type=type_name(exc),
        message=safe_str(exc),
        traceback=_format(exc),
        fingerprint=_fingerprint(exc),
        delay=delay,
    )


def _verdict(exc: BaseException, permanent: Permanents, unknown: Permanents) -> _Verdict | None:
    for inner in _causes(exc):
        found = _own_verdict(inner, permanent, unknown)
        if found is None and isinstance(inner, BaseExceptionGroup):
            found = _of_group([_verdict(member, permanent, unknown) for member in inner.exceptions])
        if found is not None:
            return found
    return None


def _own_verdict(exc: BaseException, permanent: Permanents, unknown: Permanents) -> _Verdict | None:
    if isinstance(exc, Permanent | UsageError):
        return Kind.permanent, None
    if isinstance(exc, RetryLater):
        return Kind.retry_later, exc.delay
    if isinstance(exc, NotReady):
        return Kind.not_ready, None
    if isinstance(exc, OutcomeUnknown):
        return Kind.outcome_unknown, None
    if any(kind.__name__ in _TIME_LIMITS for kind in type(exc).__mro__):
        return Kind.timed_out, None
    if any(_matches(exc, entry) for entry in unknown):
        return Kind.outcome_unknown, None
    if any(_matches(exc, entry) for entry in permanent):
        return Kind.permanent, None
    return None


def _matches(exc: BaseException, entry: type[BaseException] | Callable[[BaseException], bool]) -> bool:
    try:
        return isinstance(exc, entry) if isinstance(entry, type) else bool(entry(exc))
    except Exception:  # a predicate that fails has not said that the job is hopeless
        return False


def _of_group(members: list[_Verdict | None]) -> _Verdict | None:
    """One word for several: hopeless if one is; "not ready" spends no try, so all must say it."""
    said = [member for member in members if member is not None]
    for kind in (Kind.outcome_unknown, Kind.permanent, Kind.timed_out, Kind.retry_later):
        delays = [delay or 0.0 for found, delay in said if found is kind]
        if delays:
            return kind, max(delays) if kind is Kind.retry_later else None
    return (Kind.not_ready, None) if said and len(said) == len(members) else None


def _causes(exc: BaseException) -> Iterator[BaseException]:
    """The exception and what led to it, nearest first, each once."""
    todo, seen = [exc], {id(exc)}
    for current in todo:
        yield current
        suppressed = current.__suppress_context__
        for inner in (
            current.__cause__,
            _orig(current),
            None if suppressed else current.__context__,
        ):
            if isinstance(inner, BaseException) and id(inner) not in seen and len(todo) < _MOST_CAUSES:
                seen.add(id(inner))
                todo.append(inner)


def _orig(exc: BaseException) -> object:
    """The driver's exception inside a wrapper of SQLAlchemy."""
    try:
        return getattr(exc, "orig", None)
    except BaseException:
        return None


def _refused_by_harness(exc: BaseException) -> bool:
    """Whether the harness itself refused the arguments.

    A handler may meet the same type, by raising it or by calling another job's signature; then a frame of the
    handler stands below one of the harness, or at the end.
    """
    if type(exc) is not InvalidPayload:
        return False
    if exc.__traceback__ is None:
        return True
    harness_seen = False
    for filename, _ in _frames(exc.__traceback__):
        if filename.startswith(_HARNESS):
            harness_seen = True
        elif harness_seen and _is_users(filename):
            return False
    return harness_seen


def _frames(tb: TracebackType | None) -> Iterator[tuple[str, str]]:
    """File and function of each frame, outermost first."""
    while tb is not None:
        code = tb.tb_frame.f_code
        yield code.co_filename, code.co_name
        tb = tb.tb_next


def _is_users(filename: str) -> bool:
    installed = "/site-packages/" in filename or "/dist-packages/" in filename
    return not (installed or filename.startswith((_HARNESS, _STDLIB, "<")))


def _fingerprint(exc: BaseException) -> str:
    """The same for one type from one place: the innermost frame of the user's own code, else the last one."""
    try:
        frames = list(_frames(exc.__traceback__))
        users = [frame for frame in frames if _is_users(frame[0])]
        filename, function = (users or frames or [("", "")])[-1]
        place = f"{Path(filename).name}:{function}"
    except BaseException:
        place = ":"
    return hashlib.sha256(f"{type_name(exc)} {place}".encode("utf-8", "replace")).hexdigest()[:16]


def _format(exc: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(exc))
    except BaseException:
        return f"{type_name(exc)}: the traceback could not be written"
