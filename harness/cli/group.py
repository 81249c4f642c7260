"""The group `harness` and its commands.

Celery loads this at the start of every one of its processes, workers too: a command's module, and Alembic and Rich
with it, is imported when the command is asked for.
"""

from collections import UserDict
from importlib import import_module
from typing import Any

import click

from harness.cli.door import EXIT_CODES, Guarded

#: Each command's module, and its name there.
_WHERE = {
    "check": ("check", "check"),
    "migrate": ("migrate", "migrate"),
    "dev": ("serve", "dev"),
    "relay": ("serve", "relay"),
    "receive": ("serve", "receive"),
    "dead-letters": ("dead_letters", "dead_letters"),
    "inbox": ("inbox", "inbox"),
    "reorder": ("inbox", "reorder"),
    "enqueue": ("enqueue", "enqueue"),
    "replay-sweep": ("keep", "replay_sweep"),
    "prune": ("keep", "prune"),
}


class _Commands(UserDict[str, Any]):
    """The commands by name; a value is imported when it is read."""

    def __getitem__(self, name: str) -> click.Command:
        module, attribute = super().__getitem__(name)
        command: click.Command = getattr(import_module(f"harness.cli.{module}"), attribute)
        return command


@click.group(cls=Guarded, epilog=EXIT_CODES, commands=_Commands(_WHERE))
def harness() -> None:
    """Jobs that take effect once, or leave evidence.

    The database is the one of harness_database_url in the app's configuration, or of HARNESS_DATABASE_URL in the
    environment. Only the rows of the app's own harness_service are shown and touched.
    """
