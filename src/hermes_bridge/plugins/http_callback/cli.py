"""`hermes callback ...`: the operator's commands. Also `python -m`, without Hermes at hand."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from . import cli_verbs as verbs
from .custody import NotFound
from .home import hermes_home
from .store import OutboxUnavailable
from .tables import say

Verb = Callable[[argparse.Namespace], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe every command (Hermes calls this with the parser of `hermes callback`)."""
    sub = parser.add_subparsers(dest="callback_verb", metavar="COMMAND")

    def verb(name: str, run: Verb, help: str, *, json: bool = False) -> argparse.ArgumentParser:
        found = sub.add_parser(name, help=help, description=help)
        found.set_defaults(callback_run=run)
        found.add_argument("--home", type=Path, help="the Hermes home (default: the present one)")
        if json:
            found.add_argument("--json", action="store_true", help="print JSON")
        return found

    verb("status", verbs.status, "What waits, what failed, how the endpoints are", json=True)
    lists = verb("list", verbs.list_rows, "List callbacks, newest first", json=True)
    _filters(lists)
    lists.add_argument("--limit", type=int, default=50, help="at most this many (50)")
    show = verb("show", verbs.show, "One callback with its attempts", json=True)
    show.add_argument("id", help="the id, or an unambiguous start of it")
    show.add_argument("--body", action="store_true", help="print the body too")
    _replay_and_drop(verb)
    verb("endpoints", verbs.endpoints, "The endpoints and their breakers", json=True)
    for name, run, help in (
        ("pause", verbs.pause, "Keep what comes for an endpoint, until resume"),
        ("resume", verbs.resume, "Send an endpoint what was parked, in order"),
    ):
        verb(name, run, help).add_argument("endpoint", help="@name, or the URL without its query")
    allow = verb("allow", verbs.allow, "Let callbacks reach a private or local receiver", json=True)
    allow.add_argument("what", nargs="?", help="a URL, host, address or network; none: list them")
    allow.add_argument("--remove", action="store_true", help="take it off the list")
    _secrets_and_tests(verb)
    verb("doctor", verbs.doctor, "Look for what could be wrong", json=True)
    export = verb("export", verbs.export, "Print callbacks as JSON lines, bodies included")
    _filters(export)
    drain = verb("drain", verbs.drain, "Deliver what is due now, when no gateway does")
    drain.add_argument("--timeout", type=float, default=60.0, help="seconds (60)")


def _filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", action="append", help="only this state (may be repeated)")
    parser.add_argument("--endpoint", default="", help="only this endpoint")
    parser.add_argument("--since", default="", help="only newer ones: 30m, 12h, 7d or a date")


def _replay_and_drop(verb: Callable[..., argparse.ArgumentParser]) -> None:
    replay = verb("replay", verbs.replay, "Send again, under the same id")
    replay.add_argument("id", nargs="?", help="the id")
    replay.add_argument("--all", action="store_true", help="every one that the filters choose")
    replay.add_argument(
        "--new-id", action="store_true", help="as a new callback (receivers act again)"
    )
    _filters(replay)
    drop = verb("drop", verbs.drop, "Give a callback up; it is kept for the record")
    drop.add_argument("id", help="the id")


def _secrets_and_tests(verb: Callable[..., argparse.ArgumentParser]) -> None:
    rotate = verb("rotate", verbs.rotate, "Make a new secret and say how to change over")
    rotate.add_argument("endpoint", nargs="?", default="", help="@name; none: the global secret")
    test = verb("test", verbs.test, "Send a signed test and show each step", json=True)
    test.add_argument("target", help="a URL or @name")
    test.add_argument("--dry-run", action="store_true", help="sign, but send nothing")
    verify = verb("verify", verbs.verify, "Check the signature of a request that was caught")
    verify.add_argument("--secret", required=True, help="the secret, or env:NAME")
    verify.add_argument("--body", required=True, type=Path, help="file with the raw body")
    verify.add_argument(
        "--headers", required=True, type=Path, help="file with the headers, one a line"
    )


def run(args: argparse.Namespace) -> int:
    """Run a command that Hermes has parsed. Exit codes: 0, 1 (failed), 2 (usage)."""
    chosen: Verb | None = getattr(args, "callback_run", None)
    if chosen is None:
        say("usage: hermes callback COMMAND (try `hermes callback --help`)", sys.stderr)
        return 2
    args.home = (args.home or hermes_home()).expanduser().resolve()
    try:
        return chosen(args)
    except (NotFound, OutboxUnavailable, ValueError) as error:
        say(f"error: {error}", sys.stderr)
        return 1
    except BrokenPipeError:
        return 0


def run_and_exit(args: argparse.Namespace) -> None:
    """Run a command for Hermes, which drops exit codes: a failure ends the process with its own."""
    if code := run(args):
        raise SystemExit(code)


def main(argv: list[str] | None = None) -> int:
    """Run as a program of its own."""
    parser = argparse.ArgumentParser(prog="http_callback", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(argv))
