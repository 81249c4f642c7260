"""The demo: a real worker takes webhook deliveries of which many come twice, some are broken and some kill it.

    make demo

The last line says whether ledger and dead letters are as the input demands; so does the exit code. It uses the servers
that HARNESS_DATABASE_URL and CELERY_BROKER_URL name, else embedded ones, and leaves nothing behind.
"""

import contextlib
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from examples.demo_kit.check import differences
from examples.demo_kit.plan import LATE, Sending, make
from examples.demo_kit.running import Late, Place, Worker, environment, place
from examples.demo_kit.state import State
from examples.demo_kit.view import View
from harness.dev.process import ServiceError

#: Seconds for all that happens once the servers are up.
PATIENCE = 55.0


class Demo:
    """One run in a place of its own."""

    def __init__(self, at: Place, view: View) -> None:
        # The app reads where it is from the environment, when it is imported.
        os.environ.update(environment(at))
        from examples.github_ledger import trouble

        self.app, self.harness = trouble.app, trouble.harness
        self.at, self.view, self.plan, self.state = at, view, make(), State(at)
        self.deadline = time.monotonic() + PATIENCE
        self.sent = 0

    def run(self) -> list[str]:
        """Everything, in order; the differences that were found. Raises Late."""
        self.prepare()
        with Worker(self.at) as worker:
            self.worker = worker
            worker.wait_until_ready(self.deadline)
            self.send_all()
            self.replay()
            self.send("duplicates, later", self.plan.late_duplicates)
            self.settle()
        self.progress()
        return differences(self.plan, self.state, self.outcomes())

    def prepare(self) -> None:
        """The tables, and an account for each repository but one."""
        from examples.github_ledger.ledger import create_tables, open_account

        self.harness.migrate()
        create_tables(self.harness.database.engine)
        with self.harness.database.begin() as session:
            for repository in sorted(self.plan.repositories - {LATE}):
                open_account(session, repository)
        self.view.say("migrated; starting a worker with two processes and a relay")

    def send_all(self) -> None:
        """Each job, and for some of them two copies at once."""
        plan = self.plan
        broken = sum(sending.job_id in plan.letters for sending in plan.first)
        self.view.say(f"{len(plan.first)} jobs, {broken} of them broken or hopeless; {len(plan.replayed)} for {LATE},")
        self.view.say("which has no account yet; one kills its process, three fail twice")
        again = {sending.job_id: 2 for sending in plan.duplicates}
        self.send("deliveries", (copy for s in plan.first for copy in [s] * (1 + again.get(s.job_id, 0))))
        self.settle()
        self.view.letters([letter for letter in self.state.letters() if letter.open])

    def replay(self) -> None:
        """Mend the cause, then give the dead jobs back: what `celery -A … harness dead-letters replay` does."""
        from examples.github_ledger.ledger import open_account
        from harness.replay import replay

        with self.harness.database.begin() as session:
            open_account(session, LATE)
        harness, letters = self.harness, [letter for letter in self.state.letters() if letter.reason == "permanent"]
        self.view.say(f"an account for {LATE} is open now: replaying the {len(letters)} letters that wait for it")
        for letter in letters:
            replay(
                harness.database, harness.store, self.at.service, letter.id, "demo", harness.events, "account opened"
            )
            self.sent += 1
        self.settle()

    def send(self, what: str, sendings: Iterable[Sending]) -> None:
        """Publish, as a producer that never waits."""
        before = self.sent
        for sending in sendings:
            if sending.body is None:
                self.app.tasks[sending.task].apply_async(kwargs=sending.kwargs, task_id=sending.job_id)
            else:
                self.send_raw(sending)
            self.sent += 1
            self.progress()
        self.view.say(f"sent: {self.sent - before} {what}")

    def send_raw(self, sending: Sending) -> None:
        """A message whose body no worker can read."""
        with self.app.producer_pool.acquire(block=True) as producer:
            producer.publish(
                sending.body,
                routing_key=self.at.service,
                content_type="application/json",
                content_encoding="utf-8",
                headers={"lang": "py", "task": sending.task, "id": sending.job_id},
                correlation_id=sending.job_id,
            )

    def settle(self) -> None:
        """Until each copy that was sent has come to an end, and nothing waits."""
        while self.ended() < self.sent or self.state.waiting():
            self.progress()
            if trouble := self.worker.trouble():
                raise Late(trouble)
            if time.monotonic() > self.deadline:
                raise Late(f"{self.ended()} of {self.sent} copies have ended, {self.state.waiting()} jobs wait")
            time.sleep(0.1)
        self.progress()

    def outcomes(self) -> Counter[str]:
        return Counter(outcome for outcome, _ in self.worker.outcomes())

    def ended(self) -> int:
        """A deferred copy has not ended: the relay sends another one for it."""
        outcomes = self.outcomes()
        return outcomes.total() - outcomes["deferred"]

    def progress(self) -> None:
        letters = sum(letter.open for letter in self.state.letters())
        self.view.show(self.outcomes(), self.state.ledger().total(), self.state.waiting(), letters)

    def close(self) -> None:
        """Leave the broker without our queue, and the database without our connections."""
        self.state.close()
        self.harness.close()
        with contextlib.suppress(Exception), self.app.connection_for_write() as connection:
            queue = self.app.amqp.queues[self.at.service](connection.default_channel)
            queue.declare()  # a Redis-protocol broker forgets the bindings only of a queue that this connection knows
            queue.delete()

    def summary(self) -> str:
        plan, ledger = self.plan, self.state.ledger().total()
        letters = sum(letter.open for letter in self.state.letters())
        duplicates = len(plan.duplicates) + len(plan.late_duplicates)
        return (
            f"deliveries={plan.deliveries} effects={ledger} duplicates={duplicates} letters={letters} "
            f"replayed={len(plan.replayed)}"
        )


def main() -> int:
    """Run it; returns the exit code. SIGTERM ends it like Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started, view, last, code = time.monotonic(), View(), "demo: FAILED", 1
    try:
        with place(view.say) as at:
            demo = Demo(at, view)
            try:
                found = demo.run()
                for difference in found:
                    view.say(f"differs: {difference}")
                last = f"demo: {'FAILED' if found else 'ok'} {demo.summary()}"
                code = 1 if found else 0
            finally:
                demo.close()
    except (Late, ServiceError) as error:
        last = f"demo: FAILED {error}"
    except Exception as error:
        traceback.print_exc()
        last = f"demo: FAILED {type(error).__name__}: {error}"
    except KeyboardInterrupt:
        last, code = "demo: FAILED interrupted; everything is stopped", 130
    finally:
        view.close()
    view.say(f"took {time.monotonic() - started:.0f} s")
    view.say(last)
    return code


if __name__ == "__main__":
    sys.exit(main())
