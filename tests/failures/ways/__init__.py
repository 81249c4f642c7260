"""The cases, in the order of the ways that a job can vanish, double or loop."""

from tests.failures.case import Case
from tests.failures.ways import (
    brokers,
    children,
    databases,
    exceptions,
    ids,
    losses,
    messages,
    observers,
    payloads,
    pools,
    producers,
    shutdowns,
    strangers,
    verdicts,
    workers,
)

ALL: list[Case] = sorted(
    (
        case
        for module in (
            children,
            workers,
            messages,
            verdicts,
            exceptions,
            observers,
            brokers,
            databases,
            shutdowns,
            payloads,
            ids,
            producers,
            pools,
            losses,
            strangers,
        )
        for case in module.CASES
    ),
    key=lambda case: case.way,
)
