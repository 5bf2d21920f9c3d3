"""Tracks a server's position in its script from the connections and times passed to it, without any I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence

from grpc_judge.flaky.behaviour import Behaviour
from grpc_judge.flaky.behaviours import Refuse
from grpc_judge.flaky.script import Step


class Player:
    """One run through a script. All times are on the caller's clock, which must never go backwards."""

    def __init__(self, steps: Sequence[Step], now: float) -> None:
        """Start the first of these steps at time `now`."""
        self._steps = steps
        self._began = now
        self._place = 0
        self._step_began = now
        self._taken = 0

    @property
    def place(self) -> int:
        """How many steps have ended."""
        return self._place

    @property
    def ends(self) -> float:
        """When the current step times out; infinity if it never does."""
        step = self._steps[self._place]
        until = math.inf if step.until is None else self._began + step.until
        lasting = math.inf if step.lasting is None else self._step_began + step.lasting
        return max(min(until, lasting), self._step_began)

    def step(self, now: float) -> Step:
        """Return the current step, after skipping those that have timed out."""
        while self.ends <= now:
            self._next(self.ends)
        return self._steps[self._place]

    def take(self, now: float) -> Behaviour:
        """Count a connection that was just accepted and return its behaviour."""
        step = self.step(now)
        assert not isinstance(step.behaviour, Refuse), "nothing listens then"
        self._taken += 1
        if self._taken == step.times:
            self._next(now)
        return step.behaviour

    def _next(self, now: float) -> None:
        self._place += 1
        self._step_began = now
        self._taken = 0
