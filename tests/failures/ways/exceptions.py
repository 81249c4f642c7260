"""Way 5: exceptions of every kind, and results that can't be kept."""

from tests.failures.case import Case, Send

_EXHAUSTED = {"exhausted": 1}


def raising(name: str, what: str, letters: dict[str, int]) -> Case:
    return Case(name, 5, f"the handler raises {name} on every try", [Send("raises", {"what": what})], 0, letters)


CASES = [
    raising("an exception", "error", _EXHAUSTED),
    raising("an exception that can't be pickled", "unpicklable", _EXHAUSTED),
    raising("an exception group", "group", _EXHAUSTED),
    raising("BaseException", "base", _EXHAUSTED),
    raising("SystemExit", "system_exit", _EXHAUSTED),
    raising("KeyboardInterrupt", "interrupt", _EXHAUSTED),
    raising("GeneratorExit", "generator_exit", _EXHAUSTED),
    raising("RecursionError", "recursion", _EXHAUSTED),
    raising("MemoryError", "memory", _EXHAUSTED),
    raising("Reject", "reject", {"permanent": 1}),
    raising("Ignore", "ignore", {"permanent": 1}),
    Case("retry()", 5, "the handler calls Celery's retry() once", [Send("retries")]),
    Case(
        "a result that can't be encoded",
        5,
        "the handler returns an object, with a result backend",
        [Send("returns_object")],
        settings={"result_backend": "cache+memory://", "task_ignore_result": False},
    ),
]
