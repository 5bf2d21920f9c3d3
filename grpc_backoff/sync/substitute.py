"""What `grpc_backoff.install` puts in the place of the class of `grpc`'s channels (TH-7)."""

from __future__ import annotations

from typing import Any

import grpc

from grpc_backoff.grpcio.sync_private import GrpcioChannel
from grpc_backoff.sync.channel import Channel


class Substitute(GrpcioChannel):  # type: ignore[misc] # grpcio's own class is Any here
    """Makes this library's channels.

    It is derived from grpcio's class, and grpcio's channels count as its instances, so that other libraries' derived
    classes and grpcio's own checks work as before.
    """

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        """Return whether a class is grpcio's, or is derived from it."""
        return GrpcioChannel in other.__mro__ if cls is Substitute else NotImplemented

    def __new__(  # type: ignore[misc] # makes objects of other classes
        cls, target: str, options: Any, credentials: object, compression: Any
    ) -> grpc.Channel:
        """Return a channel; the arguments are those of grpcio's class."""
        if cls is not Substitute:
            derived: grpc.Channel = GrpcioChannel.__new__(cls)
            return derived
        secure = None if credentials is None else grpc.ChannelCredentials(credentials)
        return Channel(target, secure, options, compression)
