"""Makes the checks: all of them for the doctor, the cheap ones for a worker that starts."""

import logging
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from harness.core.errors import ConfigError
from harness.worker.check import gather
from harness.worker.check.crash import crashed
from harness.worker.check.facts import Facts, Options
from harness.worker.check.finding import CHECKS, Check, Finding, Note, Start, Unknown, Verdict

if TYPE_CHECKING:
    from harness.worker.harness import Harness

log = logging.getLogger("harness")


def at_start(harness: "Harness", options: Options | None = None) -> None:
    """Raise ConfigError for what breaks a promise; correct what can be corrected; say the rest, a line each."""
    facts = gather.at_start(harness, options or Options())
    refused = []
    for check in CHECKS.values():
        if check.start is Start.no:
            continue
        for finding in findings_of(check, facts):
            if finding.verdict is Verdict.broken and check.start is Start.refuses:
                refused.append(finding)
            elif finding.verdict not in (Verdict.ok, Verdict.unknown) or finding.crashed:
                log.warning("%s", finding)
        if check.mend is not None:
            check.mend(facts)
    if refused:
        raise ConfigError("\n".join(map(str, refused)))


def diagnose(harness: "Harness", management: str | None = None, accept: Collection[str] = ()) -> list[Finding]:
    """What the doctor finds, the worst first; at least one finding a check. Those of `accept` are known and accepted.

    `management`: URL of RabbitMQ's management API, where it is not at port 15672 of the broker's host.
    """
    try:
        _ = harness.settings
    except ConfigError as error:
        return [settings_finding(error)]
    facts = gather.everything(harness, management)
    found = [_accepted(f, accept) for check in CHECKS.values() for f in findings_of(check, facts)]
    order = list(Verdict)
    return sorted(found, key=lambda finding: order.index(finding.verdict))


def settings_finding(error: ConfigError) -> Finding:
    """Settings that cannot be read at all: nothing else can be looked at."""
    check = CHECKS["settings"]
    return Finding(check.name, check.verdict, str(error), check.means, check.do, check.about)


def findings_of(check: Check, facts: Facts) -> Iterator[Finding]:
    """What a check finds; one that all is well, where it finds nothing; nothing, where it does not apply."""
    state = _can_be_made(check.part, facts)
    if state is None:
        return
    if state:
        yield Finding(check.name, Verdict.unknown, state, about=check.about)
        return
    any_found = False
    try:
        for found in check.function(facts):
            any_found = True
            yield _finding(check, found)
    except Exception as error:  # a fault of the doctor's must not keep a worker from starting
        any_found = True
        log.debug("the check %s failed", check.name, exc_info=True)
        yield crashed(check, error)
    if not any_found:
        yield Finding(check.name, Verdict.ok, about=check.about)


def _finding(check: Check, found: str | Note | Unknown) -> Finding:
    match found:
        case Note(text):
            return Finding(check.name, Verdict.ok, text, about=check.about)
        case Unknown(text):
            return Finding(check.name, Verdict.unknown, text, check.means, check.do, check.about)
        case _:
            return Finding(check.name, check.verdict, found, check.means, check.do, check.about)


def _accepted(finding: Finding, accept: Collection[str]) -> Finding:
    if finding.name not in accept or finding.verdict not in (Verdict.broken, Verdict.warning, Verdict.unknown):
        return finding
    return Finding(finding.name, Verdict.accepted, finding.what, finding.means, finding.do, finding.about)


def _can_be_made(part: str, facts: Facts) -> str | None:
    """'' for yes, None where it does not apply, else why not."""
    if part == "database" and facts.database is None:
        return "Not looked at: PostgreSQL cannot be used."
    for kind, transport in (("redis", "redis"), ("rabbitmq", "amqp")):
        if part == kind and getattr(facts, kind) is None:
            reached = facts.transport != transport or not facts.broker_problem
            return None if reached else "Not looked at: the broker cannot be reached."
    return ""
