"""The four methods that create a channel's multicallables; the two APIs differ only in the classes that they create."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from grpc_backoff.config.methods import CallPolicies


class Factories:
    """Creates a channel's multicallables, which keep working across any number of connections (CH-2)."""

    _multicallables: ClassVar[Mapping[str, Any]]
    """Multicallable classes, by the name of the method that creates each."""
    call_policies: CallPolicies

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> Any:
        """Return a callable for a method with one request and one response."""
        return self._make("unary_unary", method, request_serializer, response_deserializer, _registered_method)

    def unary_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> Any:
        """Return a callable for a method with one request and a stream of responses."""
        return self._make("unary_stream", method, request_serializer, response_deserializer, _registered_method)

    def stream_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> Any:
        """Return a callable for a method with a stream of requests and one response."""
        return self._make("stream_unary", method, request_serializer, response_deserializer, _registered_method)

    def stream_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> Any:
        """Return a callable for a method with a stream of requests and a stream of responses."""
        return self._make("stream_stream", method, request_serializer, response_deserializer, _registered_method)

    def _get_registered_call_handle(self, _method: str) -> int:
        """Return what grpc's simple stubs pass on as `_registered_method`: registration is left to each connection."""
        return 1

    def _make(self, arity: str, method: str | bytes, *signature: Any) -> Any:
        method = method.decode() if isinstance(method, bytes) else method  # as in grpc
        return self._multicallables[arity](self, method, *signature, policy=self.call_policies.of(method))
