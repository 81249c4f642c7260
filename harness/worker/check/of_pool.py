"""Checks of the pool that jobs run in."""

from collections.abc import Iterator

from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Start, Verdict, check


@check(
    "pool",
    Verdict.broken,
    Start.refuses,
    about="`worker_pool` = gevent, eventlet or a class of one's own",
    means="The database driver blocks the green threads' loop, heartbeats stop, and nothing of this was proven.",
    do="Use prefork: celery worker -P prefork.",
)
def pool(facts: Facts) -> Iterator[Found]:
    if facts.pool not in ("prefork", "solo", "thread"):
        yield f"The pool is {facts.pool}."


@check(
    "pool-limits",
    Verdict.warning,
    Start.says,
    about="`worker_pool` = solo or threads",
    means="There are no hard time limits, and a crash of one job is the death of the whole worker: every job in it is "
    "delivered again, and that counts as a delivery of each.",
    do="Use prefork, the pool that the promises were proven with.",
)
def pool_limits(facts: Facts) -> Iterator[Found]:
    if facts.pool in ("solo", "thread"):
        threads = facts.pool == "thread" and facts.settings.pool_size < facts.concurrency
        few = f", with {facts.concurrency} threads but harness_pool_size = {facts.settings.pool_size}"
        yield f"The pool is {'threads' if facts.pool == 'thread' else 'solo'}{few if threads else ''}."
