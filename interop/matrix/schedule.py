"""Which clients run side by side: what one client does must not be the reason why another one is late.

Trials come in waves. The members of a wave load first and then begin, and the next wave begins when they are over.

1. Real time, all in one wave: these processes sleep. Those that sleep longest, through the official 540 s, go on beside
   what follows; by then minutes lie between their attempts.
2. Floods: clients without any backoff, before servers that fail at once. A flood is not timed closely, and ends after
   three hundred connections.
3. Servers that hang up behind their SETTINGS, one at a time: nearly every client floods them.
4. The long series of scaled time: most of the time they sleep, so that there may be many.
5. What is timed closely, some at a time: compressed time, where a twentieth of a second counts, and what has to follow
   at once.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from interop.conformance import Scenario
from interop.matrix.scenarios import Pace
from interop.matrix.trial import Trial

__all__ = ["AT_ONCE", "Wave", "waves"]

_CORES = os.cpu_count() or 1

AT_ONCE = 4 * _CORES
"""How many processes perform side by side where they are timed closely."""

_APART = 1.0 / _CORES
"""A process that has just begun takes a core for about so long: its first TLS handshake, on a virtual machine."""

_MINUTE = 60.0
"""What takes longer in scaled time sleeps through most of it."""
_LONG = 300.0
"""A client that sleeps through more than this, in seconds, does not hold up the next wave."""
_HOLDS_UP = 240.0
"""Where there are none but such: for how long they do, loading included. Then attempts are many seconds apart."""


@dataclass(frozen=True, slots=True)
class Wave:
    """What performs side by side.

    Attributes:
        trials: these, in the order in which they load.
    """

    trials: Sequence[Trial]

    @property
    def apart(self) -> float:
        """How many seconds lie between their beginnings: the more there are, the more would be late for the others."""
        return _APART if _processes(self.trials) > AT_ONCE else 0.0

    @property
    def seconds(self) -> float:
        """How long it takes, once all are loaded."""
        return max(trial.seconds for trial in self.trials)

    @property
    def holding(self) -> Sequence[int]:
        """The places of the trials that hold up the next wave."""
        return [place for place, trial in enumerate(self.trials) if not _sleeps_long(trial)] or range(len(self.trials))

    @property
    def limit(self) -> float | None:
        """For how long they do so at most, in seconds; None until their end."""
        return _HOLDS_UP if all(_sleeps_long(trial) for trial in self.trials) else None


def _sleeps_long(trial: Trial) -> bool:
    return trial.seconds > _LONG and not _floods(trial)


def _floods(trial: Trial) -> bool:
    return trial.peer.loud and trial.staging.floods


class _Kind(enum.Enum):
    """Why a trial has its place; in the order in which they perform."""

    REAL = enum.auto()
    FLOOD = enum.auto()
    FLAPPING = enum.auto()
    SCALED = enum.auto()
    CLOSE = enum.auto()


_AT_ONCE_OF = {
    _Kind.REAL: 40 * _CORES,
    _Kind.FLOOD: 2 * _CORES,
    _Kind.FLAPPING: 1,
    _Kind.SCALED: 16 * _CORES,
    _Kind.CLOSE: AT_ONCE,
}
"""How many processes of a kind perform side by side. Those in real time sleep; what limits them is memory."""


def waves(trials: Iterable[Trial], at_once: int = AT_ONCE, *, loud: bool = True) -> Iterator[Wave]:
    """Yield the waves; of what is compressed, so many processes are in one.

    Where no client is `loud`, so many also stand side by side before servers that hang up behind their SETTINGS.
    """
    ordered = sorted(trials, key=lambda trial: -trial.seconds)
    several = {_Kind.CLOSE: at_once} if loud else {_Kind.CLOSE: at_once, _Kind.FLAPPING: at_once}
    for kind, most in (_AT_ONCE_OF | several).items():
        yield from _filled((trial for trial in ordered if _kind(trial) is kind), most)


def _kind(trial: Trial) -> _Kind:
    if trial.staging.scenario is Scenario.FLAPPING:
        return _Kind.FLAPPING
    if _floods(trial):
        return _Kind.FLOOD
    if trial.pace is Pace.SCALED and trial.seconds > _MINUTE:
        return _Kind.SCALED
    return _Kind.CLOSE if trial.pace.told or not trial.staging.compressible else _Kind.REAL


def _filled(trials: Iterable[Trial], at_once: int) -> Iterator[Wave]:
    """Yield waves of so many processes, or of one trial that has more."""
    wave: list[Trial] = []
    for trial in trials:
        if wave and _processes([*wave, trial]) > at_once:
            yield Wave(wave)
            wave = []
        wave.append(trial)
    if wave:
        yield Wave(wave)


def _processes(trials: Iterable[Trial]) -> int:
    return sum(trial.clients for trial in trials)
