"""Identifiers of calls: random, because they must be unique across all processes that log them."""

from __future__ import annotations

import os
import random

__all__ = ["new_call_id"]

_CHANCE = random.Random()
"""A generator of our own, which no program seeds: the operating system's would cost ten times as much per call."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_CHANCE.seed)


def new_call_id() -> str:
    """Return 128 random bits as 32 hexadecimal digits, like a trace id."""
    return f"{_CHANCE.getrandbits(128):032x}"
