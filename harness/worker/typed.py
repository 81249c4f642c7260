"""What a type checker sees of a job: `delay`, `s` and `enqueue` take what the handler takes, less what is injected.

Python's types can drop parameters from the front of a signature only. So what is injected stands first: the session,
the job, or both in this order. Where the session stands second or third, arguments are checked at run time only.

The overloads are over `self` and not over the decorator, so that a handler with an `Any` in it keeps its types.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeAlias, TypeVar, overload

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, scoped_session

from harness.process.copy import Job

if TYPE_CHECKING:
    from celery.result import AsyncResult
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

    #: Where an enqueue may write.
    Sync: TypeAlias = Session | scoped_session[Any] | Connection
    Async: TypeAlias = AsyncSession | async_scoped_session[Any] | AsyncConnection

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
F_co = TypeVar("F_co", bound=Callable[..., Any], covariant=True)

# The shapes of handlers, by what is injected.
Both: TypeAlias = Callable[Concatenate[Session, Job, P], Any]
WithSession: TypeAlias = Callable[Concatenate[Session, P], Any]
WithJob: TypeAlias = Callable[Concatenate[Job, P], Any]
Plain: TypeAlias = Callable[P, Any]
Late: TypeAlias = Callable[Concatenate[Any, Session, P], Any]
Later: TypeAlias = Callable[Concatenate[Any, Any, Session, P], Any]


class Call(Protocol):
    """A signature of one job: what can be enqueued."""

    @property
    def task(self) -> Any: ...
    @property
    def args(self) -> Any: ...
    @property
    def kwargs(self) -> Any: ...
    @property
    def options(self) -> dict[str, Any]: ...


class TypedCall:
    """What `job.s(…)` is to type checkers; what there is, is Celery's Signature."""

    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: dict[str, Any]

    def set(self, immutable: bool | None = None, **options: Any) -> Self:
        """Set options of this one job, such as `task_id` and `priority`."""
        raise NotImplementedError

    def __or__(self, other: Any) -> Any:
        """A chain."""

    def __getattr__(self, name: str) -> Any:
        """All else that a signature has."""
        raise NotImplementedError


class TypedJob(Generic[F_co]):
    """A job whose handler is a function of type `F_co` (without the `self` of a bound task).

    For type checkers alone: what there is, is a `JobTask`. It does not inherit from Celery's untyped Task, which to
    mypy would be anything at all.
    """

    name: str
    #: A task has no such thing: it tells a job from a `Call` in spite of `__getattr__`.
    options: None
    #: Nor is it a list of calls.
    __iter__: None

    @property
    def __call__(self) -> F_co:
        """The plain handler."""
        raise NotImplementedError

    @overload
    def delay(self: "TypedJob[Both[P]]", *args: P.args, **kwargs: P.kwargs) -> "AsyncResult": ...
    @overload
    def delay(self: "TypedJob[WithSession[P]]", *args: P.args, **kwargs: P.kwargs) -> "AsyncResult": ...
    @overload
    def delay(self: "TypedJob[WithJob[P]]", *args: P.args, **kwargs: P.kwargs) -> "AsyncResult": ...
    @overload
    def delay(self: "TypedJob[Plain[P]]", *args: P.args, **kwargs: P.kwargs) -> "AsyncResult": ...
    @overload
    def delay(self: "TypedJob[Late[...]]", *args: Any, **kwargs: Any) -> "AsyncResult": ...
    @overload
    def delay(self: "TypedJob[Later[...]]", *args: Any, **kwargs: Any) -> "AsyncResult": ...
    def delay(self, *args: Any, **kwargs: Any) -> "AsyncResult":
        """Send the job now, to the broker."""
        raise NotImplementedError

    @overload
    def s(self: "TypedJob[Both[P]]", *args: P.args, **kwargs: P.kwargs) -> "TypedCall": ...
    @overload
    def s(self: "TypedJob[WithSession[P]]", *args: P.args, **kwargs: P.kwargs) -> "TypedCall": ...
    @overload
    def s(self: "TypedJob[WithJob[P]]", *args: P.args, **kwargs: P.kwargs) -> "TypedCall": ...
    @overload
    def s(self: "TypedJob[Plain[P]]", *args: P.args, **kwargs: P.kwargs) -> "TypedCall": ...
    @overload
    def s(self: "TypedJob[Late[...]]", *args: Any, **kwargs: Any) -> "TypedCall": ...
    @overload
    def s(self: "TypedJob[Later[...]]", *args: Any, **kwargs: Any) -> "TypedCall": ...
    def s(self, *args: Any, **kwargs: Any) -> "TypedCall":
        """The job with all its arguments, to be enqueued. `signature(…)` takes a part of them."""
        raise NotImplementedError

    si = s

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        **options: Any,
    ) -> "AsyncResult":
        """Send the job; its arguments are checked by the worker."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """All else that a Celery task has."""
        raise NotImplementedError


class Decorator(Protocol):
    """`@harness.job(name=…)`."""

    def __call__(self, function: F, /) -> "TypedJob[F]": ...


class BoundDecorator(Protocol):
    """`@harness.job(bind=True)`: the handler's `self` is not part of the message."""

    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> "TypedJob[Callable[P, R]]": ...
