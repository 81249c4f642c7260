"""Checks of who is at work: beat, relays and receivers leave signs of life."""

from collections.abc import Iterator

from harness.store.presence import BEAT, RECEIVER, RELAY, receiver_of
from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Note, Start, Unknown, Verdict, check

#: Seconds: who has left no sign for longer is not at work. They leave one every 15 s.
FRESH = 60.0
NO_TABLE = "The schema has no table presence: it is of an older release, or the role may not read it."


@check(
    "beat-seen",
    Verdict.warning,
    Start.no,
    part="database",
    about="`celery beat`, `harness_prune_every`, `harness_replay_every`",
    means="Without a beat fences and closed letters are not pruned, and gated letters not replayed. Retries go on.",
    do="Run one: celery -A yourapp beat. Its tasks run in the workers, so these must run, too.",
)
def beat_seen(facts: Facts) -> Iterator[Found]:
    server = facts.server
    every = [s for s in (facts.settings.prune_every, facts.settings.replay_every) if s is not None]
    if not every:
        return
    if server.signs is None:
        yield Unknown(NO_TABLE)
        return
    ages = [sign.age for sign in server.signs if sign.role == BEAT]
    if not ages:
        yield "No beat was ever seen."
    elif min(ages) > 3 * min(every) + 60:
        yield f"No beat was seen for {min(ages):.0f} s; its tasks should run every {min(every):g} s."


@check(
    "relay-seen",
    Verdict.broken,
    Start.no,
    part="database",
    about="`harness_relay` = off, `harness relay`",
    means="Nobody sends what waits in the inbox: retries, replays and what was redelivered stay there.",
    do='Run `celery -A yourapp harness relay`, or set harness_relay = "worker".',
)
def relay_seen(facts: Facts) -> Iterator[Found]:
    server = facts.server
    if server.signs is None:
        yield Unknown(NO_TABLE)
        return
    ages = [sign.age for sign in server.signs if sign.role == RELAY]
    if ages and min(ages) <= FRESH:
        return
    seen = f"No relay was seen for {min(ages):.0f} s" if ages else "No relay was ever seen"
    due = "1 job is due" if server.overdue == 1 else f"{server.overdue} jobs are due"
    waiting = f"; {due}, the oldest since {server.overdue_by:.0f} s" if server.overdue else ""
    if facts.settings.relay == "off":
        yield f'{seen}, and harness_relay = "off"{waiting}.'
    elif server.overdue and server.overdue_by > 60:
        yield f"{seen}{waiting}. Each worker would start one: no worker of this service runs."
    else:
        yield Note(f"{seen}. Each worker starts one.")


@check(
    "receiver-seen",
    Verdict.warning,
    Start.no,
    part="database",
    about="`harness.source(…)`, `harness_receive`, `celery harness receive`",
    means="Nobody takes in what comes to the source's queue: it stays there, and so do its jobs.",
    do='Run `celery -A yourapp harness receive`, or a worker with harness_receive = "worker". Where one runs, and is '
    "not seen, its log says why it gets nothing from that queue.",
)
def receiver_seen(facts: Facts) -> Iterator[Found]:
    sources, server = facts.harness.sources, facts.server
    if sources and server.signs is None:
        yield Unknown(NO_TABLE)
    if not sources or server.signs is None:
        return
    signs = [(*receiver_of(sign.name), sign.age) for sign in server.signs if sign.role == RECEIVER]
    alive = []
    for name in sources:
        seen = [(age, host) for source, host, age in signs if source == name]
        age, host = min(seen, default=(0.0, ""))
        if seen and age <= FRESH:
            alive.append(f"{name} on {host}")
            continue
        when = f"was seen for {age:.0f} s (the last on {host})" if seen else "was ever seen"
        off = '; harness_receive = "off"' if facts.settings.receive == "off" else ""
        yield f"No receiver of the source {name!r} {when}{off}."
    if len(alive) == len(sources):
        yield Note(f"Seen: {', '.join(alive)}.")
