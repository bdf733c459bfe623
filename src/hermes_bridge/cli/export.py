"""`hermes-bridge export`: history as lines of JSON, a table, or something to read."""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click

from hermes_bridge.cli import history
from hermes_bridge.cli.options import config_option
from hermes_bridge.errors import UsageError
from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.sql.reads import Wanted

_FAR = 2**53
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_Writer = Callable[[Exchange], None]


@click.command()
@click.option("--since", metavar="TIME", help="From when on: 7d, 12h, 2026-11-30 (default: all).")
@click.option("--until", metavar="TIME", help="Until when (default: now).")
@click.option(
    "--agent",
    "agents",
    metavar="NAME",
    multiple=True,
    help="Only exchanges this agent takes part in; given twice: between these two.",
)
@click.option("--conversation", metavar="ID", help="Only one conversation.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "md"]),
    default="jsonl",
    show_default=True,
)
@click.option("--output", "-o", metavar="FILE", help="Where to (default: standard output).")
@config_option
def export(
    since: str | None,
    until: str | None,
    agents: tuple[str, ...],
    conversation: str | None,
    form: str,
    output: str | None,
    config_path: str | None,
) -> None:
    """Write history: every exchange with its message, answer, outcome and times.

    \b
    Example:  hermes-bridge export --since 7d --agent helpdesk-bot --format md -o week.md
    What two bots said on one day:
      hermes-bridge export --since 2026-11-24 --until 2026-11-25 --agent daniel-bot --agent helpdesk-bot
    """
    if len(agents) > 2:
        raise UsageError(
            "--agent may be given twice at most: an exchange has two agents.",
            hint="Leave it out to have the exchanges of all.",
        )
    begin = history.instant(since, 0, "--since")
    end = history.instant(until, _FAR, "--until")
    wanted = Wanted(agents=agents[:1], partner="".join(agents[1:]), until=end)
    store = history.configured(config_path)
    history.must_exist(store)

    async def work() -> int:
        async with history.opened(store) as ledger:
            with _out(output) as out:  # after the store: a file is not emptied for nothing
                write, count = _WRITERS[form](out), 0
                async for exchange in history.history(ledger, begin, wanted, conversation):
                    write(exchange)
                    count += 1
        return count

    count = history.run(work)
    if sys.stderr.isatty() and output not in (None, "-"):
        click.echo(f"{count} exchanges in {output}", err=True)


@contextmanager
def _out(output: str | None) -> Iterator[TextIO]:
    if output is None or output == "-":
        yield sys.stdout
        return
    try:
        file = open(output, "w", encoding="utf-8", newline="")  # noqa: PTH123, SIM115
    except OSError as error:
        raise UsageError(
            f"{output} cannot be written: {error.strerror}.",
            hint="Name a file in a folder that is there and that you may write to (--output).",
        ) from None
    with file:
        yield file


def _jsonl(out: TextIO) -> _Writer:
    def write(x: Exchange) -> None:
        out.write(json.dumps(history.as_data(x), ensure_ascii=False) + "\n")

    return write


def _csv(out: TextIO) -> _Writer:
    table = csv.writer(out, lineterminator="\n")
    head = False

    def write(x: Exchange) -> None:
        nonlocal head
        data = history.as_data(x)
        if not head:
            table.writerow(data)
            head = True
        table.writerow([_cell(value) for value in data.values()])

    return write


def _cell(value: Any) -> Any:
    """Give a cell that no spreadsheet takes for a formula: peers write these texts."""
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return value


def _markdown(out: TextIO) -> _Writer:
    def write(x: Exchange) -> None:
        took = f", {(x.ended_at - x.at) / 1000:.1f} s" if x.ended_at else ""
        asker, target = history.one_line(x.asker, 64), history.one_line(x.target, 64)
        out.write(f"## {history.local(x.at)}: {asker} to {target} ({x.status.value}{took})\n\n")
        out.write(f"conversation `{history.one_line(x.conv, 256)}`, request `{x.rid}`\n\n")
        out.write(_fenced(x.message))
        for head, text in (("Answer", x.answer), ("Reason", x.reason), ("Late", x.late_answer)):
            if text:
                out.write(f"**{head}**\n\n{_fenced(text)}")

    return write


def _fenced(text: str) -> str:
    """Give a text in a fence that nothing in it can close."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}\n\n"


_WRITERS: dict[str, Callable[[TextIO], _Writer]] = {"jsonl": _jsonl, "csv": _csv, "md": _markdown}
