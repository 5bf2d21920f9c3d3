"""Makes Ctrl-C end the command line without a traceback, from the very start.

This module imports almost nothing, because Python handles Ctrl-C itself until the handler is in place.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def _end(_number: int, _frame: FrameType | None) -> None:
    """Exit at once. That is safe at any time, even during an import, because there is nothing to clean up."""
    try:
        os.write(2, b"\nAborted!\n")
    except OSError:  # standard error is closed
        pass
    finally:
        os._exit(1)


def end_on_interrupt() -> None:
    """Make Ctrl-C end the process at once, unless the parent process started it with Ctrl-C ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:  # noqa: SIM105 - contextlib is slow to import
            signal.signal(signal.SIGINT, _end)
        except ValueError:  # not the main thread, which never receives Ctrl-C
            pass


class interruptible:  # noqa: N801 - a context manager, named as one
    """Make Ctrl-C raise KeyboardInterrupt within the block, for code that has to clean up."""

    def __enter__(self) -> None:
        """Restore Python's own handling of Ctrl-C."""
        self._found = signal.getsignal(signal.SIGINT)
        if self._found is _end:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_error: object) -> None:
        """Restore the handler that was found, if another one is in place."""
        if signal.getsignal(signal.SIGINT) is not self._found:
            signal.signal(signal.SIGINT, self._found)


def end_by_interrupt() -> None:
    """End the process by the signal of Ctrl-C, so that a shell ends its loop, too, and reports status 130."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
    sys.exit(128 + signal.SIGINT)  # the first process of a container does not end by it
