"""How servers are spared the cancellation of hedged copies (HG-11), as plain values: the time comes in as an argument.

A copy that is cancelled is an RST_STREAM on the wire. As a guard against rapid resets, many servers count those of a
connection, and end it, with every call on it, by GOAWAY(ENHANCE_YOUR_CALM). The lowest known limits are 200 in 30 s,
and 20 in one second.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary, WeakValueDictionary

MOST = 10
"""How many copies may be cancelled on a connection at once."""
PER_SECOND = 3.0
"""How many more may be cancelled on it each second: with `MOST`, half of the lowest known limit in 30 s."""
MOST_WAITING = 50
"""How many copies may wait on a connection for their cancellation before it gets no more copies beside running ones.
Servers allow 100 streams at once, or more."""
CALM = 60.0
"""For how many seconds calls are not hedged after a server has asked for calm: the longest known window."""
_LEAST_WAIT = 0.01
"""The shortest wait, in seconds. What rounding leaves would be one that does not end."""
_LEAST_LEFT, _MOST_LEFT = 0.25, 10.0
"""The shortest and the longest time that copies are left to end after another one was chosen, in seconds."""


def left_until(began: float, now: float) -> float:
    """Return until when the copies of a call that has just been answered are left to end by themselves.

    It is as long again as the call took, within limits, because copies of one call take about as long.
    """
    return now + min(max(now - began, _LEAST_LEFT), _MOST_LEFT)


class Resets:
    """How many more copies may be cancelled on one connection: a token bucket that starts full.

    Attributes:
        waiting: the copies that wait for their cancellation.
    """

    __slots__ = ("_at", "_left", "waiting")

    def __init__(self) -> None:
        self.waiting: set[object] = set()
        self._left = float(MOST)
        self._at = 0.0

    def take(self, now: float) -> float:
        """Count a copy that is cancelled now, if one may be; return the seconds until one may be, which may be 0."""
        wait = self._wait(now)
        if not wait:
            self._left, self._at = self._at_time(now) - 1.0, now
        return wait

    def hold(self, now: float) -> float:
        """Return the seconds until a further copy may be sent beside a running one; 0 if it may be now."""
        return max(self._wait(now), _LEAST_WAIT) if len(self.waiting) >= MOST_WAITING else 0.0

    def _wait(self, now: float) -> float:
        missing = 1.0 - self._at_time(now)
        return max(missing / PER_SECOND, _LEAST_WAIT) if missing > 0 else 0.0

    def _at_time(self, now: float) -> float:
        return min(float(MOST), self._left + max(0.0, now - self._at) * PER_SECOND)


_resets: WeakKeyDictionary[object, Resets] = WeakKeyDictionary()


def resets_of(connection: object) -> Resets:
    """Return the budget of a connection."""
    found = _resets.get(connection)
    if found is None:
        found = _resets.setdefault(connection, Resets())
    return found


class Calm:
    """Whether the server of one target has asked for calm; shared by all channels to the target in this process."""

    __slots__ = ("__weakref__", "_told", "_until")

    def __init__(self) -> None:
        self._until = 0.0
        self._told = True

    def asked(self, now: float) -> None:
        """Note that a server has asked for calm."""
        if not self.lasts(now):
            self._told = False
        self._until = now + CALM

    def lasts(self, now: float) -> float:
        """Return for how many more seconds calls are not hedged; 0 if they may be."""
        return max(0.0, self._until - now)

    def tell(self) -> bool:
        """Return whether the pause has yet to be reported, and count it as reported."""
        reported, self._told = self._told, True
        return not reported


_calms: WeakValueDictionary[str, Calm] = WeakValueDictionary()


def calm_of(target: str) -> Calm:
    """Return what is known of a target, which is discarded with the last channel that uses it."""
    found = _calms.get(target)
    if found is None:
        found = _calms[target] = Calm()
    return found
