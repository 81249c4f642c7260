"""What an exception means for its job."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from harness.core.classify import Permanents, classify
from harness.core.errors import (
    ConfigError,
    InvalidPayload,
    NotInAJob,
    NotReady,
    Permanent,
    RetryLater,
    TransactionRefused,
    UsageError,
)
from harness.core.failure import MESSAGE_BYTES, TRACEBACK_BYTES, Kind
from harness.core.signature import Signature


class CardError(Exception):
    pass


class SoftTimeLimitExceeded(Exception):
    pass


class Gone(Permanent):
    def __init__(self, card: int) -> None:
        super().__init__(f"card {card} is gone")


def caught(fn: Callable[..., Any], *args: Any) -> BaseException:
    try:
        fn(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def throw(error: BaseException) -> None:
    raise error


def throw_from(error: BaseException, cause: BaseException | None) -> None:
    raise error from cause


def throw_while(error: BaseException, handled: BaseException) -> None:
    try:
        raise handled
    except type(handled):
        raise error  # noqa: B904


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("x"), Kind.transient),
        (KeyboardInterrupt(), Kind.transient),
        (ConfigError("x"), Kind.transient),
        (Permanent("x"), Kind.permanent),
        (Gone(7), Kind.permanent),
        (UsageError("x"), Kind.permanent),
        (TransactionRefused("x"), Kind.permanent),
        (NotInAJob("x"), Kind.permanent),
        (RetryLater(9), Kind.retry_later),
        (NotReady("x"), Kind.not_ready),
        (SoftTimeLimitExceeded(), Kind.timed_out),
        (type("Sub", (SoftTimeLimitExceeded,), {})(), Kind.timed_out),
        (type("TimeLimitExceeded", (Exception,), {})(), Kind.timed_out),
    ],
)
def test_each_type_has_its_kind(error: BaseException, kind: Kind) -> None:
    assert classify(error).kind is kind
    assert classify(caught(throw, error)).kind is kind


def test_the_delay_goes_along() -> None:
    assert classify(RetryLater(9)).delay == 9.0
    assert classify(ValueError()).delay is None


def test_causes_are_looked_through() -> None:
    assert classify(caught(throw_from, ValueError(), Permanent("x"))).kind is Kind.permanent
    assert classify(caught(throw_while, ValueError(), Permanent("x"))).kind is Kind.permanent
    assert classify(caught(throw_while, ValueError(), SoftTimeLimitExceeded())).kind is Kind.timed_out


def test_a_suppressed_context_is_not() -> None:
    def suppress() -> None:
        try:
            raise Permanent("x")
        except Permanent:
            raise ValueError from None

    assert classify(caught(suppress)).kind is Kind.transient


def test_the_outermost_word_counts() -> None:
    assert classify(caught(throw_from, RetryLater(5), Permanent("x"))).kind is Kind.retry_later
    assert classify(caught(throw_while, RetryLater(5), CardError()), (CardError,)).kind is Kind.retry_later


def test_the_drivers_error_inside_a_wrapper() -> None:
    wrapper = ValueError("wrapped")
    wrapper.orig = CardError()  # type: ignore[attr-defined]
    assert classify(wrapper, (CardError,)).kind is Kind.permanent


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ([ValueError(), Permanent("x")], Kind.permanent),
        ([NotReady(), Permanent("x")], Kind.permanent),
        ([NotReady(), RetryLater(3), RetryLater(8)], Kind.retry_later),
        ([NotReady(), NotReady()], Kind.not_ready),
        ([NotReady(), ValueError()], Kind.transient),
        ([ValueError(), ExceptionGroup("inner", [KeyError(), Permanent("x")])], Kind.permanent),
        ([ValueError(), SoftTimeLimitExceeded()], Kind.timed_out),
    ],
)
def test_groups(members: list[Exception], kind: Kind) -> None:
    failure = classify(caught(throw, ExceptionGroup("several", members)))
    assert failure.kind is kind
    assert failure.delay == (8.0 if kind is Kind.retry_later else None)


def fails(error: BaseException) -> bool:
    raise LookupError


@pytest.mark.parametrize(
    ("permanent", "kind"),
    [
        ((), Kind.transient),
        ((CardError,), Kind.permanent),
        ((KeyError, Exception), Kind.permanent),
        ((lambda error: "closed" in str(error),), Kind.permanent),
        ((lambda error: False,), Kind.transient),
        ((fails,), Kind.transient),
        ((fails, CardError), Kind.permanent),
    ],
)
def test_what_a_job_counts_as_permanent(permanent: Permanents, kind: Kind) -> None:
    assert classify(CardError("closed"), permanent).kind is kind
    # A predicate need not look through causes by itself.
    assert classify(caught(throw_from, ValueError("y"), CardError("closed")), permanent).kind is kind


def test_circles_and_long_chains_end() -> None:
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one
    assert classify(one).kind is Kind.transient
    chain: BaseException = Permanent("far away")
    for _ in range(500):
        outer = ValueError()
        outer.__cause__ = chain
        chain = outer
    assert classify(chain).kind is Kind.permanent


def needs_int(number: int) -> None: ...


class Model(BaseModel):
    number: int


def test_only_the_harness_itself_calls_arguments_invalid() -> None:
    signature = Signature.of(needs_int, {})
    refused = caught(signature.validate, (), {"number": "x"})
    assert isinstance(refused, InvalidPayload)
    assert classify(refused).kind is Kind.invalid
    assert classify(InvalidPayload("never raised")).kind is Kind.invalid


def test_a_validation_error_inside_a_handler_is_the_handlers_failure() -> None:
    assert classify(caught(Model.model_validate, {"number": "x"})).kind is Kind.transient
    assert classify(caught(throw, InvalidPayload("my own"))).kind is Kind.transient
    assert classify(caught(throw_from, ValueError(), InvalidPayload("x"))).kind is Kind.transient


def test_a_handler_that_misuses_another_jobs_signature_fails_itself() -> None:
    signature = Signature.of(needs_int, {})
    # As in a worker: a frame of the harness, one of the handler, and again one of the harness.
    source = compile("def call(handler):\n    handler()", classify.__code__.co_filename, "exec")
    scope: dict[str, Any] = {}
    exec(source, scope)
    error = caught(scope["call"], lambda: signature.validate((), {}))
    assert isinstance(error, InvalidPayload)
    assert classify(error).kind is Kind.transient


def test_the_text_tells_type_message_and_traceback() -> None:
    failure = classify(caught(throw_from, CardError("closed"), KeyError("inner")))
    assert failure.error_type == f"{__name__}.CardError"
    assert failure.message == "closed"
    assert "KeyError: 'inner'" in failure.traceback
    assert "in throw_from" in failure.traceback
    assert classify(ValueError("x")).error_type == "ValueError"


def test_a_long_traceback_keeps_its_end() -> None:
    failure = classify(ValueError("é" * 100_000 + "the end"))
    assert len(failure.message.encode()) <= MESSAGE_BYTES
    assert len(failure.traceback.encode()) <= TRACEBACK_BYTES
    assert failure.traceback.endswith("the end\n")


def place_one(error: BaseException) -> None:
    raise error


def test_the_fingerprint_tells_type_and_place_not_message() -> None:
    same = [classify(caught(place_one, ValueError(text))).fingerprint for text in ("a", "b")]
    assert same[0] == same[1]
    assert len(same[0]) == 16
    assert classify(caught(throw, ValueError("a"))).fingerprint != same[0]
    assert classify(caught(place_one, KeyError("a"))).fingerprint != same[0]


def test_the_fingerprint_goes_by_the_users_innermost_frame() -> None:
    def in_library() -> None:
        Model(number="x")  # type: ignore[arg-type]

    def in_stdlib() -> None:
        int.from_bytes(b"", "neither")  # type: ignore[arg-type]

    assert classify(caught(in_library)).fingerprint != classify(caught(in_stdlib)).fingerprint
    assert classify(ValueError()).fingerprint == classify(ValueError()).fingerprint


def hostile(action: Callable[..., Any]) -> BaseException:
    body = dict.fromkeys(("__str__", "__repr__", "__reduce__", "__eq__"), action)
    return type("Hostile", (Exception,), {**body, "__hash__": None, "orig": property(action)})()


def raises(*_: object) -> Any:
    raise SystemExit


@pytest.mark.parametrize(
    "action",
    [raises, lambda self: 5, lambda self: self.__str__(), lambda self: "\ud800\0"],
)
def test_hostile_exceptions_are_described_all_the_same(action: Callable[..., Any]) -> None:
    failure = classify(caught(throw, hostile(action)), (lambda error: bool(str(error)),))
    assert failure.error_type.endswith("Hostile")
    assert failure.message
    failure.message.encode()
    assert "\0" not in failure.message + failure.traceback


def test_a_type_without_a_decent_name() -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            if name in ("__qualname__", "__module__"):
                raise LookupError
            return super().__getattribute__(name)

    nameless = Meta("Nameless", (Exception,), {})
    assert classify(caught(throw, nameless())).error_type == "<unnamed type>"


def test_a_traceback_that_cannot_be_formatted(monkeypatch: pytest.MonkeyPatch) -> None:
    def format_exception(*_: object, **__: object) -> list[str]:
        raise MemoryError

    monkeypatch.setattr(traceback, "format_exception", format_exception)
    assert "could not be written" in classify(ValueError("x")).traceback


@given(st.text())
def test_any_message_can_be_stored(text: str) -> None:
    failure = classify(ValueError(text + "\ud800\0"))
    for stored in (failure.message, failure.traceback):
        assert "\0" not in stored
        stored.encode("utf-8")
