"""Finds the pattern that applies to a target, and the entry that applies to a method.

The most specific match applies; the order of patterns or entries does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import combinations

from grpc_backoff.errors import OptionError

ALL = "*"
_METHOD = r"(?a)[A-Za-z_][\w.]*(/[A-Za-z_]\w*)?"


def nearest_pattern(patterns: Iterable[str], target: str) -> str | None:
    """Return the most specific pattern that matches a target; None if none matches.

    A pattern is a target in which `*` matches any text, including none. It must match the whole target as given to the
    channel. The pattern with the most characters other than `*` is the most specific.
    """
    fitting = [pattern for pattern in patterns if _fits(pattern, target)]
    return max(fitting, key=_said, default=None)


def check_patterns(table: str, patterns: Iterable[str]) -> None:
    """Reject two equally specific patterns that can match the same target.

    Raises:
        OptionError: there are two such patterns; the error names both.
    """
    for one, other in combinations(patterns, 2):
        if _said(one) == _said(other) and _ends_fit(one, other) and _meet(one, other):
            raise OptionError(
                f'{table}."{other}"', other, f"a pattern that is either more or less specific than {one!r}"
            )


def nearest_method(entries: Iterable[str], method: str) -> str | None:
    """Return the most specific entry: for the method, its service, or the catch-all; None if none applies.

    `method` is written `package.Service/Method`.
    """
    method = method.removeprefix("/")
    service = method.partition("/")[0]
    entries = set(entries)
    return next((name for name in (method, service, ALL) if name in entries), None)


def check_methods(table: str, entries: Iterable[str]) -> None:
    """Reject entries that name neither a method nor a service.

    Raises:
        OptionError: there is such an entry; the error names it.
    """
    for entry in entries:
        if entry != ALL and not (isinstance(entry, str) and re.fullmatch(_METHOD, entry)):
            raise OptionError(f'{table}."{entry}"', entry, "'package.Service/Method', 'package.Service' or '*'")


def _fits(pattern: str, target: str) -> bool:
    first, *others = map(re.escape, pattern.split("*"))
    if others:  # the first match of each piece between two `*` is enough, so do not backtrack
        first += "".join(f"(?>.*?{piece})" for piece in others[:-1]) + f".*{others[-1]}"
    return re.fullmatch(first, target, re.DOTALL) is not None


def _said(pattern: str) -> int:
    return len(pattern) - pattern.count("*")


def _ends_fit(one: str, other: str) -> bool:
    """Return whether the text before the first `*` and after the last one allows any target to match both patterns."""
    heads = [pattern.partition("*")[0] for pattern in (one, other)]
    tails = [pattern.rpartition("*")[2] for pattern in (one, other)]
    return any(a.startswith(b) for a, b in (heads, heads[::-1])) and any(a.endswith(b) for a, b in (tails, tails[::-1]))


def _meet(one: str, other: str) -> bool:
    """Return whether any target matches both patterns, by reading the two patterns in parallel."""
    ahead = [(0, 0)]
    seen = set(ahead)
    while ahead:
        i, j = ahead.pop()
        if i == len(one) and j == len(other):
            return True
        steps = []
        if one[i : i + 1] == "*":
            steps += [(i + 1, j), (i, j + 1)]  # the `*` matches nothing more, or the other pattern's next character
        if other[j : j + 1] == "*":
            steps += [(i, j + 1), (i + 1, j)]
        if i < len(one) and one[i] == other[j : j + 1]:
            steps.append((i + 1, j + 1))
        for step in steps:
            if step not in seen and step[0] <= len(one) and step[1] <= len(other):
                seen.add(step)
                ahead.append(step)
    return False
