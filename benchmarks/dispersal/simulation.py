"""Simulates a fleet: many clients lose one server at the same moment and reconnect under the same policy.

Every client dials at once when the server goes down, and again after each gap in its policy, until it reaches the
server again. The gaps are drawn from the same windows that a channel uses (`ConnectPolicy.window`), but for all clients
at once (`draw_gaps`). The simulated server accepts every connection, so the simulation shows how large the flood of
attempts is, but not what it does to a server. All times are in seconds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.policy import checks
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.strategy import Decorrelated

__all__ = ["Draw", "Outage", "Recovery", "draw_gaps", "limits", "simulate"]

_BLOCK = 1 << 16  # this many clients' numbers fit in a core's cache, which accounts for most of the speed
_BINS = 50  # fewer would show too little in a plot
_RESOLUTIONS = (1.0, 0.1, 0.01, 0.001)
_MOST_CLIENTS = 100_000_000
_MOST_BINS = 10_000_000
_MOST_ATTEMPTS = 1_000_000

Array = np.ndarray[Any, Any]
Draw = Callable[[Array], Array]
"""A function that takes an array of client indices (from 0) and returns a random number in [0, 1) for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An outage of one server: it goes down while clients are connected and comes back.

    Attributes:
        clients: how many clients are connected when the server goes down.
        seconds: how long the outage lasts, in seconds.
        attempt_lasts: how many seconds an attempt takes to fail during the outage: 0 if connections are refused,
            infinity if packets are dropped. The attempt's time limit applies in any case (CB-3).
    """

    clients: int
    seconds: float
    attempt_lasts: float = 0.0

    def __post_init__(self) -> None:
        """Check the values; OptionError if one is invalid."""
        if type(self.clients) is not int or not 1 <= self.clients <= _MOST_CLIENTS:
            raise OptionError("Outage.clients", self.clients, f"a whole number from 1 to {_MOST_CLIENTS}")
        checks.duration("Outage.seconds", self.seconds)
        if not self.attempt_lasts >= 0:
            raise OptionError("Outage.attempt_lasts", self.attempt_lasts, "a number of seconds from 0 to inf")

    @property
    def resolution(self) -> float:
        """The default width of a bin for this outage, in seconds."""
        return next((width for width in _RESOLUTIONS if self.seconds >= _BINS * width), _RESOLUTIONS[-1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recovery:
    """The attempts that the server saw, and when its clients reconnected. The server went down at time 0.

    Attributes:
        outage: the outage that was simulated.
        resolution: the width of a bin in seconds.
        attempts: how many attempts started in each bin.
        back_after: the seconds from the server's return until each client reconnected, in ascending order.
    """

    outage: Outage
    resolution: float
    attempts: Array = field(repr=False)
    back_after: Array = field(repr=False)

    @property
    def total(self) -> int:
        """The total number of attempts."""
        return int(self.attempts.sum())

    @property
    def peak(self) -> float:
        """The highest rate of attempts since the server's return, per second, in bins that start at the return."""
        # After the server's return, each client makes one more attempt, which succeeds.
        since = _Histogram(self.resolution)
        since.add(self.back_after, self.back_after[-1])
        return float(since.counts.max() / self.resolution)

    def until(self, share: float) -> float:
        """Return the time, in seconds after the server came back, by which this share of the clients had reconnected.

        `share` is a number from 0 to 1; any other number raises ValueError.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share={share!r}: expected a number from 0 to 1")
        return float(self.back_after[max(0, math.ceil(share * self.outage.clients) - 1)])


def simulate(
    policy: ConnectPolicy,
    outage: Outage,
    *,
    seed: int = 0,
    resolution: float | None = None,
    draw: Draw | None = None,
) -> Recovery:
    """Simulate an outage for clients with this policy and return what the server sees.

    The same seed always gives the same result, regardless of the number of processors.

    Args:
        policy: the connect policy of every client.
        outage: the outage to simulate.
        seed: the seed of the random numbers.
        resolution: the width of the bins in seconds; by default one that suits the outage.
        draw: a source of random numbers for each client, used instead of the seed.

    Raises:
        OptionError: the resolution is not a valid width or makes too many bins, the seed is negative, or a client
            would make more than a million attempts.
    """
    resolution = _check_resolution(outage, outage.resolution if resolution is None else resolution)
    if type(seed) is not int or seed < 0:
        raise OptionError("seed", seed, "a whole number of at least 0")
    blocks = range(0, outage.clients, _BLOCK)
    seeds = np.random.SeedSequence(seed).spawn(len(blocks))

    def run(first: int, block_seed: np.random.SeedSequence) -> tuple[Array, Array]:
        clients = np.arange(first, min(first + _BLOCK, outage.clients))
        return _run_block(policy, outage, clients, draw or _draw_from(block_seed), resolution)

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # numpy releases the GIL for most of its work
        done = list(pool.map(run, blocks, seeds))
    return Recovery(
        outage=outage,
        resolution=resolution,
        attempts=_sum([counts for counts, _ in done]),
        back_after=np.sort(np.concatenate([back for _, back in done])),
    )


def draw_gaps(policy: ConnectPolicy, attempt: int, fractions: Array, previous: Array | None = None) -> Array:
    """Return each client's gap after an attempt, in seconds, as `policy.gap` would draw it.

    Args:
        policy: the connect policy of every client.
        attempt: the attempt's number in its series, from 1.
        fractions: a random number in [0, 1) for each client.
        previous: each client's previous gap in seconds; None before the first. Only decorrelated backoff uses it.
    """
    window = policy.window(attempt)
    width: float | Array = window.width
    strategy = policy.backoff.strategy
    if previous is not None and isinstance(strategy, Decorrelated):
        width = strategy.reach * previous - window.low
    gaps: Array = np.minimum(width * fractions + window.low, window.limit)
    return gaps


def limits(policy: ConnectPolicy, gaps: Array) -> Array:
    """Return the time limits, in seconds, of attempts that are followed by these gaps; see `ConnectPolicy.limit`."""
    longest: Array = np.maximum(gaps, policy.min_connect_timeout)
    return longest


def _check_resolution(outage: Outage, resolution: float) -> float:
    resolution = checks.duration("resolution", resolution)
    if outage.seconds / resolution > _MOST_BINS:
        raise OptionError("resolution", resolution, f"at least {outage.seconds / _MOST_BINS:g} s")
    return resolution


def _draw_from(seed: np.random.SeedSequence) -> Draw:
    rng = np.random.Generator(np.random.PCG64(seed))
    return lambda clients: rng.random(len(clients))


def _run_block(
    policy: ConnectPolicy, outage: Outage, clients: Array, draw: Draw, resolution: float
) -> tuple[Array, Array]:
    """Return the number of attempts in each bin, and how long after the server's return each client was connected."""
    start = np.zeros(len(clients))
    gap: Array | None = None
    seen = _Histogram(resolution)
    back = []
    for attempt in range(1, _MOST_ATTEMPTS + 1):
        latest = start.max()
        seen.add(start, latest)
        if latest >= outage.seconds:
            away = start < outage.seconds
            back.append(start[~away] - outage.seconds)
            start, clients = start[away], clients[away]
            gap = None if gap is None else gap[away]
            if not len(start):
                return seen.counts, np.concatenate(back)
        gap = draw_gaps(policy, attempt, draw(clients), gap)
        if outage.attempt_lasts:
            lasts = np.minimum(limits(policy, gap), outage.attempt_lasts)
            start += np.maximum(gap, lasts)  # CB-4: the next attempt starts when both are over
        else:
            start += gap
    raise OptionError(
        "Outage.seconds", outage.seconds, f"an outage in which each client makes at most {_MOST_ATTEMPTS} attempts"
    )


class _Histogram:
    """Counts times in bins that start at 0; adds bins as needed."""

    def __init__(self, resolution: float) -> None:
        self._resolution = resolution
        self._counts = np.zeros(_BINS, np.int64)
        self._used = 0

    def add(self, moments: Array, latest: float) -> None:
        """Count these times, of which `latest` is the last."""
        bins = (moments / self._resolution).astype(np.intp)
        used = int(latest / self._resolution) + 1
        if used > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(used, np.int64)])
        self._used = max(self._used, used)
        if used > len(moments):
            np.add.at(self._counts, bins, 1)
        else:  # cheaper for many moments, but visits every bin
            self._counts[:used] += np.bincount(bins, minlength=used)

    @property
    def counts(self) -> Array:
        """The count of each bin, up to the last bin that is not empty."""
        return self._counts[: self._used]


def _sum(counts: list[Array]) -> Array:
    """Return the sum of histograms that may differ in length."""
    total = np.zeros(max(map(len, counts)), np.int64)
    for count in counts:
        total[: len(count)] += count
    return total
