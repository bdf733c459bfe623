"""File descriptors: as many as the system gives, and a clear line when they run out.

Every connection takes one. Without a free one the event loop turns new connections away (or lets
them wait) and tells nobody, so this looks itself.
"""

import contextlib
import errno
import logging
import os
import sys

from hermes_bridge.clock import SystemClock
from hermes_bridge.log import Quiet, event

if sys.platform != "win32":
    import resource

_log = logging.getLogger("hermes_bridge.http")
_ENOUGH = 1_048_576
_CAUSES = {
    errno.EMFILE: "this process has used up its file descriptors",
    errno.ENFILE: "this machine has used up its file descriptors",
}


def take_all() -> None:
    """Raise the soft limit of this process to what the system allows: 1,024 is few for a server."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError, ValueError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class FileWatch:
    """Looks whether a connection more could be taken; says so when not, once a minute at most."""

    def __init__(self) -> None:
        self._quiet = Quiet(_log, SystemClock().now)
        self._told = False

    def look(self) -> None:
        """Try to have one descriptor."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if (cause := _CAUSES.get(error.errno or 0)) is not None:
                self._run_out(cause)
            return
        if self._told:
            self._told = False
            event(_log, "files.free")

    def _run_out(self, cause: str) -> None:
        self._quiet.event(
            "files.none_left",
            cause,
            logging.ERROR,
            limit=_limit(),
            effect="new connections are turned away until some end; open ones go on",
            hint="raise the limit: ulimit -n, LimitNOFILE= of a systemd unit, ulimits of a container",
        )
        self._told = True


def _limit() -> int | None:
    return None if sys.platform == "win32" else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
