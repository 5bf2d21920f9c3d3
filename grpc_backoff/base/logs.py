"""Logging that gets in the way of nothing: what a program adds to `logging` may raise."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Adapter = logging.LoggerAdapter[logging.Logger]
else:
    Adapter = logging.LoggerAdapter


class Log(Adapter):
    """A logger of this library; a filter, a handler or a factory of records that raises ends no call and no thread."""

    def __init__(self, name: str) -> None:
        """Write to the logger of this name."""
        super().__init__(logging.getLogger(name), {})

    def log(self, level: int, msg: object, *args: object, **named: Any) -> None:
        """Write a line, as `logging.Logger.log` does.

        Of the attributes in `extra`, those are left out that the program's own factory of records sets.
        """
        if not self.logger.isEnabledFor(level):
            return
        try:
            factory = logging.getLogRecordFactory()
            if "extra" in named and factory is not logging.LogRecord:  # `logging` would refuse the line
                own = vars(factory(self.logger.name, level, "", 0, msg, (), None))
                named["extra"] = {name: value for name, value in named["extra"].items() if name not in own}
            self.logger.log(level, msg, *args, stacklevel=2, **named)
        except Exception:  # noqa: BLE001 - whatever the program's own code raises
            if logging.raiseExceptions and sys.stderr:  # as handlers do with what they cannot write
                with contextlib.suppress(Exception):  # such as that stderr is closed
                    traceback.print_exc()
