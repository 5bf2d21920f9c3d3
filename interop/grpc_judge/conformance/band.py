"""The constants of connection backoff and the tolerance of the official reconnect test, in seconds.

They repeat the library's constants on purpose, because they judge the library. A gap with backoff E may be as short as
(1 - JITTER) * E - TRANSMISSION and as long as (1 + JITTER) * E + TRANSMISSION (IO-2).
"""

from __future__ import annotations

INITIAL_BACKOFF = 1.0
MULTIPLIER = 1.6
MAX_BACKOFF = 120.0
JITTER = 0.2

TRANSMISSION = 0.1
"""How much the network may shorten or lengthen a gap, in seconds."""
