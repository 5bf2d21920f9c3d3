"""News for the channels of this process, such as that it has slept, or that another channel is connected (LV-4).

What a channel does with news is up to its machines. Here, news is only found, and passed on to the pools of open
channels that have asked for a connection.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Hashable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.clocks import monotonic
from grpc_backoff.base.logs import Log
from grpc_backoff.base.process import after_fork, notice_fork
from grpc_backoff.config.target import parse_target
from grpc_backoff.engine.watches import load_liveness

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import TimerHandle
    from grpc_backoff.engine.home import Home
    from grpc_backoff.engine.network import NetworkWatcher
    from grpc_backoff.engine.pool import AnyPool

_LOG = Log(__name__)

_TICK = 1.0
"""How often to check whether the process has slept, in seconds."""

TOLD = "network_changed() was called"
NETWORK = "the machine's network has changed"
REACHED = "another channel has reached the same host and port"


@functools.lru_cache(maxsize=1024)
def spot_of(target: str) -> Hashable:
    """Return what a target or an endpoint dials, equal for all spellings: addresses, or else a host and a port."""
    try:
        read = parse_target(target)
    except OptionError:  # only the core can read it
        return target
    return tuple(map(tuple, read.addresses)) or (read.host.lower(), read.port)


def slept() -> float:
    """Return for how many seconds this machine has been suspended since it was started; 0 if that is not known."""
    boot: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return 0.0 if boot is None else time.clock_gettime(boot) - monotonic()


class SleepWatch:
    """Finds out whether the process or its machine has slept, for the pools of one event loop or of all threads."""

    def __init__(self, home: Home) -> None:
        """Start without pools; the clock of `home` is the machine's."""
        self.pools: WeakSet[AnyPool] = WeakSet()
        self._home = home
        self._timer: TimerHandle | None = None
        self._due = 0.0
        self._slept = 0.0

    def join(self, pool: AnyPool) -> None:
        """Notify a pool whenever the process has slept."""
        self.pools.add(pool)
        if self._timer is None:
            self._arm()

    def leave(self, pool: AnyPool) -> None:
        """Stop notifying a pool."""
        self.pools.discard(pool)
        if not self.pools and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._due, self._slept = monotonic() + _TICK, slept()
        self._timer = self._home.call_at(self._due, self._tick)

    def _tick(self) -> None:
        since_due = monotonic() - self._due
        late = max(since_due, slept() - self._slept)
        self._timer = None
        if self.pools and since_due > -_TICK / 2:  # much earlier, a library for tests has stopped the loop's clock
            self._arm()
        try:
            load_liveness()  # here, where it delays no start: what follows from sleep needs it
        except (OSError, ImportError):  # no free file, or the package is out of reach; the next tick tries again
            return
        from grpc_backoff.decide.connections.liveness_machine import LATE, WOKE  # noqa: PLC0415 - it is loaded now

        if late > LATE:
            for pool in tuple(self.pools):
                pool.hear_news(WOKE, woke=True)


class NewsDesk:
    """Passes on news to the pools of this process."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Start over in the child of a fork, because pools, timers and threads belong to the parent."""
        self._lock = threading.RLock()
        self._pools: WeakSet[AnyPool] = WeakSet()
        self._followers: WeakSet[AnyPool] = WeakSet()
        self._seeking: WeakKeyDictionary[AnyPool, set[Hashable]] = WeakKeyDictionary()
        self._sleep_watches: WeakValueDictionary[Home, SleepWatch] = WeakValueDictionary()
        self._network: NetworkWatcher | None = None
        self._problem = ""

    def join(self, pool: AnyPool, home: Home | None, *, network: bool) -> SleepWatch | None:
        """Notify a pool of news from now on. Called where the pool runs.

        `home` is None if the clock of the pool is not the machine's. With `network`, changes of the network are news
        too. The pool has to keep the result, and to leave it.
        """
        with self._lock:
            self._pools.add(pool)
            problem = self._follow(pool) if network else ""
            watch = None if home is None else self._sleep_watches.get(home)
            if watch is None and home is not None:
                watch = self._sleep_watches[home] = SleepWatch(home)
        if problem:
            _LOG.info("changes of the network are not noticed: %s", problem)
        if watch is not None:
            watch.join(pool)
        return watch

    def _follow(self, pool: AnyPool) -> str:
        """Watch the network for a pool. Return why that is not possible, unless that was the last reason, too."""
        self._followers.add(pool)
        if self._network is None:
            from grpc_backoff.engine.network import NetworkWatcher  # noqa: PLC0415 - few channels watch it

            try:
                self._network = NetworkWatcher(lambda: self._tell(self._followers, NETWORK))
                self._problem = ""
            except (OSError, RuntimeError) as error:  # such as no free file; the next pool tries again
                known, self._problem = self._problem, str(error)
                return "" if known == self._problem else self._problem
        return ""

    def leave(self, pool: AnyPool) -> None:
        """Stop notifying a pool."""
        with self._lock:
            self._pools.discard(pool)
            self._followers.discard(pool)
            self._seeking.pop(pool, None)
            if self._network is not None and not self._followers:
                self._network.stop()
                self._network = None

    def tell(self, why: str) -> None:
        """Notify every pool. Thread-safe."""
        self._tell(self._pools, why)

    def _tell(self, pools: WeakSet[AnyPool], why: str) -> None:
        with self._lock:
            known = tuple(pools)
        for pool in known:
            pool.tell_news(why)

    def seeks(self, pool: AnyPool, spot: Hashable) -> None:
        """Tell a pool once when another one has reached this spot. Thread-safe."""
        with self._lock:
            self._seeking.setdefault(pool, set()).add(spot)

    def gives_up(self, pool: AnyPool, spot: Hashable) -> None:
        """Forget that a pool sought this spot, because none of its slots dials there any more. Thread-safe."""
        with self._lock:
            sought = self._seeking.get(pool, set())
            sought.discard(spot)
            if not sought:
                self._seeking.pop(pool, None)

    def reached(self, pool: AnyPool, *spots: Hashable) -> None:
        """Tell the other pools that seek one of these spots, each of them once. Thread-safe."""
        found: list[tuple[AnyPool, Hashable]] = []
        with self._lock:
            for reference in self._seeking.keyrefs():  # a finalizer may change the mapping meanwhile
                other = reference()
                if other is None:
                    continue
                sought = self._seeking.get(other, set())
                for spot in sought.intersection(spots):
                    sought.discard(spot)
                    found.append((other, spot))
                if not sought:
                    self._seeking.pop(other, None)
        for other, spot in found:
            if other is not pool:
                other.tell_news(REACHED, spot)


NEWS = NewsDesk()
"""The news of this process."""

after_fork(NEWS.begin_anew)


def network_changed() -> None:
    """Tell every channel of this process that the network has changed, for example because a VPN is up (LV-4).

    A channel that waits for its next attempt dials within INITIAL_BACKOFF, at most once in each planned gap; if that
    fails, its backoff goes on as planned. A channel with `grpc_backoff.quiet_after` asks its peer whether it is
    alive. May be called from any thread, any number of times.
    """
    notice_fork()
    NEWS.tell(TOLD)
