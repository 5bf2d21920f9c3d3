"""The settings of a connect policy: what each is called where, and how several sources of them make one policy.

A source (the channel options, the file) reads what it has into `Settings`: values by name, checked, in seconds. The
policy is made from the sources in the order of their word, and the preset fills in what nobody said. No value is read
from anywhere here, and no default stands here: those are the presets'.
"""

from __future__ import annotations

import difflib
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from grpc_backoff.errors import OptionError
from grpc_backoff.policy import checks
from grpc_backoff.policy.backoff import BackoffPolicy, Exponential, Proportional
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.connect import ConnectPolicy, Reconnect
from grpc_backoff.policy.presets import CONNECT, PRESETS

__all__ = ["PREFIX", "SETTINGS", "Setting", "Settings", "check_order", "connect_policy", "suggestion"]

PREFIX = "grpc_backoff."
"""What the channel options of this library's own begin with."""

Settings = Mapping[str, Any]
"""Checked values by the name of their setting; times are seconds."""


def _preset(key: str, value: object, _unit: Unit) -> BackoffPolicy:
    return PRESETS[checks.choice(key, value, PRESETS)]


def _reconnect(key: str, value: object, _unit: Unit) -> Reconnect:
    return Reconnect(checks.choice(key, value, [when.value for when in Reconnect]))


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be set.

    Attributes:
        name: its key in the file's table `[connection]`; times are seconds there.
        option: its key among the channel options.
        check: returns the checked value of a key and a value, in seconds if it is a time; else raises OptionError.
        unit: what the channel option counts time in.
    """

    name: str
    option: str
    check: Callable[[str, object, Unit], Any]
    unit: Unit = Unit.SECONDS


SETTINGS = (
    Setting("preset", PREFIX + "preset", _preset),
    Setting("initial_backoff", "grpc.initial_reconnect_backoff_ms", checks.duration, Unit.MILLISECONDS),
    Setting("max_backoff", "grpc.max_reconnect_backoff_ms", checks.duration, Unit.MILLISECONDS),
    # A timeout in spite of the option's name, as in C-core.
    Setting("min_connect_timeout", "grpc.min_reconnect_backoff_ms", checks.duration, Unit.MILLISECONDS),
    Setting("idle_timeout", "grpc.client_idle_timeout_ms", checks.idle_timeout, Unit.MILLISECONDS),
    Setting("multiplier", PREFIX + "multiplier", checks.growth),
    Setting("jitter", PREFIX + "jitter", checks.fraction),
    Setting("jitter_first", PREFIX + "jitter_first", checks.flag),
    Setting("stable_after", PREFIX + "stable_after", checks.stable_after),
    Setting("reconnect", PREFIX + "reconnect", _reconnect),
)
"""All settings of connecting: the one table that options and file are both read by."""


def check_order(given: Mapping[str, tuple[str, object]], settings: Settings) -> None:
    """Hold one source to itself: it may not name a maximum below the initial backoff that it names too (CH-10).

    Args:
        given: the key and the value, as its user wrote them, of each setting that the source names.
        settings: the same ones checked.

    Raises:
        OptionError: the maximum is lower.
    """
    if "initial_backoff" in settings and "max_backoff" in settings:
        (least_key, least), (key, value) = given["initial_backoff"], given["max_backoff"]
        if settings["max_backoff"] < settings["initial_backoff"]:
            raise OptionError(key, value, f"at least {least_key} ({least}) is")


def connect_policy(sources: Iterable[Settings]) -> ConnectPolicy:
    """Return the policy that these sources describe, the one with the most say first; a preset has the least (BP-3).

    Where the initial backoff of one source is above the maximum of another, the source with more say holds, and the
    other value follows it: a lower maximum lowers the initial backoff, as in grpcio, and a higher initial backoff
    lifts the maximum.
    """
    ranked = [dict(source) for source in sources]
    said = ChainMap(*ranked)
    others = {field.name: said[field.name] for field in fields(ConnectPolicy) if field.name in said}
    return replace(CONNECT, backoff=_backoff(ranked, said), **others)


def _backoff(sources: Sequence[Settings], said: Settings) -> BackoffPolicy:
    preset: BackoffPolicy = said.get("preset", CONNECT.backoff)
    initial = said.get("initial_backoff", preset.strategy.base)
    cap = said.get("max_backoff", preset.cap)
    if cap < initial:
        if _rank(sources, "max_backoff") < _rank(sources, "initial_backoff"):
            initial = cap
        else:
            cap = initial
    return BackoffPolicy(
        strategy=Exponential(initial, said.get("multiplier", preset.strategy.multiplier)),
        cap=cap,
        jitter=Proportional(said.get("jitter", preset.jitter.fraction)),
    )


def _rank(sources: Sequence[Settings], name: str) -> int:
    """Return which source says it; 0 has the most say, and the preset the least."""
    return next((rank for rank, source in enumerate(sources) if name in source), len(sources))


def suggestion(word: str, keys: Mapping[str, str], kind: str) -> str:
    """Say which key was probably meant by one that nobody knows.

    Args:
        word: what was written, without what all such keys begin with.
        keys: the right key by each word that may have been meant for it.
        kind: what such a key is called: "option", say.
    """
    near = difflib.get_close_matches(word.lower(), keys, n=1)
    if near:
        return f"no {kind} has this name, did you mean {keys[near[0]]!r}?"
    return f"no {kind} has this name, choose from: {', '.join(dict.fromkeys(keys.values()))}"
