"""What every command has in common: the app's harness, the terminal, and errors in words instead of a traceback."""

import os
import pwd
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from harness.cli.text import line
from harness.core.errors import HarnessError
from harness.core.masked import masked
from harness.store.database import Database, DatabaseAway, means_away, sqlstate
from harness.store.explain import explain, first_line
from harness.store.store import Store
from harness.worker.harness import Harness

if TYPE_CHECKING:
    from rich.console import Console

#: The exit codes, as every --help says them.
OK, REFUSED, USAGE, NOTHING, PARTLY = 0, 1, 2, 3, 4
EXIT_CODES = "Exit codes: 0 done; 1 error or refused; 2 wrong usage; 3 nothing matched; 4 a part of it failed."

_WIDTH = 160
#: Where the name of the command is kept, and the commands that only look.
_COMMAND = "harness.command"
_READS = ("list", "show", "inbox", "check")


@dataclass(frozen=True)
class Door:
    """What a command works with. `out` is for people; JSON is echoed as it is."""

    harness: Harness
    out: "Console"

    @property
    def database(self) -> Database:
        return self.harness.database

    @property
    def store(self) -> Store:
        return self.harness.store

    @property
    def service(self) -> str:
        return self.harness.settings.service


def entrance(width: int = _WIDTH) -> Door:
    """The door of the command that runs, whatever its settings are. `width`: of lines that go to no terminal.

    Raises UsageError without an app.
    """
    from rich.console import Console  # for a command that runs: the module itself is imported by each worker

    context = click.get_current_context()
    root = context.find_root()
    if "app" in root.params and root.params["app"] is None:
        raise click.UsageError("Which app? Name its module: celery -A yourapp harness …")
    wide = None if os.environ.get("COLUMNS") or sys.stdout.isatty() else width
    context.meta[_COMMAND] = context.command.name
    # Neither markup nor emoji: `key:1` or `:100:` in an id is what somebody has to copy.
    console = Console(no_color=context.obj.no_color, markup=False, highlight=False, emoji=False, width=wide)
    return Door(Harness.of(context.obj.app), console)


def door() -> Door:
    """The door of the command that runs. Raises UsageError without an app, ConfigError for wrong settings."""
    here = entrance()
    _ = here.harness.settings
    return here


def app_name() -> str:
    """What stands behind `celery -A`."""
    name = click.get_current_context().find_root().params.get("app")
    return name if isinstance(name, str) else "yourapp"


def os_user() -> str:
    """Who runs this command, for the audit log."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def actor_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--actor`."""
    return click.option("--actor", default=os_user, show_default="the OS user", help="Who does it, for the audit log.")(
        function
    )


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Write JSON instead of text.")(function)


def refuse(message: str, code: int = REFUSED) -> NoReturn:
    """End the command with this message on stderr."""
    raise Refusal(message, code)


class Refusal(click.ClickException):
    """Ends a command with a message on stderr and a code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(masked(message).replace("-A yourapp", f"-A {app_name()}"))
        self.exit_code = code  # type: ignore[misc]


class Guarded(click.Group):
    """A group whose commands end with a message and a code where they would end with a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DatabaseAway as error:
            refuse(_away(ctx, str(error)))
        except HarnessError as error:
            refuse(str(error))
        except DBAPIError as error:
            refuse(_database(ctx, error))
        except ArgumentError as error:
            # Our own URL is looked at with the settings: this one comes from a module of the project.
            refuse(f"While the app was loaded, SQLAlchemy said: {error}")
        except UnicodeEncodeError as error:
            if error.encoding != "utf-8":  # the terminal's
                raise
            # What a shell hands over in another encoding, Python keeps as lone surrogates.
            refuse(f"{line(repr(error.object))} can't be looked for or written: it is no UTF-8. Give it as UTF-8.")


def _database(ctx: click.Context, error: DBAPIError) -> str:
    first = first_line(error)
    if means_away(error):
        return _away(ctx, first)
    harness = Harness.of(ctx.obj.app)
    role = make_url(harness.settings.database_url).username or "ROLE"
    if (text := explain(error, where(harness), app_name(), role)) is not None:
        return text
    return f"PostgreSQL refused ({sqlstate(error)}): {first}"


def _away(ctx: click.Context, why: str) -> str:
    why = " ".join(why.split())
    why = why if why.endswith((".", "?", "!")) else f"{why}."
    lost = "" if ctx.meta.get(_COMMAND) in _READS else " What was under way is not committed."
    return (
        f"PostgreSQL cannot be used at {where(Harness.of(ctx.obj.app))}: {why}{lost} Check that the server runs, and "
        "harness_database_url or HARNESS_DATABASE_URL."
    )


def where(harness: Harness) -> str:
    """The tables that a command works on, without the password of their database."""
    settings = harness.settings
    url = make_url(settings.database_url).render_as_string(hide_password=True)
    return f"schema {settings.schema_name!r} of {masked(url)}"
