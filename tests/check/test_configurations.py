"""Each broken configuration is named, by the command and by a worker that starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tenacity
from kombu import Exchange, Queue

from harness import Policy
from harness.worker.check import CHECKS, Start, Verdict
from harness.worker.request import JobRequest
from tests.check.doctor import named, patient, start

NOWHERE = {"amqp": "amqp://guest:secret@127.0.0.1:1//", "redis": "redis://127.0.0.1:1/0", "memory": "memory://"}


def queue(**options: Any) -> dict[str, Any]:
    return {"task_queues": [Queue("billing", Exchange("billing"), **options)]}


def job(**options: Any) -> Callable[[Any], Any]:
    def add(harness: Any) -> None:
        @harness.job(name="other", shared=False, **options)
        def other() -> None: ...

    return add


def decorated_twice(harness: Any) -> None:
    """`@app.task` above `@harness.job`."""

    def inner() -> None: ...

    harness.app.task(name="outer", shared=False)(harness.job(name="inner", shared=False)(inner))


class OwnRequest(JobRequest):
    """A project's own."""


DAYS = Policy(wait=tenacity.wait_fixed(3 * 86_400), reason="test")
#: name of the check, broker, settings, jobs, a part of what is said
CASES: list[tuple[str, str, dict[str, Any], Callable[[Any], Any] | None, str]] = [
    ("celery-settings", "memory", {"task_time_limt": 5}, None, "is task_time_limit meant"),
    ("same-consumer", "memory", {}, job(consumer="pay"), "other and pay have one consumer, 'billing/pay'"),
    ("job-classes", "memory", {}, job(Request="celery.worker.request:Request"), "Job other has the request class"),
    ("job-classes", "memory", {}, job(Strategy="celery.worker.strategy:default"), "Job other has the strategy"),
    ("job-classes", "memory", {}, decorated_twice, "The task outer is made of the job inner"),
    ("consumer-class", "memory", {"worker_consumer": "tests.check.test_configurations:queue"}, None, "worker_consumer"),
    ("fence-ttl", "memory", {}, job(policy=DAYS), "job other can last 12 days"),
    ("acks-late", "memory", {}, job(acks_late=False), "Job other is defined with acks_late=False"),
    ("acks-late", "memory", {}, job(reject_on_worker_lost=False), "reject_on_worker_lost=False"),
    ("acks-on-failure", "memory", {"task_acks_on_failure_or_timeout": False}, None, "is False"),
    ("acks-on-failure", "memory", {}, job(acks_on_failure_or_timeout=False), "Job other has"),
    ("always-eager", "memory", {"task_always_eager": True}, None, "is on"),
    ("accept-content", "memory", {"accept_content": ["json", "pickle"]}, None, "accept pickle"),
    ("accept-content", "memory", {"accept_content": ["application/x-python-serialize"]}, None, "accept pickle"),
    ("accept-content", "memory", {"accept_content": ["json", "yaml"]}, None, "accept yaml"),
    ("pool", "memory", {"worker_pool": "gevent"}, None, "The pool is gevent"),
    ("pool-limits", "memory", {"worker_pool": "solo"}, None, "The pool is solo"),
    ("pool-limits", "memory", {"worker_pool": "threads"}, None, "2 threads but harness_pool_size = 1"),
    ("external-pool", "memory", {"worker_pool": "threads"}, job(effects="external", time_limit=30), "effects: other"),
    ("external-pool", "memory", {"worker_pool": "solo"}, job(effects="external", time_limit=30), "The pool is solo"),
    (
        "external-request",
        "memory",
        {},
        job(effects="external", time_limit=30, Request="tests.check.test_configurations:OwnRequest"),
        "Job other has",
    ),
    ("prune", "memory", {"harness_prune_every": None}, None, "harness_prune_every is None"),
    ("replay", "memory", {"harness_replay_every": None}, job(can_replay=lambda session, given: True), "other"),
    ("chord-backend", "memory", {"result_backend": "redis://127.0.0.1:1/0"}, None, "is Redis"),
    ("chord-backend", "memory", {"result_backend": "cache+memory://"}, None, "counts a job twice"),
    ("time-limit", "memory", {"task_time_limit": None, "task_soft_time_limit": None}, None, "pay"),
    ("soft-time-limit", "memory", {}, job(soft_time_limit=300), "300 s and the hard one 300 s"),
    ("prefetch", "memory", {"worker_prefetch_multiplier": 0}, None, "is 0"),
    ("prefetch", "redis", {"worker_prefetch_multiplier": 4}, None, "longer than the 600 s"),
    ("cancel-on-connection-loss", "memory", {"worker_cancel_long_running_tasks_on_connection_loss": True}, None, "on"),
    ("visibility-timeout", "redis", {"broker_transport_options": {"visibility_timeout": 300}}, None, "pay (300 s)"),
    ("visibility-timeout", "redis", {}, job(time_limit=900), "other (900 s)"),
    ("broker-transport", "memory", {}, None, "'memory'"),
    ("broker", "amqp", {}, None, "cannot be reached"),
    ("broker", "redis", {}, None, "cannot be reached"),
    ("ack-emulation", "redis", {"broker_transport_options": {"ack_emulation": False}}, None, "ack_emulation is off"),
    ("publisher-confirms", "amqp", {"broker_transport_options": {}}, None, "confirm_publish is off"),
    ("delivery-mode", "amqp", {"task_default_delivery_mode": "transient"}, None, "'transient'"),
    ("delivery-mode", "amqp", {"task_queues": [Queue("q", Exchange("q", delivery_mode=1))]}, None, "queue 'q'"),
    ("queue-durable", "amqp", queue(durable=False), None, "not durable"),
    ("queue-durable", "amqp", queue(auto_delete=True), None, "auto-deleted"),
    ("queue-no-ack", "amqp", queue(no_ack=True), None, "has no_ack"),
    ("queue-drops", "amqp", queue(message_ttl=60), None, "x-message-ttl = 60000"),
    ("queue-drops", "amqp", queue(max_length=10), None, "x-max-length = 10"),
    ("queue-drops", "amqp", queue(expires=60), None, "x-expires"),
    (
        "queue-dead-letter-exchange",
        "amqp",
        queue(message_ttl=60, queue_arguments={"x-dead-letter-exchange": "graves"}),
        None,
        "'graves'",
    ),
    (
        "delivery-limit",
        "amqp",
        queue(queue_arguments={"x-queue-type": "quorum", "x-delivery-limit": 20}),
        None,
        "outage of 300 min",
    ),
    ("default-queue", "memory", {"task_default_queue": "celery"}, None, "'celery'"),
]


@pytest.mark.parametrize(
    ("name", "broker", "conf", "jobs", "says"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_it_is_named(
    name: str,
    broker: str,
    conf: dict[str, Any],
    jobs: Callable[[Any], Any] | None,
    says: str,
    sound_database: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kind = CHECKS[name]
    with patient(sound_database, NOWHERE[broker], conf, jobs) as sick:
        report = sick.report()
        [found, *_] = [row for row in report["findings"] if row["name"] == name]
        assert (found["verdict"], says in found["what"]) == (kind.verdict, True), found
        assert found["means"]
        assert found["do"]
        assert "secret" not in str(report)
        if kind.verdict is Verdict.broken:
            assert report["code"] == 1

        refused, lines = start(sick, caplog)
        assert (f"{name}: " in refused) == (kind.start is Start.refuses)
        assert bool(named(lines, name)) == (kind.start in (Start.says, Start.corrects))


@pytest.mark.parametrize("broker", ["redis", "amqp"])
def test_a_sound_configuration_is_sound(broker: str, sound_database: str, caplog: pytest.LogCaptureFixture) -> None:
    with patient(sound_database, NOWHERE[broker]) as well:
        refused, lines = start(well, caplog)
        assert (refused, [line.partition(":")[0] for line in lines]) == ("", ["fsync"])


@pytest.mark.parametrize(
    ("name", "broker", "conf"),
    [
        ("queue-drops", "amqp", queue(max_length=10, queue_arguments={"x-overflow": "reject-publish"})),
        ("delivery-limit", "amqp", queue(queue_arguments={"x-queue-type": "quorum", "x-delivery-limit": -1})),
        ("delivery-limit", "amqp", queue(queue_arguments={"x-queue-type": "quorum", "x-delivery-limit": 5000})),
        ("celery-settings", "memory", {"task_of_mine": 1, "worker_names": ["a"]}),
        ("publisher-confirms", "redis", {"broker_transport_options": {}}),
        ("replay", "memory", {"harness_replay_every": None}),
    ],
)
def test_what_is_no_fault(name: str, broker: str, conf: dict[str, Any], sound_database: str) -> None:
    with patient(sound_database, NOWHERE[broker], conf) as well:
        assert well.findings()[name]["verdict"] == "ok"


def test_what_is_corrected_is_corrected(sound_database: str, caplog: pytest.LogCaptureFixture) -> None:
    with patient(sound_database, "memory://", {}, job(acks_late=False, reject_on_worker_lost=False)) as sick:
        task = sick.app.tasks["other"]
        start(sick, caplog)
        assert (task.acks_late, task.reject_on_worker_lost) == (True, True)
        _, lines = start(sick, caplog)
        assert named(lines, "acks-late") == []


def test_all_that_is_broken_is_said_at_once(sound_database: str, caplog: pytest.LogCaptureFixture) -> None:
    with patient(sound_database, NOWHERE["amqp"], {"task_always_eager": True, **queue(no_ack=True)}) as sick:
        refused, _ = start(sick, caplog)
        assert [line.partition(":")[0] for line in refused.splitlines()] == ["always-eager", "queue-no-ack"]


def test_every_check_of_the_configuration_has_a_case() -> None:
    without = {"settings", "service"}  # of tests below and in test_settings
    names = {check.name for check in CHECKS.values() if check.part == "configuration"} - without - {"database"}
    assert names - {"queue-policies"} == {case[0] for case in CASES}
