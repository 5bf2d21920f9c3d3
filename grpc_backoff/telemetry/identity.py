"""The identifiers of calls: random, since they have to be unique over all processes that log them."""

from __future__ import annotations

import os
import random

__all__ = ["new_call_id"]

_CHANCE = random.Random()
"""A generator of its own, which no program seeds: the operating system's costs ten times as much for each call."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_CHANCE.seed)


def new_call_id() -> str:
    """Return 128 random bits as 32 hexadecimal digits, as a trace id has."""
    return f"{_CHANCE.getrandbits(128):032x}"
