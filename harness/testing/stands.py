"""Where the fail points stand: around which function of the product each is put."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.testing.failpoints import IN_HANDLER, hit

#: Of a point that many jobs come to at once, or of which nobody knows whose it is.
ANY = ""


def wrap(owner: Any, name: str, job_of: Callable[..., str], before: str = "", after: str = "") -> None:
    """Put the points around `owner.name`; `job_of` finds the job id in its arguments."""
    function = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before:
            hit(before, job_of(*args))
        result = function(*args, **kwargs)
        if after:
            hit(after, job_of(*args))
        return result

    setattr(owner, name, wrapped)


def put_up() -> None:
    """Wrap everything, once per process tree."""
    _in_the_child()
    _of_order()
    _in_the_parent()
    _behind_the_outcome()
    _in_the_relay()
    _in_the_receiver()
    _of_the_operator()
    _of_the_producer()


def _module(name: str) -> Any:
    # By name: the packages have functions that are called as their modules.
    return import_module(f"harness.{name}")


def _of_copy(first: Any, second: Any, copy: Any, *_: Any) -> str:
    return str(copy.key.job_id)


def _of_outside(one: Any, *_: Any) -> str:
    return str(one.copy.key.job_id)


def _of_nobody(*_: Any) -> str:
    return ANY


def _in_the_child() -> None:
    from harness.worker.task import JobTask

    names = ("deliver", "record", "eta", "verdict", "work")
    deliver, record, eta, verdict, work = (_module(f"process.{name}") for name in names)
    for module in (deliver, record):
        wrap(module, "count", _of_copy, "before_count", "after_count")
        wrap(module, "give_up", _of_copy, "before_give_up")
        wrap(module, "stand_aside", _of_copy, "before_stand_aside", "after_stand_aside")
        wrap(module, "verdict", _of_copy, "before_verdict", "verdict_after_commit")
    wrap(eta, "put_off", _of_copy, after="wait_written")
    wrap(deliver, "wait_for", _of_copy, after="wait_committed")
    wrap(work, "_take", lambda _session, _store, copy, _limits: copy.key.job_id, "before_fence", "after_fence")
    wrap(JobTask, "invoke", lambda _task, _args, _kwargs, _session, job: job.id, *IN_HANDLER)
    wrap(work, "_call", lambda _session, _connection, _handler, job: job.id, after="before_commit")
    wrap(work, "_once", _of_copy, after="after_commit")
    outside = _module("process.external").Outside
    wrap(outside, "_claim", _of_outside, "before_claim")
    wrap(outside, "_keep_message", _of_outside, after="claim_written")
    wrap(outside, "_call", _of_outside, "claim_committed", "done_committed")
    wrap(outside, "_complete", _of_outside, "before_done", "done_written")
    wrap(verdict, "_record", _of_copy, after="verdict_before_commit")


def _of_order() -> None:
    deliver, work, external = (_module(f"process.{name}") for name in ("deliver", "work", "external"))
    for module in (work, external):
        wrap(module, "take_turn", _of_copy, after="turn_taken")
    wrap(deliver, "stand_out_of_turn", _of_copy, "before_turn_back", "after_turn_back")
    for module in (deliver, _module("worker.after")):
        wrap(module, "pass_on", _of_copy, "before_pass_on", "after_pass_on")


def _in_the_parent() -> None:
    from harness.worker.recorder import Recorder
    from harness.worker.request import JobRequest

    wrap(JobRequest, "execute_using_pool", lambda request, _: request.id, "before_pool", "after_pool")
    wrap(Recorder, "execute_using_pool", lambda recorder, _: recorder.id, "before_record", "after_record")
    wrap(JobRequest, "acknowledge", lambda request: request.id, "before_ack", "after_ack")


def _behind_the_outcome() -> None:
    after, behind, chords, failing, onward = (
        _module(f"worker.{name}") for name in ("after", "behind", "chords", "failing", "onward")
    )
    of_request = lambda one, *_: one.request.id  # noqa: E731 - three uses in as many lines
    for module in (behind, chords, failing):
        # The last word says whose it is: the job, or for a chord's body its group.
        wrap(module, "hold", lambda _do, _seconds, what: what.split()[-1], "before_send", "after_send")
    wrap(onward, "store", of_request, "before_store", "after_store")
    wrap(after.After, "_remove_row", of_request, "before_row_removed", "after_row_removed")
    of_event: Callable[..., str] = lambda _database, _store, _events, event: event.job_id  # noqa: E731
    wrap(_module("worker.announce"), "tell", of_event, "before_alert", "after_alert")


def _in_the_relay() -> None:
    from harness.relay import Relay
    from harness.store.inbox import Inbox
    from harness.worker.publisher import Publisher

    outgoing = _module("worker.outgoing")
    lease_due = Inbox.lease_due

    def leasing(self: Any, *args: Any, **kwargs: Any) -> Any:
        rows = lease_due(self, *args, **kwargs)
        for row in rows:
            hit("relay_lease_written", row.job_id)
        return rows

    Inbox.lease_due = leasing  # type: ignore[method-assign]
    wrap(outgoing, "publish", lambda _producer, row: row.job_id, "relay_leased")
    publish = Publisher.__call__

    def publishing(self: Any, rows: Any) -> Any:
        sent = publish(self, rows)
        for row in rows:
            if row.id in sent.confirmed:
                hit("relay_published", row.job_id)
        return sent

    Publisher.__call__ = publishing  # type: ignore[method-assign]
    first = lambda _relay, rows: rows[0].job_id if rows else ANY  # noqa: E731
    wrap(Relay, "_release", first, "relay_before_release", "relay_after_release")


def _in_the_receiver() -> None:
    from harness.worker.burial import Burial
    from harness.worker.receiving import Receiver

    intake = _module("worker.intake")
    # A batch goes under its first one's name.
    wrap(
        intake.Intake,
        "_store",
        lambda _intake, batch: batch[0].read.arrival.job_id,
        "before_take",
        "take_committed",
    )
    run_steps = intake.run_steps

    def storing(harness: Any, session: Any, steps: Any) -> Any:
        answers = run_steps(harness, session, steps)
        for answer in answers:
            hit("take_written", answer.job_id)
        return answers

    intake.run_steps = storing
    wrap(
        Burial, "_record", lambda _burial, _one, copy, _: copy.arrival.job_id, "before_take_letter", "after_take_letter"
    )
    wrap(Receiver, "_acknowledge", lambda _receiver, one: _of_taken(one), after="take_acknowledged")


def _of_taken(one: Any) -> str:
    arrival = getattr(one.read, "arrival", None)
    return ANY if arrival is None else str(arrival.job_id)


def _of_the_operator() -> None:
    from harness.store.dead_letters import DeadLetters
    from harness.store.processed_jobs import Fence

    replay, bulk, sweep = (_module(f"replay.{name}") for name in ("replay", "bulk", "sweep"))
    wrap(replay, "_give_back", lambda _store, held, *_: held.letter.job_id, "replay_held", "replay_written")
    for module in (bulk, sweep):
        wrap(module, "replay", _of_nobody, after="replay_committed")
    wrap(DeadLetters, "discard", _of_nobody, after="discard_written")
    wrap(bulk, "discard", _of_nobody, after="discard_committed")
    wrap(Fence, "prune", _of_nobody, after="prune_fences_written")
    wrap(DeadLetters, "prune", _of_nobody, after="prune_letters_written")
    wrap(_module("prune.prune")._Prune, "_batch", _of_nobody, after="prune_committed")


def _of_the_producer() -> None:
    wrap(_module("worker.enqueue"), "run_steps", _of_nobody, "before_enqueue", "after_enqueue")
