"""How the command line ends where nobody takes its output: by a line on standard error and the status 1.

A pipe that is closed needs no line. There is never a traceback, nor what the interpreter says of streams at its end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from typing import TextIO

__all__ = ["guarded"]

_FAILED = 1
_NOT_TAKEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE}
"""What writing fails with whose reader is gone, or whose disk is full."""


def guarded(run: Callable[[], object]) -> int:
    """Run a command and return the exit status, whatever becomes of its output."""
    if sys.stderr is None:  # closed, and its number may be a socket's soon
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for as long as the process lives
    if sys.stdout is None:
        return _complain("standard output is closed")
    try:
        run()
        status = 0
    except SystemExit as end:
        status = _status(end.code)
    except OSError as error:
        status = _complain(_what(error))
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
    """Send what is left to nowhere: the interpreter would try again at its end, and complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _what(error: OSError) -> str:
    said = error.strerror or str(error)
    if error.filename is None and error.errno in _NOT_TAKEN:
        return f"cannot write: {said}"
    return said if error.filename is None else f"{error.filename}: {said}"


def _complain(problem: str) -> int:
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"grpc-backoff: {problem}\n")
        sys.stderr.flush()
    return _FAILED
