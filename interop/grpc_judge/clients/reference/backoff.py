"""Decides when the reference client dials. It implements the protocol's arithmetic independently of the library."""

from __future__ import annotations

import math
import random

from grpc_judge.clients.peer_program import CallOrder
from grpc_judge.clients.reference.habits import Habits

_INITIAL_MS, _MAX_MS, _MIN_CONNECT_TIMEOUT_MS = 1000, 120_000, 20_000
_SEED = 4
_AT_ONCE = 0.005


class Backoff:
    """The schedule of attempts, one series after another. Times are in seconds on the event loop's clock.

    Attributes:
        attempts: how many attempts the current series has had.
        due: when the next attempt may start.
        limit: when the latest attempt must be abandoned; None if it has no limit.
    """

    def __init__(self, order: CallOrder, habits: Habits) -> None:
        """Start the first series."""
        self._habits = habits
        self._initial = habits.initial * (order.initial_ms or _INITIAL_MS) / 1000
        self._cap = habits.cap * (order.max_ms or _MAX_MS) / 1000
        self.min_connect_timeout = (order.min_connect_timeout_ms or _MIN_CONNECT_TIMEOUT_MS) / 1000
        self._timeout = habits.timeout if order.ca is None else habits.timeout_of_tls
        self._rng = random.Random(_SEED if habits.seeded else None)
        self._last = 0.0
        self._gap = 0.0
        self._started = 0.0
        self._dialled = 0
        self._resets = 0
        self._fibonacci = (0, 1)
        self.attempts = 0
        self.due = 0.0
        self.limit: float | None = None

    @property
    def initial(self) -> float:
        """INITIAL_BACKOFF, in seconds."""
        return self._initial

    def start(self, now: float) -> None:
        """Record the start of an attempt."""
        self.attempts += 1
        if self._habits.restarts_after and self.attempts > self._habits.restarts_after:
            self.attempts = 1
        self._started = now
        self._gap = self._draw()
        self.due = now + self._gap
        self._dialled += 1
        if self._habits.bursts and self._dialled % self._habits.bursts:
            self._gap = _AT_ONCE
            self.due = now + _AT_ONCE
        timeout = now + self._timeout * self.min_connect_timeout
        limit = max(timeout, now + self._gap) if self._habits.lasts_with_backoff else timeout
        self.limit = limit if self._timeout else None

    def fail(self, now: float, reason: str) -> None:
        """Record how an attempt failed: "refused", "reset", "garbage", "certificate", "limit", or another reason."""
        if reason == "limit":
            self.due = now + self._gap if self._habits.pauses_after_limit else max(now, self.due)
        elif self._habits.from_end:
            self.due = now + self._gap
        if reason in self._habits.doubles_on.split():
            self.due = self._started + 2 * self._gap
        self._flood_on(now, reason)

    def lose(self, now: float, reason: str, *, counts: bool, paid: bool) -> None:
        """Record the loss of a connection. If it `counts` as a failed attempt, the series continues.

        `paid` says whether the connection has answered a call, so that it may be replaced at once.
        """
        if counts:
            return
        self._resets += 1
        if "settings" in self._habits.resets_at and self._resets <= self._habits.resets_times:
            self.attempts = 0
            self.due = now if paid and self._habits.replaces_served else self._started + self._initial
        if self._habits.redials_at_once and reason not in {"goaway", "drained"}:
            self.due = now
        self.due = max(self.due, now + self._habits.replaces_late * self._initial)
        self._flood_on(now, reason)

    def handshaken(self) -> None:
        """Record the end of a TLS handshake, which resets the backoff only if the client has that defect."""
        if "tls" in self._habits.resets_at:
            self.attempts = 1
            self.due = self._started + self._draw()

    def _flood_on(self, now: float, reason: str) -> None:
        if reason in self._habits.floods_on.split():
            self.due = now + _AT_ONCE

    def _draw(self) -> float:
        """Draw the gap after the attempt that starts now and return it."""
        habits, n = self._habits, self.attempts
        plain = self._initial * (habits.multiplier ** (n - 1) + habits.added * (n - 1))
        if habits.compounds and n > 1:
            plain = habits.multiplier * self._last
        if habits.fibonacci:
            before, last = self._fibonacci if n > 1 else (0, 1)
            self._fibonacci = (last, before + last)
            plain = self._initial * last
        self._last = min(plain, self._cap) * (1 + self._rng.uniform(habits.lowest, habits.highest))
        return 0.0 if habits.skips_first and n == 1 else self._last

    def wakes(self, now: float) -> float:
        """Return how long a timer set for `due` takes, in seconds."""
        wakes = self.due + (self._habits.late if self.due > 0 else 0.0)
        tick = self._habits.tick
        return (math.ceil(wakes / tick) * tick if tick else wakes) - now
