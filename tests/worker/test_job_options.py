"""What is no job, and what is no option of one, is an error where it is written: at import."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, shared_task
from celery.exceptions import DuplicateTaskNameWarning
from celery.local import Proxy
from sqlalchemy.orm import Session

from harness import Harness, JobTask, Policy
from harness.core.errors import ConfigError, UsageError


@pytest.fixture
def app() -> Iterator[Celery]:
    made = Celery("options", broker="memory://", set_as_current=False)
    yield made
    made.close()


@pytest.fixture
def harness(app: Celery) -> Harness:
    return Harness(app, service="options", database_url="postgresql://nobody@127.0.0.1:1/none")


def credit(session: Session, n: int) -> None: ...


class Holder:
    def method(self, session: Session) -> None: ...

    @classmethod
    def made(cls, session: Session) -> None: ...


IS_A_TASK = r"`\w+` is a task already: put @harness.job in place of @app.task"


def test_a_task_is_not_made_a_job_by_a_second_decorator(app: Celery, harness: Harness) -> None:
    lazy = app.task(name="lazy", shared=False)(credit)
    made = app.task(name="made", shared=False, lazy=False)(credit)
    job = harness.job(name="job", shared=False)(credit)
    assert isinstance(lazy, Proxy)
    for task in (lazy, made, job, Proxy(lambda: made)):
        for decorate in (
            harness.job(shared=False),
            harness.job(name="second", shared=False),
            app.task(base=JobTask, shared=False, lazy=False),
        ):
            with pytest.raises(UsageError, match=IS_A_TASK):
                decorate(task)


def test_nor_is_a_shared_task() -> None:
    app = Celery("options.shared", broker="memory://", set_as_current=False)
    harness = Harness(app, service="options", database_url="postgresql://nobody@127.0.0.1:1/none")

    def once(session: Session) -> None: ...

    shared = Proxy(lambda: app.task(name="once", shared=False, lazy=False)(once))  # what shared_task answers with
    assert type(shared_task(name="options.never_finalized", lazy=True)(once)) is Proxy
    with pytest.raises(UsageError, match=IS_A_TASK):
        harness.job(shared)
    app.close()


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (functools.partial(credit, n=1), "a partial has no name"),
        (Holder, "the class Holder: a job is a function"),
        (Holder.__dict__["made"], "which is no function"),
        (staticmethod(credit), "which is no function"),
        (Holder.method, "'self', which no message carries"),
        (lambda session: None, "a function with a name"),
        ("credit", r"@harness.job\(name='credit'\)"),
        (7, "7, which is no function"),
    ],
)
def test_what_is_no_plain_function(harness: Harness, what: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        harness.job(shared=False)(what)


def test_what_may_be_a_job_beside_a_function(harness: Harness) -> None:
    @functools.wraps(credit)
    def wrapped(*args: Any, **kwargs: Any) -> None: ...

    assert harness.job(name="wrapped", shared=False)(wrapped).signature_of_handler.injected == {"session": "session"}
    assert harness.job(name="of_an_object", shared=False)(Holder().method).is_job


def test_a_name_of_celerys_is_refused_and_celerys_own_tasks_stay_plain(app: Celery, harness: Harness) -> None:
    with pytest.raises(UsageError, match='give the job another one: name="credit"'.replace("give", "Give")):
        harness.job(name="celery.credit", shared=False)(credit)
    all_jobs = Celery("options.all", broker="memory://", task_cls=JobTask, set_as_current=False)
    with pytest.raises(UsageError, match=r"celery\.credit"):
        all_jobs.task(name="celery.credit", shared=False, lazy=False)(credit)
    all_jobs = Celery("options.all", broker="memory://", task_cls=JobTask, set_as_current=False)
    all_jobs.finalize()
    own = [task for name, task in all_jobs.tasks.items() if name.startswith("celery.")]
    assert len(own) > 5
    assert not any(task.is_job for task in own)


def test_a_name_that_a_plain_task_has_is_refused(app: Celery, harness: Harness) -> None:
    app.task(name="taken", shared=False, lazy=False)(Holder.method)
    with (
        pytest.warns(DuplicateTaskNameWarning),
        pytest.raises(UsageError, match=r"a plain task of .* has this name already"),
    ):
        harness.job(name="taken", shared=False)(credit)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"effect": "external"}, "effects="),
        ({"on_ded": "block"}, "on_dead="),
        ({"polcy": Policy()}, "policy="),
        ({"permanant": (ValueError,)}, "permanent="),
        ({"cosumer": "old"}, "consumer="),
        ({"max_inflight": 3}, "max_in_flight="),
        ({"can_reply": lambda session, arguments: True}, "can_replay="),
        ({"time_limt": 3}, "time_limit="),
        ({"max_tries": 3}, "max_retries="),
        ({"bnd": True}, "bind="),
        ({"nam": "x"}, "name="),
        ({"ordering_key": "x"}, "belongs to one message"),
        ({"delay": 3}, r"in place of the method delay\(\)"),
    ],
)
def test_a_misspelt_option_is_an_error(app: Celery, harness: Harness, given: dict[str, Any], meant: str) -> None:
    with pytest.raises(UsageError, match=meant):
        harness.job(**{"name": "slip", "shared": False, **given})(credit)
    assert not [name for name in app.tasks if "slip" in name], "what is refused is registered all the same"
    of_class = type("Base", (JobTask,), {"abstract": True, **given})
    if not given.keys() & {"nam", "bnd"}:
        with pytest.raises(UsageError, match=meant):
            app.task(base=of_class, name="slip_of_class", shared=False, lazy=False)(credit)


def test_attributes_and_methods_of_ones_own_are_allowed(app: Celery, harness: Harness) -> None:
    class Base(JobTask):
        abstract = True
        team = "billing"
        queues = ("fast", "slow")

        def on_failures(self) -> None: ...

        def permanently(self) -> None: ...

    job = app.task(base=Base, name="own", shared=False, lazy=False, owner="x", sla=3, shard=1)(credit)
    assert (job.owner, job.team, job.is_job) == ("x", "billing", True)
    harness.job(name="celerys", shared=False, rate_limit="1/s", soft_time_limit=2, serializer="json")(credit)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"policy": "slow"}, "harness_policies"),
        ({"permanent": "ValueError"}, "exception types"),
        ({"permanent": (ValueError, 7)}, "exception types"),
        ({"permanent": int}, "exception types"),
        ({"unknown": (7,), "effects": "external", "time_limit": 3}, "exception types"),
        ({"can_replay": True}, "a function of"),
        ({"consumer": 7}, "a printable text"),
        ({"consumer": ""}, "a printable text"),
        ({"consumer": "a\x00b"}, "a printable text"),
        ({"max_replays": "3"}, "a whole number"),
        ({"max_replays": True}, "a whole number"),
        ({"max_age": -1}, "a positive number"),
        ({"max_age": "7d"}, "a positive number"),
        ({"time_limit": "30"}, "a number of seconds"),
        ({"soft_time_limit": -1}, "a number of seconds"),
        ({"on_dead": "stop"}, "go_on, block"),
        ({"max_in_flight": 0}, "a whole number above 0"),
    ],
)
def test_a_value_of_a_wrong_kind_is_an_error(harness: Harness, given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        harness.job(name="kind", shared=False, **given)(credit)


def test_so_it_is_for_a_class_and_for_the_settings(app: Celery) -> None:
    class Base(JobTask):
        abstract = True
        policy = "slow"  # type: ignore[assignment]

    with pytest.raises(UsageError, match="policy='slow'"):
        app.task(base=Base, name="of_class", shared=False, lazy=False)(credit)
    broken: Callable[..., Harness] = functools.partial(Harness, service="x", database_url="postgresql://u@h/d")
    for policies in ({"slow": "slow"}, {"slow": None}, "slow", {"slow": {"stop": 3}}):
        other = Celery("options.other", broker="memory://", set_as_current=False)
        with pytest.raises(ConfigError, match="policies"):
            _ = broken(other, policies=policies).settings


def test_the_soft_limit_of_the_configuration_is_for_jobs_that_take_longer(app: Celery, harness: Harness) -> None:
    """Celery refuses to send a job whose soft limit is above its hard one; for beat, in its log alone."""
    app.conf.update(task_soft_time_limit=240, task_time_limit=300)
    short = harness.job(name="short", shared=False, time_limit=30)(credit)
    both = harness.job(name="both", shared=False, time_limit=30, soft_time_limit=20)(credit)
    usual = harness.job(name="usual", shared=False)(credit)
    assert (short.soft_time_limit, short.time_limit) == (None, 30)
    assert (both.soft_time_limit, both.time_limit) == (20, 30)
    assert (usual.soft_time_limit, usual.time_limit) == (240, 300)
    for one in (short, both, usual):
        one.delay(n=1)


@pytest.mark.parametrize(
    ("conf", "options"),
    [
        ({}, {"soft_time_limit": 40, "time_limit": 30}),
        ({"task_time_limit": 300}, {"soft_time_limit": 301}),
        ({"task_soft_time_limit": 301, "task_time_limit": 300}, {}),
    ],
)
def test_a_soft_limit_above_the_hard_one(
    app: Celery, harness: Harness, conf: dict[str, int], options: dict[str, int]
) -> None:
    app.conf.update(conf)
    decorate = harness.job(name="odd", shared=False, **options)
    with pytest.raises(ConfigError, match=r"Celery sends no such job\. Lower the first"):
        decorate(credit)
