"""Way 6: whoever looks on is down, slow or raises."""

from tests.failures.case import Case, Send

CASES = [
    Case(
        "hooks and signals raise",
        6,
        "every hook and signal handler of the project raises",
        [Send(), Send("raises", {"what": "error"})],
        1,
        {"exhausted": 1},
        environment={"FAILURES_HOOKS": "1"},
    ),
    Case(
        "result backend down",
        6,
        "nobody listens where the results go",
        [Send(), Send("raises", {"what": "error"})],
        1,
        {"exhausted": 1},
        settings={
            "result_backend": "redis://127.0.0.1:1/0",
            "result_backend_transport_options": {"retry_policy": {"timeout": 1.0, "max_retries": 1}},
            "redis_socket_connect_timeout": 1,
            "redis_retry_on_timeout": False,
        },
        seconds=60,
    ),
]
