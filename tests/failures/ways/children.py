"""Way 1: the child dies, or is killed at its time limit."""

from tests.failures.case import Case, Send

CASES = [
    Case(
        "child killed once",
        1,
        "SIGKILL to the process of the job, on its first try",
        [Send("dies", {"how": "kill", "times": 1})],
    ),
    Case("child killed each time", 1, "SIGKILL on every try", [Send("dies", {"how": "kill"}, 2)], 0, {"crashed": 2}),
    Case(
        "segmentation fault", 1, "the process reads address 0", [Send("dies", {"how": "segfault"})], 0, {"crashed": 1}
    ),
    Case(
        "os._exit(0)", 1, "the process ends as if all were well", [Send("dies", {"how": "os_exit"})], 0, {"crashed": 1}
    ),
    Case(
        "hard limit in Python",
        1,
        "the hard time limit is hit",
        [Send("hangs", {"where": "python"}, 2)],
        0,
        {"timed_out": 2},
    ),
    Case(
        "hard limit in C",
        1,
        "the same while the process sits in a call of the C library",
        [Send("hangs", {"where": "c"})],
        0,
        {"timed_out": 1},
    ),
    Case(
        "hard limit in pg_sleep",
        1,
        "the same while PostgreSQL runs its statement",
        [Send("hangs", {"where": "database"})],
        0,
        {"timed_out": 1},
    ),
    Case(
        "soft limit",
        1,
        "the soft time limit is raised in the handler",
        [Send("soft", {"swallow": False})],
        0,
        {"timed_out": 1},
    ),
    Case(
        "soft limit swallowed", 1, "the handler catches the soft limit and goes on", [Send("soft", {"swallow": True})]
    ),
]
