"""What `grpc_backoff.install` puts in the place of the class of `grpc.aio`'s channels."""

from __future__ import annotations

from typing import Any

import grpc

from grpc_backoff.aio import interceptor_channel
from grpc_backoff.aio.channel import Channel
from grpc_backoff.grpcio.aio_private import GrpcioChannel, core_channel


class Substitute(GrpcioChannel):  # type: ignore[misc] # grpcio's own class is Any here
    """Makes this library's channels, and grpcio's own for the interceptors of one of them.

    It is derived from grpcio's class, and grpcio's channels count as its instances, so that other libraries' derived
    classes and grpcio's own checks work as before.
    """

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        """Return whether a class is grpcio's, or is derived from it."""
        return GrpcioChannel in other.__mro__ if cls is Substitute else NotImplemented

    def __new__(  # type: ignore[misc] # makes objects of other classes
        cls, target: str, options: Any, credentials: object, compression: Any, interceptors: Any = None
    ) -> grpc.aio.Channel:
        """Return a channel; the arguments are those of grpcio's class."""
        if cls is not Substitute:
            derived: grpc.aio.Channel = GrpcioChannel.__new__(cls)
            return derived
        secure = None if credentials is None else grpc.ChannelCredentials(credentials)
        if interceptor_channel.is_being_made():
            return core_channel(target, secure, options, compression, interceptors)
        with interceptor_channel.made_within():
            return Channel(target, secure, options, compression, interceptors)
