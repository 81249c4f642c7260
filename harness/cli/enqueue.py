"""`enqueue`: a job from the command line, by way of the inbox."""

import json
from datetime import datetime
from typing import Any

import click

from harness.cli.door import EXIT_CODES, door, json_option, refuse
from harness.cli.text import Duration, line


class Json(click.ParamType[Any]):
    """A JSON value of one type."""

    def __init__(self, kind: type, name: str) -> None:
        self.kind, self.name = kind, name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, self.kind):
            return value
        try:
            read = json.loads(value)
        except (ValueError, RecursionError) as error:
            self.fail(f"{line(repr(value))} is no JSON that can be read: {error}.", param, ctx)
        if not isinstance(read, self.kind):
            self.fail(f"{line(repr(value))} is no JSON {self.name}.", param, ctx)
        return read


@click.command(epilog=EXIT_CODES)
@click.argument("task")
@click.option("--args", type=Json(list, "array"), default="[]", help="Positional arguments, a JSON array.")
@click.option("--kwargs", type=Json(dict, "object"), default="{}", help="Keyword arguments, a JSON object.")
@click.option("--job-id", help="A natural id; without it a UUIDv7.")
@click.option("--delay", type=Duration(), help="Send it so long from now, for example 90s, 15m, 1d.")
@click.option("--eta", help="Send it at this time, ISO 8601 with a zone: 2030-01-31T09:00:00+01:00.")
@click.option("--expires", type=Duration(), help="A dead letter (expired) when it has not run so long from now.")
@click.option("--priority", type=click.IntRange(0, 255), help="As the broker reads it.")
@click.option("--tenant", help="Whose job it is.")
@json_option
def enqueue(task: str, args: list[Any], kwargs: dict[str, Any], eta: str | None, as_json: bool, **options: Any) -> None:
    """Put a job into the inbox; the relay sends it.

    TASK is the name of a job of the app. The arguments are checked as for a worker. The same --job-id with the same
    arguments again changes nothing and says what has become of the job (waiting, done, dead); with other arguments it
    is refused.
    """
    here = door()
    here.harness.app.loader.import_default_modules()
    job = here.harness.app.tasks.get(task)
    if job is None or not getattr(job, "is_job", False):
        known = ", ".join(sorted(here.harness.jobs())) or "none"
        refuse(f"The app has no job {task!r}. Its jobs: {known}.")
    try:
        options["eta"] = None if eta is None else datetime.fromisoformat(eta)
    except ValueError:
        raise click.BadParameter(f"{eta!r} is no time in ISO 8601.", param_hint="--eta") from None
    with here.database.begin() as session:
        answer = here.harness.enqueue(session, job.signature(args, kwargs), **options)
    if as_json:
        click.echo(json.dumps({"job_id": answer.job_id, "state": str(answer.state)}))
    else:
        here.out.print(f"{answer.job_id} {answer.state}")
