"""What a person sees: a live table on a terminal, plain lines elsewhere."""

import time
from collections import Counter

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.demo_kit.running import OUTCOMES
from examples.demo_kit.state import Letter

_MEANING = {
    "completed": "work and fence committed together",
    "duplicate": "the job was done before: nothing ran",
    "stale": "the job is dead, or waits for its next try: nothing ran",
    "deferred": "a try failed; the next one waits in the inbox",
    "dead": "no further try: a dead letter",
}


class View:
    """Shows how far the run is: on a terminal a table that changes, elsewhere a line a second where there is news."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._live: Live | None = None
        self._last, self._at = "", 0.0
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=8, transient=False)
            self._live.start()

    def say(self, text: str) -> None:
        """One line that stays."""
        self.console.print(text, markup=False, soft_wrap=True)

    def show(self, outcomes: Counter[str], ledger: int, waiting: int, letters: int) -> None:
        """The numbers now."""
        if self._live is not None:
            self._live.update(_table(outcomes, ledger, waiting, letters))
            return
        line = "  ".join(f"{name} {outcomes[name]}" for name in OUTCOMES)
        line += f" | ledger {ledger}  inbox {waiting}  open letters {letters}"
        if line != self._last and time.monotonic() - self._at >= 1:
            self.say("  " + line)
            self._last, self._at = line, time.monotonic()

    def letters(self, letters: list[Letter]) -> None:
        """The dead letters, as an operator finds them."""
        table = Table(title="dead letters", title_justify="left", expand=True)
        for name, width in (("id", 2), ("task", 17), ("reason", 15), ("tries", 5)):
            table.add_column(name, no_wrap=True, min_width=width)
        table.add_column("error", no_wrap=True, overflow="ellipsis", ratio=1)
        for letter in letters:
            task = letter.task.removeprefix("github_ledger.")
            error = letter.error.splitlines()[0].removeprefix("harness.core.errors.")
            table.add_row(str(letter.id), task, letter.reason, str(letter.attempts), Text(error))
        self.console.print(table)

    def close(self) -> None:
        """Leave the last table standing."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()


def _table(outcomes: Counter[str], ledger: int, waiting: int, letters: int) -> Table:
    table = Table(title="deliveries by outcome", title_justify="left")
    table.add_column("outcome")
    table.add_column("so far", justify="right")
    table.add_column("what it means", no_wrap=True)
    for name in OUTCOMES:
        table.add_row(name, str(outcomes[name]), _MEANING[name])
    table.add_section()
    table.add_row("ledger", str(ledger), "effects in PostgreSQL")
    table.add_row("inbox", str(waiting), "jobs that wait for the relay")
    table.add_row("letters", str(letters), "jobs that wait for a person")
    return table
