"""Every error of ours that a person can meet.

    HermesBridgeError
    ├── ConfigError       a configuration file or the environment says something impossible
    ├── UsageError        a command was called in a way it cannot obey
    ├── Unreachable       a server that a command needs does not answer
    ├── DatabaseDown      the store does not answer now; the caller keeps its data and tries again
    ├── RowRefused        the store works, and will never take this data
    └── PeerError         the other end of a connection broke the contract

Each carries what happened, what it means and what to do. Expected outcomes of an ask are
results, never exceptions.
"""


class HermesBridgeError(Exception):
    """The root: `str(error)` is one sentence for people, `hint` says what to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(HermesBridgeError):
    """The configuration cannot be used. Exit code 2."""

    exit_code = 2


class UsageError(HermesBridgeError):
    """The command line cannot be obeyed. Exit code 2."""

    exit_code = 2


class Unreachable(HermesBridgeError):
    """A server that was needed does not answer."""


class DatabaseDown(HermesBridgeError):
    """The store does not answer now. Nothing is lost by this alone: keep the rows and retry."""


class RowRefused(HermesBridgeError):
    """The store works and refuses the data: trying again does not help."""


class PeerError(HermesBridgeError):
    """The other end of a connection broke the contract; `close_code` is what it is told."""

    def __init__(self, message: str, *, close_code: int = 1008) -> None:
        super().__init__(message)
        self.close_code = close_code
