"""Ends the command line cleanly if its output cannot be written: one line on standard error, and exit status 1.

If the output is a closed pipe, even that line is omitted. There is never a traceback, nor the interpreter's message
about streams at exit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable

_FAILED = 1
_NOT_TAKEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""The errors of a write whose output is closed, or whose disk is full."""


def guarded(run: Callable[[], object]) -> int:
    """Run a command and return its exit status, even if its output cannot be written."""
    if sys.stderr is None:  # it is closed, so a socket could get its file descriptor
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open until the process ends
    if sys.stdout is None:
        return _complain("standard output is closed")
    status = 0
    try:
        run()
    except SystemExit as end:
        status = (end.code or 0) if isinstance(end.code, int | None) else _complain(str(end.code))
    except OSError as error:
        status = _not_done(error, _FAILED)
    try:
        sys.stdout.flush()
    except OSError as error:
        status = _not_done(error, status or _FAILED)
        # Discard the remaining output, because the interpreter would try to write it again at exit and complain.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _not_done(error: OSError, status: int) -> int:
    """Complain of an error, and return the exit status; `status` is that of a closed pipe."""
    if error.errno == errno.EPIPE:
        return status
    problem = error.strerror or str(error)
    if error.filename is not None:
        problem = f"{error.filename}: {problem}"
    elif error.errno in _NOT_TAKEN:
        problem = f"cannot write: {problem}"
    return _complain(problem)


def _complain(problem: str) -> int:
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"grpc-backoff: {problem}\n")
        sys.stderr.flush()
    return _FAILED
