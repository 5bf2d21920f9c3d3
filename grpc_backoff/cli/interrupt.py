"""Makes Ctrl-C end the command line without a traceback, from the very start.

Imports almost nothing: until this is in place, Python handles Ctrl-C itself.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from types import FrameType

__all__ = ["end_on_interrupt", "interruptible"]


def _end(_number: int, _frame: FrameType | None) -> None:
    """Exit at once: whenever this happens, even during an import, there is nothing to lose."""
    try:
        os.write(2, b"\nAborted!\n")
    except OSError:  # standard error is closed
        pass
    finally:
        os._exit(1)


def end_on_interrupt() -> None:
    """Make Ctrl-C end the process at once, unless the parent process had it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:  # noqa: SIM105 - contextlib takes its time
            signal.signal(signal.SIGINT, _end)
        except ValueError:  # not the main thread, which never receives Ctrl-C
            pass


class interruptible:  # noqa: N801 - a context manager, named as one
    """Make Ctrl-C raise KeyboardInterrupt within the block, for code that has to clean up."""

    def __enter__(self) -> None:
        """Restore Python's own handling of Ctrl-C."""
        self._mine = signal.getsignal(signal.SIGINT) is _end
        if self._mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_error: object) -> None:
        """Handle Ctrl-C again."""
        if self._mine:
            signal.signal(signal.SIGINT, _end)
