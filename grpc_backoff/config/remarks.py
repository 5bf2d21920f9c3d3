"""What of a policy has no effect, said at the line of the program that asked for it (BP-2)."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable

from grpc_backoff.errors import PolicyWarning

__all__ = ["warn_of"]

_PACKAGE = __name__.partition(".")[0]


def warn_of(remarks: Iterable[str]) -> None:
    """Warn of each remark, at the nearest line that is not this package's own."""
    for remark in remarks:
        warnings.warn(remark, PolicyWarning, stacklevel=_outside())


def _outside() -> int:
    """Return the stack level of the nearest caller outside of this package, as seen from the caller of this function.

    A policy can be asked for at many depths: by a channel, for one of its methods, for one call. From Python 3.12 on
    `skip_file_prefixes` does this.
    """
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    return level
