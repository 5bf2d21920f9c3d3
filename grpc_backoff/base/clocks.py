"""The machine's monotonic clock."""

from __future__ import annotations

import sys
import time
from functools import partial

if sys.platform == "linux":
    monotonic = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    """Returns what `time.monotonic` does, also while a library for tests, such as freezegun, has replaced that."""
else:
    monotonic = time.monotonic
