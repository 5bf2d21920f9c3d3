"""Simulates a fleet: many clients lose one server at the same moment and reconnect by the same policy.

Every client dials at once when the server goes down, and again after each gap of its policy, until it reaches the
server again. The gaps are drawn from the policy's own windows (`ConnectPolicy.window`), for all clients at once
(`draw_gaps`), so the simulation does what a channel does. The server accepts every connection: the simulation shows how
large a flood is, not what it does to the server. All times are in seconds. Needs numpy, from the extra `simulate`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from grpc_backoff.errors import MissingExtra, OptionError
from grpc_backoff.policy import checks
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.strategy import Decorrelated

try:
    import numpy as np
except ImportError as error:
    raise MissingExtra("simulate") from error

__all__ = ["Draw", "Outage", "Recovery", "draw_gaps", "limits", "simulate"]

_BLOCK = 1 << 16  # this many clients' numbers fit in a core's cache, which accounts for most of the speed
_BINS = 50  # a plot with fewer shows little
_RESOLUTIONS = (1.0, 0.1, 0.01, 0.001)
_MOST_CLIENTS = 100_000_000
_MOST_BINS = 10_000_000
_MOST_ATTEMPTS = 1_000_000

Array = np.ndarray[Any, Any]
Draw = Callable[[Array], Array]
"""Returns the next random number, from 0 to below 1, for each of these clients (numbered from 0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An outage: one server goes down with clients connected, and comes back.

    Attributes:
        clients: how many clients are connected.
        seconds: how long the server is away.
        attempt_lasts: how long an attempt made during the outage lasts, in seconds, up to its limit (CB-3): 0 if
            connections are refused, infinite if packets are dropped.
    """

    clients: int
    seconds: float
    attempt_lasts: float = 0.0

    def __post_init__(self) -> None:
        """Check the values; OptionError names the wrong one."""
        if type(self.clients) is not int or not 1 <= self.clients <= _MOST_CLIENTS:
            raise OptionError("Outage.clients", self.clients, f"a whole number from 1 to {_MOST_CLIENTS}")
        checks.duration("Outage.seconds", self.seconds)
        if not self.attempt_lasts >= 0:
            raise OptionError("Outage.attempt_lasts", self.attempt_lasts, "a number of seconds from 0 to inf")

    @property
    def resolution(self) -> float:
        """A sensible bin width, in seconds, for counting the attempts of this outage."""
        return next((width for width in _RESOLUTIONS if self.seconds >= _BINS * width), _RESOLUTIONS[-1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recovery:
    """What the server saw. It went down at time 0.

    Attributes:
        outage: the outage.
        resolution: the width of a bin in seconds.
        attempts: how many attempts started in each bin.
        back_after: how many seconds after the server's return each client was connected, in ascending order.
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
        """The highest rate of attempts after the server's return, per second, in bins that begin with its return."""
        # After the return, each attempt is the last one of its client.
        since = _Histogram(self.resolution)
        since.add(self.back_after, self.back_after[-1])
        return float(since.counts.max() / self.resolution)

    def until(self, share: float) -> float:
        """Return how many seconds after its return the server had this share of its clients back.

        `share` is a number from 0 to 1; ValueError for any other.
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
    """Simulate clients with this policy and return what the server sees.

    The same seed gives the same result, on any number of processors.

    Args:
        policy: how each client connects.
        outage: what happens to the server.
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
    """Return the gaps of many clients after an attempt, in seconds: what `policy.gap` draws for each of them.

    Args:
        policy: how each client connects.
        attempt: the attempt's number in its series, from 1.
        fractions: the random number that each client draws, from 0 to below 1.
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
    """Apply `policy.limit` to many gaps, in seconds."""
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
    """Return how many attempts these clients made in each bin, and how long after its return each was connected."""
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
            start += np.maximum(gap, lasts)  # CB-4: the next starts at the deadline, or at once if that has passed
        else:
            start += gap
    raise OptionError(
        "Outage.seconds", outage.seconds, f"an outage of at most {_MOST_ATTEMPTS} attempts for each client"
    )


class _Histogram:
    """Counts moments in bins, starting at 0; grows as moments are added."""

    def __init__(self, resolution: float) -> None:
        self._resolution = resolution
        self._counts = np.zeros(_BINS, np.int64)
        self._used = 0

    def add(self, moments: Array, latest: float) -> None:
        """Count these moments; `latest` is the latest of them."""
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
    """Return the sum of histograms of different lengths."""
    total = np.zeros(max(map(len, counts)), np.int64)
    for count in counts:
        total[: len(count)] += count
    return total
