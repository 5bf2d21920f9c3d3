"""All behaviours of the flaky server, by name (IO-3)."""

from __future__ import annotations

from grpc_judge.flaky.behaviour import Entry
from grpc_judge.flaky.behaviours.calls import (
    MaxStreams,
    PingFlood,
    ResetAfterData,
    ResetAfterHeaders,
    ResetDuringData,
    RollingRestart,
    Working,
)
from grpc_judge.flaky.behaviours.settings import (
    EnhanceYourCalm,
    SettingsThenClose,
    SettingsThenGoaway,
    SlowSettings,
    Trickle,
)
from grpc_judge.flaky.behaviours.transport import AcceptClose, AcceptReset, Http1Answer, Refuse, Silent, TlsGarbage

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
