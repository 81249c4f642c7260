"""The group `harness` and its commands."""

import click

from harness.cli.check import check
from harness.cli.dead_letters import dead_letters
from harness.cli.door import EXIT_CODES, Guarded
from harness.cli.enqueue import enqueue
from harness.cli.inbox import inbox, reorder
from harness.cli.keep import prune, replay_sweep
from harness.cli.migrate import migrate
from harness.cli.serve import dev, receive, relay


@click.group(cls=Guarded, epilog=EXIT_CODES)
def harness() -> None:
    """Jobs that take effect once, or leave evidence.

    The database is the one of harness_database_url in the app's configuration, or of HARNESS_DATABASE_URL in the
    environment. Only the rows of the app's own harness_service are shown and touched.
    """


for command in (check, migrate, dev, relay, receive, dead_letters, inbox, reorder, enqueue, replay_sweep, prune):
    harness.add_command(command)
