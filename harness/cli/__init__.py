"""`celery -A app harness …`: the operator's door. Celery finds it by the entry point `celery.commands`."""

from harness.cli.group import harness

__all__ = ["harness"]
