"""What an operator does, with the commands of the release on the path: a step per line of input, JSON per line out.

Three letters are pending: one is discarded, one replayed, one left to the sweep; then all fences are old, and pruned.
"""

import json
import sys
from typing import Any

from celery.bin.base import CLIContext
from click.testing import CliRunner
from rollout_app import app, harness
from sqlalchemy import text

from harness.cli import harness as group


def command(*words: object) -> Any:
    context = CLIContext(app=app, no_color=True, workdir=None)
    result = CliRunner().invoke(group, [str(word) for word in (*words, "--json")], obj=context)
    if result.exit_code != 0:
        sys.exit(f"{words}: exit code {result.exit_code}: {result.output} {result.exception!r}")
    return json.loads(result.stdout)


def main(step: str) -> Any:
    if step == "prune":
        # By the fence's own service: an age that a worker's role may write as well.
        with harness.database.begin() as session:
            fences = f"{harness.settings.schema_name}.processed_jobs"
            session.execute(text(f"UPDATE {fences} SET processed_at = now() - interval '30 days'"))
        return command("prune")
    letters = {letter["job_id"]: letter["id"] for letter in command("dead-letters", "list")}
    for letter in letters.values():
        command("dead-letters", "show", letter)
    command("dead-letters", "discard", letters["never"], "--reason", "a test", "--actor", "ann")
    command("dead-letters", "replay", letters["by_hand"], "--note", "switched on", "--actor", "ann")
    return {"swept": command("replay-sweep", "--actor", "ann"), "inbox": command("inbox")}


for line in sys.stdin:
    print(json.dumps(main(line.strip())), flush=True)
