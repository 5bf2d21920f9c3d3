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
from typing import TextIO

_FAILED = 1
_NOT_TAKEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE}
"""The errors of a write whose reader is gone, or whose disk is full."""


def guarded(run: Callable[[], object]) -> int:
    """Run a command and return its exit status, even if its output cannot be written."""
    if sys.stderr is None:  # it is closed, so a socket could get its file descriptor
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open until the process ends
    if sys.stdout is None:
        return _complain("standard output is closed")
    try:
        run()
        status = 0
    except SystemExit as end:
        status = _status(end.code)
    except OSError as error:
        status = _FAILED if error.errno == errno.EPIPE else _complain(_what(error))
    return _flushed(sys.stdout, status)


def _status(code: object) -> int:
    if code is None:
        return 0
    return code if isinstance(code, int) else _complain(str(code))


def _flushed(stream: TextIO, status: int) -> int:
    try:
        stream.flush()
    except OSError as error:
        status = status or _FAILED if error.errno == errno.EPIPE else _complain(_what(error))
        _drop(stream)
    return status


def _drop(stream: TextIO) -> None:
    """Discard the remaining output, because the interpreter would try to write it again at exit and complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _what(error: OSError) -> str:
    problem = error.strerror or str(error)
    if error.filename is None and error.errno in _NOT_TAKEN:
        return f"cannot write: {problem}"
    return problem if error.filename is None else f"{error.filename}: {problem}"


def _complain(problem: str) -> int:
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"grpc-backoff: {problem}\n")
        sys.stderr.flush()
    return _FAILED
