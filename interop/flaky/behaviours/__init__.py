"""All behaviours of the flaky server, by name (IO-3)."""

from __future__ import annotations

from interop.flaky.behaviour import Entry
from interop.flaky.behaviours.calls import (
    MaxStreams,
    PingFlood,
    ResetAfterData,
    ResetAfterHeaders,
    ResetDuringData,
    RollingRestart,
    Working,
)
from interop.flaky.behaviours.settings import (
    EnhanceYourCalm,
    SettingsThenClose,
    SettingsThenGoaway,
    SlowSettings,
    Trickle,
)
from interop.flaky.behaviours.transport import AcceptClose, AcceptReset, Http1Answer, Refuse, Silent, TlsGarbage

__all__ = [
    "BY_NAME",
    "AcceptClose",
    "AcceptReset",
    "EnhanceYourCalm",
    "Http1Answer",
    "MaxStreams",
    "PingFlood",
    "Refuse",
    "ResetAfterData",
    "ResetAfterHeaders",
    "ResetDuringData",
    "RollingRestart",
    "SettingsThenClose",
    "SettingsThenGoaway",
    "Silent",
    "SlowSettings",
    "TlsGarbage",
    "Trickle",
    "Working",
]

BY_NAME: dict[str, type[Entry]] = {
    kind.name: kind
    for kind in (
        Refuse,
        AcceptClose,
        AcceptReset,
        Silent,
        SlowSettings,
        Trickle,
        TlsGarbage,
        Http1Answer,
        SettingsThenClose,
        SettingsThenGoaway,
        EnhanceYourCalm,
        ResetAfterHeaders,
        ResetDuringData,
        ResetAfterData,
        PingFlood,
        MaxStreams,
        Working,
        RollingRestart,
    )
}
