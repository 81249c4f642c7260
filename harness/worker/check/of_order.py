"""Checks of what keeps jobs with an ordering key from running."""

from collections.abc import Iterator

from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Start, Verdict, check

#: Seconds that a job waits for a transaction before it is worth a word.
HELD_TOO_LONG = 10.0


@check(
    "order-held",
    Verdict.warning,
    Start.no,
    part="database",
    about="transactions that have written and stay open, also prepared ones, in any database of the server",
    means="A job with an ordering key is sent when no transaction is open any more that is older than its own: that "
    "one may still put something before it. Jobs without a key are not held.",
    do="End that transaction: COMMIT or ROLLBACK PREPARED, SELECT pg_terminate_backend(pid); and keep them short "
    "(idle_in_transaction_session_timeout).",
)
def order_held(facts: Facts) -> Iterator[Found]:
    order = facts.server.order
    if order is not None and order.held and order.for_seconds > HELD_TOO_LONG:
        who = "; ".join(order.transactions) or "not visible to this role (GRANT pg_read_all_stats)"
        jobs = "1 job with an ordering key waits" if order.held == 1 else f"{order.held} jobs with a key wait"
        yield f"{jobs}, up to {order.for_seconds:.0f} s, for a transaction: {who}."


@check(
    "order-restored",
    Verdict.broken,
    Start.no,
    part="database",
    about="a dump that was restored into another PostgreSQL",
    means="The places of jobs with an ordering key are numbers of transactions. Those of the old server lie ahead of "
    "the new one's: such a job waits until the new server has come as far, and newer ones go before it.",
    do="Stop workers and producers, then: celery -A yourapp harness reorder --yes",
)
def order_restored(facts: Facts) -> Iterator[Found]:
    order = facts.server.order
    if order is not None and order.ahead:
        jobs = "1 job has a place" if order.ahead == 1 else f"{order.ahead} jobs have places"
        yield f"{jobs} of transactions that this server has not had."
