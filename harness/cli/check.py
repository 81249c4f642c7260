"""`check`: the doctor."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from harness.cli.door import OK, REFUSED, app_name, entrance, json_option
from harness.cli.text import plain
from harness.core.masked import masked
from harness.worker.check import CHECKS, Finding, Verdict, diagnose

_CODES = (
    "Exit codes: 0 no promise is broken; 1 one is, a server cannot be reached, or a check itself failed; 2 wrong usage."
)
_COLOURS = {Verdict.broken: "bold red", Verdict.warning: "yellow", Verdict.unknown: "magenta"}
#: In this order, and so they are counted.
_COUNTED = {
    Verdict.broken: "broken",
    Verdict.warning: "warnings",
    Verdict.unknown: "unknown",
    Verdict.corrected: "corrected",
    Verdict.accepted: "accepted",
    Verdict.ok: "ok",
}


@click.command(epilog=_CODES)
@click.option(
    "--accept",
    metavar="NAME",
    multiple=True,
    type=click.Choice(list(CHECKS)),
    help="A finding that is known and accepted: it is shown and does not count. May be given several times.",
)
@click.option("--strict", is_flag=True, help="End with 1 for a warning, too.")
@click.option(
    "--management",
    metavar="URL",
    envvar="HARNESS_RABBITMQ_MANAGEMENT",
    help="RabbitMQ's management API, which knows the queues' policies; with its own user:password@ where that is not "
    "the broker's.  [default: port 15672 of the broker's host, with TLS 15671]",
)
@json_option
@click.pass_context
def check(ctx: click.Context, accept: tuple[str, ...], strict: bool, management: str | None, as_json: bool) -> None:
    """Look for settings that break a promise, and say what to do.

    Looks at the configuration, the jobs, PostgreSQL and the broker; changes nothing, sends nothing. A worker makes the
    cheap ones of these checks when it starts, and refuses to where a promise is broken. docs/howto/check.md has the
    list of all checks.
    """
    here = entrance(width=100)
    here.harness.app.loader.import_default_modules()
    findings = diagnose(here.harness, management, accept)
    bad = (Verdict.broken, Verdict.warning) if strict else (Verdict.broken,)
    failed = any(finding.verdict in bad or finding.crashed for finding in findings)
    if as_json:
        click.echo(_json(findings, failed))
    else:
        _write(here.out, findings)
    ctx.exit(REFUSED if failed else OK)


def _json(findings: Sequence[Finding], failed: bool) -> str:
    counts = Counter(str(finding.verdict) for finding in findings)
    rows = [
        {key: _told(value) if isinstance(value, str) else value for key, value in asdict(f).items()} for f in findings
    ]
    return json.dumps({"ok": not failed, "counts": dict(counts), "findings": rows}, indent=2, ensure_ascii=False)


def _write(out: Console, findings: Sequence[Finding]) -> None:
    """The worst first, each in a paragraph of its own; what is well, and what was not looked at, in a few lines."""
    blind: dict[str, list[str]] = defaultdict(list)
    for finding in findings:
        if finding.verdict is Verdict.unknown and not finding.do:
            blind[finding.what].append(finding.name)
        elif finding.verdict is not Verdict.ok:
            _paragraph(out, finding)
    well = [finding for finding in findings if finding.verdict is Verdict.ok]
    for finding in well:
        if finding.what:
            out.print(_indented(f"{finding.name}: {finding.what}", 0))
    for why, names in blind.items():
        out.print(_indented(f"{why} ({', '.join(names)})", 0))
    if silent := [finding.name for finding in well if not finding.what]:
        out.print(_indented("ok: " + ", ".join(silent), 0))
    counts = Counter(finding.verdict for finding in findings)
    made = len({finding.name for finding in findings})
    told = ", ".join(_said(counts[verdict], word) for verdict, word in _COUNTED.items() if counts[verdict])
    out.print(_indented(f"{made} check{'' if made == 1 else 's'}: {told}", 0))


def _paragraph(out: Console, finding: Finding) -> None:
    head = Text(f"{finding.verdict.upper()}  ", style=_COLOURS.get(finding.verdict, "cyan"))
    out.print(head.append(finding.name, style="bold"))
    for text in (finding.what, finding.means, finding.do and f"→ {finding.do}"):
        if text:
            out.print(_indented(text))
    out.print()


def _indented(text: str, by: int = 2) -> Padding:
    return Padding(Text(plain(_told(text))), (0, 0, 0, by), expand=False)


def _told(text: str) -> str:
    return masked(text).replace("-A yourapp", f"-A {app_name()}")


def _said(count: int, word: str) -> str:
    return f"{count} {word.removesuffix('s') if count == 1 else word}"
