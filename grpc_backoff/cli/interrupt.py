"""What Ctrl-C does to the command line: it ends it, from the first moment on, without a traceback.

Next to nothing is imported here: until this is in place, Ctrl-C is Python's to answer.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # `typing` takes its time
if TYPE_CHECKING:
    from types import FrameType

__all__ = ["end_on_interrupt", "interruptible"]


def _end(_number: int, _frame: FrameType | None) -> None:
    """End at once: wherever this comes, in the midst of an import too, there is nothing to be lost."""
    try:
        os.write(2, b"\nAborted!\n")
    except OSError:  # standard error is closed
        pass
    finally:
        os._exit(1)


def end_on_interrupt() -> None:
    """Have Ctrl-C end the process at once, unless whoever started it wants Ctrl-C ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:  # noqa: SIM105 - contextlib takes its time
            signal.signal(signal.SIGINT, _end)
        except ValueError:  # not the main thread: Ctrl-C does not come here
            pass


class interruptible:  # noqa: N801 - a context manager, named as one
    """Have Ctrl-C raise KeyboardInterrupt in here, for what has something to put in order."""

    def __enter__(self) -> None:
        """Give Ctrl-C back to Python."""
        self._mine = signal.getsignal(signal.SIGINT) is _end
        if self._mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_error: object) -> None:
        """Take it again."""
        if self._mine:
            signal.signal(signal.SIGINT, _end)
