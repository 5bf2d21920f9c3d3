"""Which of several names fits best: patterns of targets, methods of services, and what was meant by a misspelt name.

For patterns and methods the nearest name holds, and it is never a matter of order which one that is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import combinations

from grpc_backoff.errors import OptionError

__all__ = ["check_methods", "check_patterns", "nearest_method", "nearest_pattern"]

ALL = "*"
_METHOD = r"(?a)[A-Za-z_][\w.]*(/[A-Za-z_]\w*)?"


def nearest_pattern(patterns: Iterable[str], target: str) -> str | None:
    """Return the pattern that fits a target and says most of it; None if none fits.

    A pattern is a target in which `*` stands for anything, nothing included; it is compared with the whole of the
    target as the channel was given it. The one with the most characters beside its `*` wins.
    """
    fitting = [pattern for pattern in patterns if _fits(pattern, target)]
    return max(fitting, key=_said, default=None)


def check_patterns(table: str, patterns: Iterable[str]) -> None:
    """Refuse two patterns that say as much and may fit the same target: neither would be nearer.

    Raises:
        OptionError: names the two.
    """
    for one, other in combinations(patterns, 2):
        if _said(one) == _said(other) and _ends_fit(one, other) and _meet(one, other):
            raise OptionError(f'{table}."{other}"', other, f"a pattern more or less specific than {one!r}")


def nearest_method(entries: Iterable[str], method: str) -> str | None:
    """Return the entry of a method (`package.Service/Method`), of its service, or of all; None if there is none."""
    method = method.removeprefix("/")
    service = method.partition("/")[0]
    entries = set(entries)
    return next((name for name in (method, service, ALL) if name in entries), None)


def check_methods(table: str, entries: Iterable[str]) -> None:
    """Refuse what is the name of no method and no service.

    Raises:
        OptionError: names the entry.
    """
    for entry in entries:
        if entry != ALL and not (isinstance(entry, str) and re.fullmatch(_METHOD, entry)):
            raise OptionError(f'{table}."{entry}"', entry, "'package.Service/Method', 'package.Service' or '*'")


def _fits(pattern: str, target: str) -> bool:
    first, *others = map(re.escape, pattern.split("*"))
    if others:  # the first place for each piece between two `*` is as good as any: no other is ever tried
        first += "".join(f"(?>.*?{piece})" for piece in others[:-1]) + f".*{others[-1]}"
    return re.fullmatch(first, target, re.DOTALL) is not None


def _said(pattern: str) -> int:
    return len(pattern) - pattern.count("*")


def _ends_fit(one: str, other: str) -> bool:
    """Return whether what comes before the first `*` of each, and behind the last, allows a common target at all."""
    heads = [pattern.partition("*")[0] for pattern in (one, other)]
    tails = [pattern.rpartition("*")[2] for pattern in (one, other)]
    return any(a.startswith(b) for a, b in (heads, heads[::-1])) and any(a.endswith(b) for a, b in (tails, tails[::-1]))


def _meet(one: str, other: str) -> bool:
    """Return whether some target fits both patterns: whether both can be read to their ends side by side."""
    ahead = [(0, 0)]
    seen = set(ahead)
    while ahead:
        i, j = ahead.pop()
        if i == len(one) and j == len(other):
            return True
        steps = []
        if one[i : i + 1] == "*":
            steps += [(i + 1, j), (i, j + 1)]  # it stands for nothing more, or for what the other says here
        if other[j : j + 1] == "*":
            steps += [(i, j + 1), (i + 1, j)]
        if i < len(one) and one[i] == other[j : j + 1]:
            steps.append((i + 1, j + 1))
        for step in steps:
            if step not in seen and step[0] <= len(one) and step[1] <= len(other):
                seen.add(step)
                ahead.append(step)
    return False
