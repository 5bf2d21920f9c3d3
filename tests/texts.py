"""Patterns for the `match` of `pytest.raises` and `pytest.warns`, in which a text stands for itself."""

from __future__ import annotations

import re


def exactly(text):
    """Return a pattern that matches only this text."""
    return rf"\A{re.escape(text)}\Z"


def begins(text):
    """Return a pattern that matches every text that begins with this one."""
    return rf"\A{re.escape(text)}"
