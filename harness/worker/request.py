"""In the parent: one message of a job. It is acknowledged on the child's proof, and its child's death is named here.

The parent never decides and never touches the database. When a child has died, a healthy one is given the verdict to
record; until it replies that it has, the message stays unacknowledged.
"""

import contextlib
import logging
import os
import signal
import time
from dataclasses import replace
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from billiard.exceptions import Terminated, TimeLimitExceeded
from celery.worker import state as worker_state
from celery.worker.request import Request
from celery.worker.state import task_ready, task_reserved

from harness.core.failure import Failure, Kind
from harness.core.text import safe_repr, safe_str
from harness.process.claim import Claim
from harness.worker.recorder import AGAIN, Recorder
from harness.worker.revoked import revoked_how
from harness.worker.trace import Reply, trace_job
from harness.worker.wire import CLAIM, Wire, wire_of

log = logging.getLogger("harness")


class JobRequest(Request):  # type: ignore[misc]
    """Celery's request, with an acknowledgement that needs a proof."""

    def __init__(self, message: Any, *, consumer: Any, headers: Any = None, **options: Any) -> None:
        envelope = dict(headers if headers is not None else message.headers)
        # Waiting and expiry are decided by the child, behind the fence; Celery must not act on them.
        self._said = {key: envelope.get(key) for key in ("id", "task", "eta", "expires")}
        envelope["eta"] = envelope["expires"] = None
        super().__init__(message, headers=envelope, **options)
        self._consumer = consumer
        self._decoded_body = self.body if options.get("decoded") else None
        self._terminated: str | None = None
        self._accepting = False
        self._held_since: float | None = None

    def wire(self, revoked: str | None = None) -> Wire:
        """The exact message."""
        head = self._said if self._decoded_body is not None else None
        queue = self._consumer.queue_of(self.message)
        wire = wire_of(self.message, queue, self.hostname, revoked=revoked, head=head)
        # What was given out before may be the cause of the outage: it is counted before it works.
        return wire if self._held_since is None else replace(wire, redelivered=True)

    def execute_using_pool(self, pool: Any, **_: Any) -> Any:
        try:
            result = self._submit(pool)
        except Exception as error:
            # It can't be pickled, for example: the slot is given back and the evidence is written.
            release = getattr(self._consumer.controller, "_quick_release", None)
            if release is not None:
                release()
            self._record(Failure(Kind.undecodable, type(error).__name__, f"it can't be handed to a process: {error}"))
            return None
        self._apply_result = _weakly(result)
        return result

    def _submit(self, pool: Any) -> Any:
        soft, hard = self.task.soft_time_limit, self.task.time_limit
        own_hard, own_soft = self.time_limits
        wire = self.wire(self._terminated or revoked_how(self.id, self.stamps))
        return pool.apply_async(
            trace_job,
            args=(self.type, self.id, self.request_dict, wire, self._decoded_body),
            accept_callback=self.on_accepted,
            timeout_callback=self.on_timeout,
            callback=self.on_success,
            error_callback=self.on_failure,
            soft_timeout=own_soft or soft,
            timeout=own_hard or hard,
            correlation_id=self.id,
        )

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """Celery acknowledges here where `acks_late` is off: a job is acknowledged on the proof of its outcome only."""
        self._accepting = True
        try:
            super().on_accepted(pid, time_accepted)
        finally:
            self._accepting = False

    def acknowledge(self) -> None:
        if not self._accepting:
            super().acknowledge()

    def revoked(self) -> bool:
        """Celery asks before it runs: a revoked job goes to the child all the same, which writes the evidence."""
        return False

    # -- the child has replied -------------------------------------------------------------------------------------

    def on_success(self, failed__retval__runtime: Any, **_: Any) -> None:
        """The child's reply. Anything but a proof is a crash."""
        _failed, reply, seconds = failed__retval__runtime
        if not isinstance(reply, Reply):
            self._record(Failure(Kind.crashed, "WorkerLost", f"the child replied without an outcome: {reply!r}"[:500]))
            return
        if reply.outcome == "unrecorded" and self._holds(seconds):
            return
        self.settled(reply)

    def _holds(self, seconds: float) -> bool:
        """Keep the message and give it out again soon; False when it is over, after `harness_outage_hold`.

        Nothing is consumed in its place meanwhile, for it is not acknowledged. To hand it back at once would be a loop
        through the broker, of which a quorum queue counts every turn against its delivery limit.
        """
        from harness.worker.harness import Harness

        now = time.monotonic()
        if self._held_since is None:
            self._held_since = now - seconds
        most = Harness.of(self._app).settings.outage_hold
        stops = worker_state.should_stop is not None and worker_state.should_stop is not False  # 0 is an exit code
        if now - self._held_since + AGAIN >= most or stops:
            return False
        task_ready(self)
        self._consumer.timer.call_after(AGAIN, self._give_out_again)
        return True

    def _give_out_again(self) -> None:
        task_reserved(self)
        self._consumer.on_task_request(self)

    def settled(self, reply: Reply) -> None:
        """Acknowledge what has an outcome; hand back what has none. Then tell Celery's monitors."""
        task_ready(self, successful=reply.outcome in ("completed", "duplicate"))
        if reply.outcome == "unrecorded":
            self.reject(requeue=True)
            return
        self.acknowledge()
        if reply.event is not None:
            with contextlib.suppress(Exception):
                self.send_event(reply.event.type, **reply.event.fields)

    # -- the child has not replied ---------------------------------------------------------------------------------

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """The child died, was killed at the hard limit, was terminated, or sent what could not be read."""
        error = exc_info.exception
        if isinstance(error, ExceptionWithTraceback):
            error = error.exc
        if self._already_cancelled:
            task_ready(self)
            return
        if isinstance(error, Terminated):
            self._record(Failure(Kind.revoked, "Terminated", self._terminated or f"terminated: {error}"))
        elif isinstance(error, TimeLimitExceeded):
            # Celery names the time-out before it kills the child, whose open transaction holds the fence.
            self._kill_child()
            limit = f"the hard time limit of {error.args[0] if error.args else '?'} s was exceeded"
            self._record(Failure(Kind.timed_out, "TimeLimitExceeded", limit, fingerprint=f"{self.type}:hard-limit"))
        elif self._shutting_down():
            task_ready(self)
        else:
            text = safe_str(error) or safe_repr(error)
            self._record(Failure(Kind.crashed, type(error).__name__, text, fingerprint=f"{self.type}:crash"))

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """The soft limit is raised in the child; the hard one is handled by `on_failure`."""
        if soft:
            log.warning("soft time limit (%ss) exceeded for %s[%s]", timeout, self.name, self.id)

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """`revoke(terminate=True)`: the child is killed, and the evidence says by what."""
        self._terminated = f"terminated while it ran (signal {signal or 'TERM'})"
        super().terminate(pool, signal)

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        """Celery's hook would acknowledge here, before anything is recorded."""

    def _kill_child(self) -> None:
        if self.worker_pid and self.worker_pid != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.worker_pid, signal.SIGKILL)

    def _shutting_down(self) -> bool:
        from celery.worker import state

        return state.should_terminate is not None and state.should_terminate is not False

    def _record(self, failure: Failure) -> None:
        Recorder(self._consumer, self.wire(), failure, self.type, self.settled, self.id).submit()


class ExternalRequest(JobRequest):
    """Of a job with external effects. The parent names the claim beforehand: when its child has died, it can tell
    whether that one had claimed the job, and nobody else."""

    def __init__(self, message: Any, **options: Any) -> None:
        super().__init__(message, **options)
        # What the pool is told: a limit that the message brings, or that was changed by remote control, counts.
        limit = self.time_limits[0] or self.task.time_limit or self.task.spec.external.limit
        self._claim = Claim.new(float(limit))

    def wire(self, revoked: str | None = None) -> Wire:
        wire = super().wire(revoked)
        return replace(wire, marks=wire.marks | {CLAIM: str(self._claim)})


def _weakly(result: Any) -> Any:
    from weakref import ref

    return ref(result) if result is not None else None
