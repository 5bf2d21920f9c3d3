"""What a channel's service config says to calls that wait: `waitForReady` and `timeout` of its methods.

A call on a connection is grpc's own, and its core applies the whole config. Here lives only what has to hold before
there is a connection. Nothing is checked: what the core would reject it rejects itself, with the first attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from grpc_backoff.config.service_config import method_configs, method_paths, read_duration, read_json
from grpc_backoff.record import record

__all__ = ["MethodConfig", "ServiceConfig", "read_service_config"]

_KEYS = ("grpc.service_config", b"grpc.service_config")  # grpcio takes both


@record
class MethodConfig(NamedTuple):
    """What holds for a method's calls that do not say otherwise; None where the config says nothing."""

    wait_for_ready: bool | None = None
    timeout: float | None = None
    """The most seconds that a call may take, whatever its own timeout."""


_NOTHING = MethodConfig()


class ServiceConfig:
    """The method configs of one channel."""

    def __init__(self, methods: Mapping[str, MethodConfig] | None = None) -> None:
        """Take the configs by path: `/service/method`, `/service/` for a whole service, an empty one for all."""
        self._methods = dict(methods or {})

    def of(self, method: str) -> MethodConfig:
        """Return the nearest config of a method, given as `/service/method`. It is not merged with farther ones."""
        service = method[: method.rfind("/") + 1]
        for path in (method, service, ""):
            if path in self._methods:
                return self._methods[path]
        return _NOTHING


def read_service_config(options: Iterable[tuple[str, Any]]) -> ServiceConfig:
    """Return the service config among a channel's options; of several the first counts, as in grpcio."""
    parsed = read_json(next((value for key, value in options if key in _KEYS), None))
    methods: dict[str, MethodConfig] = {}
    for entry in method_configs(parsed):
        config = MethodConfig(_flag(entry.get("waitForReady")), read_duration(entry.get("timeout")))
        methods.update((path, config) for path in method_paths(entry))
    return ServiceConfig(methods)


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
