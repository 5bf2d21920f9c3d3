"""The policies for one channel's calls, by method, as values.

What they are read from, and how, is up to `methods.py` and `service_config.py`, which a channel without options does
not need.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.config.remarks import warn_of

if TYPE_CHECKING:
    from grpc_backoff.config.file import Config
    from grpc_backoff.policy.budget import RetryBudget
    from grpc_backoff.policy.hedging import CallPolicy, HedgingPolicy

EntryT = TypeVar("EntryT")

ALL = "*"
"""The entry for all methods."""

REPLAY_LIMIT = 256 * 1024
"""How many bytes of a stream's requests are buffered for replay, as in grpcio's core (RT-8)."""

_NONE: Mapping[str, Any] = MappingProxyType({})


class MethodConfig(NamedTuple):
    """A service config's settings for the calls to a method.

    Attributes:
        wait_for_ready: whether calls wait for a connection; None if the config does not say.
        timeout: a call's maximum duration in seconds, even if the caller's timeout is longer; None for no limit.
        retry: how calls are retried or hedged; None if the config does not say, or leaves retries to grpc's core.
    """

    wait_for_ready: bool | None = None
    timeout: float | None = None
    retry: CallPolicy | None = None


_NOTHING = MethodConfig()


class ServiceConfig(NamedTuple):
    """The contents of a channel's service config.

    Once a call has a connection, it is an ordinary grpc call, to which grpc's core applies the config, except for
    retries (RT-10) and timeouts (CH-8). This class is for these, and for calls that do not have a connection yet.

    Attributes:
        methods: the settings by path: `/service/method`, `/service/` for a whole service, or an empty path for all.
        budget: the retry budget from `retryThrottling` (RT-9); None for no limit.
        left_to_core: whether the config has retries that this library cannot apply, so that the core performs them.
    """

    methods: Mapping[str, MethodConfig] = _NONE
    budget: RetryBudget | None = None
    left_to_core: bool = False

    def of(self, method: str) -> MethodConfig:
        """Return the most specific entry for a method, given as `/service/method`; entries are not merged."""
        if not self.methods:
            return _NOTHING
        service = method[: method.rfind("/") + 1]
        for path in (method, service, ""):
            if path in self.methods:
                return self.methods[path]
        return _NOTHING


class CallPolicies(NamedTuple):
    """The retry and hedging policies for one channel's calls.

    Attributes:
        argument: the policies from the argument `retry`, by `package.Service/Method`, `package.Service` or `*`.
        service_config: the service config from the channel options.
        filed: the policies from the file, in the same way.
        config: the configuration file, whose policies a call may name; None if there is none.
        budget: the retry budget for the channel's target (RT-9); None for no limit.
        replay_limit: how many bytes of a stream's requests are buffered for replay (RT-8).
    """

    argument: Mapping[str, CallPolicy] = _NONE
    service_config: ServiceConfig = ServiceConfig()
    filed: Mapping[str, CallPolicy] = _NONE
    config: Config | None = None
    budget: RetryBudget | None = None
    replay_limit: int = REPLAY_LIMIT

    def of(self, method: str) -> CallPolicy | None:
        """Return the policy for a method, given as `/package.Service/Method`; None if its calls have none."""
        policy = nearest_entry(self.argument, method) or self.service_config.of(method).retry
        return policy or nearest_entry(self.filed, method)

    def stand_in(self) -> bool:
        """Return whether all calls of the channel have policies that retry UNAVAILABLE.

        If so, the core's own retries can be turned off altogether, including transparent ones (RT-10). A hedging policy
        for more than one method may leave some of them, those with streamed requests, without a policy (HG-8).
        """
        covered: list[tuple[str, CallPolicy]] = []
        native = {path or ALL: config.retry for path, config in self.service_config.methods.items()}
        for policies in (self.argument, native, self.filed):
            covered += [(entry, policy) for entry, policy in policies.items() if policy is not None]
            if ALL in policies and None not in policies.values():  # no method falls through to the next source
                return all(_repeats_unavailable(*pair) for pair in covered)
        return False

    def warn_of_stream(self, method: str, policy: HedgingPolicy) -> None:
        """Warn that a method's calls are not hedged because they send streams, if the policy names the method (HG-8).

        Warns:
            PolicyWarning: it does. A policy for a service or for all methods is meant for those that can be hedged.
        """
        entry, config = method.removeprefix("/"), self.service_config.methods.get(method)
        named = self.argument.get(entry), config and config.retry, self.filed.get(entry)
        if any(known is policy for known in named):
            warn_of([f"hedging of {method}: expected a retry policy, because calls that send streams are not hedged"])


def nearest_entry(entries: Mapping[str, EntryT], method: str) -> EntryT | None:
    """Return the most specific entry: for the method, its service, or the catch-all; None if none applies.

    `method` is written `package.Service/Method`.
    """
    if not entries:
        return None
    method = method.removeprefix("/")
    service = method.partition("/")[0]
    return next((entries[name] for name in (method, service, ALL) if name in entries), None)


def _repeats_unavailable(entry: str, policy: CallPolicy) -> bool:
    from grpc_backoff.policy.hedging import HedgingPolicy  # noqa: PLC0415 - it is loaded: there is a policy

    if isinstance(policy, HedgingPolicy):
        return "/" in entry.strip("/") and "UNAVAILABLE" in policy.non_fatal_codes
    return policy.max_attempts != 1 and "UNAVAILABLE" in policy.codes
