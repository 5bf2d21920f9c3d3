"""Credentials that are read for each attempt, in a thread, and files that are watched for changes (PO-10).

Neither an event loop nor the conductor nor a caller's thread may wait for a disk or a function of the program. So
each source has at most one thread that reads, and one thread of the process checks the files of all channels.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

import grpc

from grpc_backoff.base import threads
from grpc_backoff.base.base_errors import OptionError, kind_of
from grpc_backoff.base.logs import Log
from grpc_backoff.base.process import after_fork
from grpc_backoff.base.status import Failure, Stage
from grpc_backoff.base.threads import Running
from grpc_backoff.config.credentials import (
    Changed,
    CredentialsSource,
    Outcome,
    Tell,
    TLSFiles,
    UnusableFilesError,
    load_files,
)
from grpc_backoff.engine.core_dial import LateDial
from grpc_backoff.engine.gate import unheard
from grpc_backoff.engine.single_flight import SingleFlight
from grpc_backoff.grpcio.private import refuse_single_use

if TYPE_CHECKING:
    from grpc_backoff.engine import core_connector
    from grpc_backoff.engine.core_connector import BaseConnector

_LOG = Log(__name__)

_MARGIN = 0.25
"""How long before an attempt's limit the wait for its credentials ends, in seconds, so that they are the reason."""


def security_of(credentials: object) -> grpc.ChannelCredentials | CredentialsSource:
    """Return what a channel is secured with.

    Raises:
        TypeError: it is neither credentials, nor files, nor a function.
    """
    if isinstance(credentials, grpc.ChannelCredentials):
        return credentials
    if isinstance(credentials, TLSFiles):
        return FilesSource(credentials)
    if callable(credentials):
        return FunctionSource(credentials)
    raise TypeError(  # None would create a channel without TLS
        f"credentials={kind_of(credentials)}: expected grpc.ChannelCredentials, tls_files(...) or a function"
    )


def time_to_read(limit: float) -> float:
    """Return how many seconds of an attempt of `limit` seconds its credentials may take."""
    return max(limit - _MARGIN, limit / 2)


class ReadingAttempt(LateDial[Any]):
    """An attempt whose credentials are read first. Everything runs at the connector's home.

    If it is abandoned, a function of the program that reads credentials may go on.
    """

    def __init__(
        self, owner: BaseConnector[Any], source: CredentialsSource, limit: float, tell: core_connector.Tell[Any]
    ) -> None:
        """Start to read; `limit` is the time limit of the whole attempt, in seconds."""
        super().__init__(owner, tell)
        home, most = owner.home, time_to_read(limit)
        self._ends = home.now() + limit
        too_slow = Failure(Stage.CREDENTIALS, f"no credentials after {most:g} s")
        self._waits = home.call_at(home.now() + most, lambda: self._read(too_slow))
        source.read(lambda outcome: home.post(lambda: self._read(outcome)))

    def _read(self, outcome: Outcome) -> None:
        tell = self._tell
        if tell is unheard:
            return  # it has timed out, or was abandoned
        if isinstance(outcome, Failure):
            self.abandon()
            tell(outcome)
        else:
            self._owner.credentials = outcome
            self._begin(self._ends - self._owner.home.now())


_READER: SingleFlight[grpc.ChannelCredentials] = SingleFlight("grpc-backoff-credentials", Stage.CREDENTIALS)


class _Source:
    """What both kinds of sources have in common."""

    def read(self, tell: Tell) -> None:
        """Read the credentials; see `CredentialsSource.read`."""
        _READER.ask(self, self._outcome, tell)

    @abstractmethod
    def _outcome(self) -> Outcome:
        """Return the credentials, or why there are none; this may block."""


class FunctionSource(_Source):
    """A function of the program that returns credentials."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.identity: Hashable = function if isinstance(function, Hashable) else id(function)
        self._function = function

    def watch(self, changed: Changed) -> None:
        """Do nothing: only the program knows about a change and then calls `refresh_connection`."""

    def close(self) -> None:
        """Do nothing, because nothing is watched."""

    def _outcome(self) -> Outcome:
        try:
            made = self._function()
        except BaseException as error:  # noqa: BLE001 - whatever the program raises, the attempt has failed
            return Failure(Stage.CREDENTIALS, f"the function for credentials raised {type(error).__name__}: {error}")
        if isinstance(made, grpc.ChannelCredentials):
            try:
                refuse_single_use(made)
            except OptionError as error:
                return Failure(Stage.CREDENTIALS, str(error))
            return made
        said = f"the function for credentials returned {kind_of(made)}, not grpc.ChannelCredentials"
        return Failure(Stage.CREDENTIALS, said)


class FilesSource(_Source):
    """Files that hold credentials. What was last usable is kept while the files are not."""

    def __init__(self, files: TLSFiles) -> None:
        self.identity: Hashable = files
        self.check_every = files.check_every
        self.changed: WeakMethod[Changed] | None = None
        self._files = files
        self._loading = threading.Lock()
        self._credentials: grpc.ChannelCredentials | None = None
        self._digest = b""
        self._announced = b""
        self._problem = ""

    def watch(self, changed: Changed) -> None:
        """Check the files from time to time; see `CredentialsSource.watch`."""
        self.changed = WeakMethod(changed, lambda _: self.close())
        _WATCH.add(self)

    def close(self) -> None:
        """Stop checking the files."""
        _WATCH.remove(self)

    def has_changed(self) -> bool:
        """Load the files; return whether they have other usable contents than when this was last asked."""
        self._outcome()
        with self._loading:
            before, self._announced = self._announced, self._digest
            return before not in (b"", self._digest)

    def _outcome(self) -> Outcome:
        with self._loading:
            try:
                loaded = load_files(self._files)
            except UnusableFilesError as error:
                return self._credentials_kept(str(error))
            self._problem = ""
            if loaded.digest != self._digest:
                self._credentials, self._digest = loaded
                self._announced = self._announced or loaded.digest
            assert self._credentials is not None, "there is a digest"
            return self._credentials

    def _credentials_kept(self, problem: str) -> Outcome:
        if self._credentials is None:
            return Failure(Stage.CREDENTIALS, problem)
        if problem != self._problem:
            self._problem = problem
            _LOG.warning("%s; the earlier credentials stay in use", problem)
        return self._credentials


class FileWatch:
    """The thread that checks files, while there are any to check."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Start over in the child of a fork, where the thread does not exist."""
        self._lock = threading.RLock()  # a finalizer may remove files while the same thread adds others
        self._due: dict[FilesSource, float] = {}
        self._woken = threading.Event()
        self._thread: Running | None = None

    def add(self, files: FilesSource) -> None:
        """Start to check files, in a thread that is started if none is running."""
        with self._lock:
            if self._thread is None:
                self._thread = threads.start(self._run, "grpc-backoff-files")
            self._due[files] = time.monotonic() + files.check_every
        self._woken.set()

    def remove(self, files: FilesSource) -> None:
        """Stop checking files; harmless if they are not checked."""
        with self._lock:
            self._due.pop(files, None)
        self._woken.set()

    def _run(self) -> None:
        while (due := self._next()) is not None:
            self._woken.wait(max(0.0, due - time.monotonic()))
            self._woken.clear()
            now = time.monotonic()
            for files in [files for files, at in tuple(self._due.items()) if at <= now]:
                self._check(files)

    def _next(self) -> float | None:
        """Return when the next files are due; None, and the thread ends, if there are none."""
        with self._lock:
            if not self._due:
                self._thread = None
                return None
            return min(self._due.values())

    def _check(self, files: FilesSource) -> None:
        try:
            changed = files.changed and files.changed()
            if files.has_changed() and changed is not None:
                changed()
        except RuntimeError:  # its event loop is closed
            self.remove(files)
        except Exception:  # noqa: BLE001 - other channels' files still have to be checked
            _LOG.exception("the files of a channel's credentials could not be checked")
        with self._lock:
            if files in self._due:
                self._due[files] = time.monotonic() + files.check_every


_WATCH = FileWatch()

after_fork(_WATCH.begin_anew)
