"""The numbers of connection backoff and of the official reconnect test's band around it, in seconds.

They are defined here again, in addition to the library's policies, because they judge those: a gap whose backoff is E
may be as short as (1 - JITTER) * E - TRANSMISSION and as long as (1 + JITTER) * E + TRANSMISSION (IO-2).
"""

from __future__ import annotations

__all__ = ["INITIAL_BACKOFF", "JITTER", "MAX_BACKOFF", "MULTIPLIER", "TRANSMISSION"]

INITIAL_BACKOFF = 1.0
MULTIPLIER = 1.6
MAX_BACKOFF = 120.0
JITTER = 0.2

TRANSMISSION = 0.1
"""By how much the network may shorten or lengthen a gap, in seconds."""
