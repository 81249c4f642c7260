"""The handler's signature is the schema of its messages."""

from __future__ import annotations

import dataclasses
import functools
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, PositiveInt
from typing_extensions import TypedDict

from harness.core.errors import InvalidPayload, SignatureError, UsageError
from harness.core.signature import Signature

if TYPE_CHECKING:
    from fractions import Fraction


class Session: ...


class Job: ...


class SubSession(Session): ...


class Line(BaseModel):
    sku: str
    price: PositiveInt


class Order(BaseModel):
    lines: list[Line] = []


@dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    speed: int


INJECTED: dict[type, str] = {Session: "session", Job: "job"}
VALUES = {"session": Session(), "job": Job()}


def credit(db: Session, account_id: int, points: PositiveInt, note: str = "none") -> tuple[Any, ...]:
    return db, account_id, points, note


def run(handler: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    signature = Signature.of(handler, INJECTED)
    valid = signature.validate(args, kwargs)
    positional, keyword = signature.bind(*valid, VALUES)
    return handler(*positional, **keyword)


def refused(handler: Callable[..., Any], *args: Any, **kwargs: Any) -> InvalidPayload:
    with pytest.raises(InvalidPayload) as caught:
        Signature.of(handler, INJECTED).validate(args, kwargs)
    return caught.value


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((7, 50), {}), ((7,), {"points": 50}), ((), {"account_id": 7, "points": "50"}), ((7, 50, "none"), {})],
)
def test_positional_and_keyword_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert run(credit, *args, **kwargs) == (VALUES["session"], 7, 50, "none")


def test_injected_parameters_may_stand_anywhere() -> None:
    def handler(
        a: int,
        job: Job,
        /,
        b: int,
        db: Session,
        *rest: int,
        s: Session,
        c: int = 3,
        **more: int,
    ) -> Any:
        return a, job, b, db, rest, s, c, more

    session, job = VALUES["session"], VALUES["job"]
    assert run(handler, 1, 2, 4, 5, z=6) == (1, job, 2, session, (4, 5), session, 3, {"z": 6})
    assert run(handler, 1, b="2") == (1, job, 2, session, (), session, 3, {})


def test_positional_only_defaults_before_an_injected_one() -> None:
    def handler(a: int = 1, db: Session = None, b: int = 2, /) -> Any:  # type: ignore[assignment]
        return a, db, b

    assert run(handler) == (1, VALUES["session"], 2)
    assert run(handler, 5, 6) == (5, VALUES["session"], 6)


def test_types_of_every_sort() -> None:
    def handler(
        order: Order,
        point: Point,
        day: date,
        price: Decimal,
        pair: tuple[int, str],
        mode: Literal["a", "b"],
        small: Annotated[int, Field(lt=10)],
        maybe: int | None = None,
        bare=None,  # type: ignore[no-untyped-def]
    ) -> Any:
        return order, point, day, price, pair, mode, small, maybe, bare

    got = run(
        handler,
        {"lines": [{"sku": "a", "price": 3}]},
        {"x": 1},
        "2024-01-02",
        "1.10",
        [1, "b"],
        "a",
        9,
        bare={"k": 1},
    )
    assert got == (
        Order(lines=[Line(sku="a", price=3)]),
        Point(1, 0),
        date(2024, 1, 2),
        Decimal("1.10"),
        (1, "b"),
        "a",
        9,
        None,
        {"k": 1},
    )


def test_fields_and_fresh_defaults() -> None:
    def handler(n: int = Field(5, gt=0), found: list[int] = []) -> Any:  # noqa: B006
        found.append(n)
        return list(found)

    signature = Signature.of(handler, INJECTED)
    for _ in range(2):
        args, kwargs = signature.validate((), {})
        args, kwargs = signature.bind(args, kwargs, {})
        assert handler(*args, **kwargs) == [5]
    assert refused(handler, n=0).errors[0]["argument"] == "n"


def test_keyword_arguments_of_a_typed_dict() -> None:
    def handler(**options: Unpack[Options]) -> Any:
        return options

    assert run(handler, speed="3") == {"speed": 3}
    assert refused(handler, speed="x").errors[0]["argument"] == "speed"


@pytest.mark.parametrize(
    ("args", "kwargs", "wrong"),
    [
        ((), {}, ["account_id", "points"]),
        (("x",), {"points": -1}, ["account_id", "points"]),
        ((1, 2, "n", 4), {}, ["positional argument 4"]),
        ((1, 2), {"extra": 1}, ["extra"]),
        ((1, 2), {"points": 3}, ["points"]),
        ((1, 2), {"db": 3}, ["db"]),
        ((1, 2), {"session": 3}, ["session"]),
        ((1, None), {}, ["points"]),
    ],
)
def test_what_is_wrong_is_named(args: tuple[Any, ...], kwargs: dict[str, Any], wrong: list[str]) -> None:
    error = refused(credit, *args, **kwargs)
    assert [found["argument"] for found in error.errors] == wrong
    assert all(name in str(error) for name in wrong)
    assert error.__cause__ is None
    assert error.__context__ is None


def test_the_place_inside_a_model_is_named() -> None:
    def handler(order: Order) -> None: ...

    error = refused(handler, {"lines": [{"sku": "a", "price": 0}]})
    assert [found["argument"] for found in error.errors] == ["order.lines.0.price"]


def test_the_refused_values_stay_out() -> None:
    assert "secret" not in repr(refused(credit, "secret", 1)) + repr(refused(credit, "secret", 1).errors)


def test_many_errors_are_cut() -> None:
    def handler(numbers: list[int]) -> None: ...

    error = refused(handler, ["x"] * 5000)
    assert len(error.errors) == 20
    assert str(error).endswith("and 4980 more")


def test_an_injected_name_is_refused_even_beside_keyword_arguments() -> None:
    def handler(db: Session, **more: Any) -> None: ...

    assert refused(handler, db=1).errors[0]["argument"] == "db"


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ("ab", {}),
        (None, {}),
        ({"a": 1}, {}),
        (b"", {}),
        ((), []),
        ((), None),
        ((), {1: 2}),
        ((), {"\ud800": 1}),
    ],
)
def test_foreign_shapes_are_refused(args: Any, kwargs: Any) -> None:
    def handler(*args: Any, **kwargs: Any) -> None: ...

    with pytest.raises(InvalidPayload):
        Signature.of(handler, INJECTED).validate(args, kwargs)


ALL_TEXT = st.text(st.characters(exclude_categories=()))
VALUES_OF_ANY_SORT = st.none() | st.integers() | ALL_TEXT | st.lists(st.floats())


@given(
    st.lists(VALUES_OF_ANY_SORT),
    st.dictionaries(ALL_TEXT, VALUES_OF_ANY_SORT),
)
def test_arguments_fit_or_are_refused_and_nothing_else(args: list[Any], kwargs: dict[str, Any]) -> None:
    signature = Signature.of(credit, INJECTED)
    try:
        valid = signature.validate(args, kwargs)
    except InvalidPayload as error:
        str(error).encode("utf-8")
    else:
        positional, keyword = signature.bind(*valid, VALUES)
        _, account_id, points, note = credit(*positional, **keyword)
        assert isinstance(account_id, int)
        assert points > 0
        assert isinstance(note, str)


def test_an_error_of_a_validator_itself_is_no_verdict_on_the_payload() -> None:
    def look_up(value: int) -> int:
        raise ConnectionError

    def handler(number: Annotated[int, AfterValidator(look_up)]) -> None: ...

    handler.__annotations__ = {"number": Annotated[int, AfterValidator(look_up)]}
    with pytest.raises(ConnectionError):
        Signature.of(handler, {}).validate((1,), {})


def test_a_bound_task_skips_self() -> None:
    def handler(self: Any, db: Session, n: int) -> Any:
        return self, db, n

    signature = Signature.of(handler, INJECTED, bound=True)
    args, kwargs = signature.bind(*signature.validate(("5",), {}), VALUES)
    assert handler("task", *args, **kwargs) == ("task", VALUES["session"], 5)
    with pytest.raises(SignatureError, match="takes no `self`"):
        Signature.of(lambda: None, INJECTED, bound=True)


def test_wrapped_and_partial_handlers() -> None:
    @functools.wraps(credit)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return credit(*args, **kwargs)

    class Handler:
        def method(self, db: Session, n: int) -> Any:
            return db, n

        def __call__(self, db: Session, n: int) -> Any:
            return db, n

    assert run(wrapper, 7, 50)[1:] == (7, 50, "none")
    assert run(functools.partial(credit, note="set"), 7, 50)[1:] == (7, 50, "set")
    assert run(Handler().method, "5") == (VALUES["session"], 5)
    assert run(Handler(), "5") == (VALUES["session"], 5)


def test_an_annotated_injected_type_is_still_injected() -> None:
    def handler(db: Annotated[Session, "primary"]) -> Any:
        return db

    assert run(handler) is VALUES["session"]


def unresolved(value: Fraction) -> None: ...
def optional(db: Optional[Session]) -> None: ...  # noqa: UP045
def subclass(db: SubSession) -> None: ...
def starred(*db: Session) -> None: ...
def no_schema(value: Callable[[], Session] | Iterator[Session]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (unresolved, ["unresolved", "value", "TYPE_CHECKING"]),
        (optional, ["optional", "db", "neither optional"]),
        (subclass, ["subclass", "db", "Annotate"]),
        (starred, ["starred", "db", "without the star"]),
        (no_schema, ["no_schema", "value", "Annotate"]),
        (range, ["no signature", "Wrap"]),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(handler: Callable[..., Any], words: list[str]) -> None:
    with pytest.raises(SignatureError) as caught:
        Signature.of(handler, INJECTED)
    assert [word for word in words if word not in str(caught.value)] == []


async def coroutine() -> None: ...
async def agenerator() -> AsyncIterator[int]:
    yield 1


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("handler", [coroutine, agenerator, generator, functools.partial(coroutine)])
def test_functions_that_would_run_nothing_are_refused(handler: Callable[..., Any]) -> None:
    with pytest.raises(SignatureError, match="would run nothing"):
        Signature.of(handler, INJECTED)


def test_a_return_annotation_does_not_matter() -> None:
    def handler(n: int) -> Fraction:
        return n  # type: ignore[return-value]

    assert run(handler, "3") == 3


def test_a_missing_value_to_inject_is_a_fault_of_the_program() -> None:
    with pytest.raises(UsageError, match="'session'"):
        Signature.of(credit, INJECTED).bind((1, 2), {}, {"job": Job()})


def test_a_refusal_travels_between_processes() -> None:
    error = refused(credit)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.errors) == (str(error), error.errors)


def many(
    a: int, session: Session, /, b: int = 2, *, c: int = 3, job: Job, d: int
) -> None: ...  # every kind of parameter that has no star


@given(
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), st.integers()),
    st.booleans(),
)
def test_the_planned_call_is_the_one_that_inspect_would_make(
    args: list[int], kwargs: dict[str, int], with_job: bool
) -> None:
    signature = Signature.of(many, INJECTED)
    assert signature.plan is not None
    values = VALUES if with_job else {"session": VALUES["session"]}
    call = signature.plan.call(args, kwargs, values)
    slow = dataclasses.replace(signature, plan=None)
    try:
        expected = slow.bind(args, kwargs, values)
    except (TypeError, UsageError):
        assert call is None
    else:
        assert call is None or call == expected
        assert signature.bind(args, kwargs, values) == expected
        # With every argument there, as after validation, nothing is left for inspect to do.
        assert call is not None or len(args) + len(kwargs) < 4
