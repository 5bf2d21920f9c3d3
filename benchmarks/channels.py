"""Creates the subjects' channels: ours, grpc's, and grpclib's, to the same service."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
from grpclib.client import Channel as GrpclibChannel
from grpclib.client import UnaryUnaryMethod

import grpc_backoff
from benchmarks.benchmark import OURS, THREADED
from grpc_backoff import aio
from tests.echo import Message

__all__ = ["GRPCLIB", "grpclib_method", "open_channel", "open_threaded"]

GRPCLIB = "grpclib"
_UNARY = "/echo.v1.Echo/Unary"
_OWN_SUBCHANNELS = ("grpc.use_local_subchannel_pool", 1)
"""Without this option all plain channels to a server share one connection and one backoff. Ours have their own."""


def open_channel(subject: str, target: str, options: tuple[tuple[str, Any], ...] = ()) -> grpc.aio.Channel:
    """Return a channel of the subject's kind."""
    if subject == OURS:
        return aio.insecure_channel(target, options)
    return grpc.aio.insecure_channel(target, (_OWN_SUBCHANNELS, *options))


def open_threaded(subject: str, target: str, options: tuple[tuple[str, Any], ...] = ()) -> grpc.Channel:
    """Return a channel for threads, of the subject's kind."""
    if subject == THREADED:
        return grpc_backoff.insecure_channel(target, options)
    return grpc.insecure_channel(target, (_OWN_SUBCHANNELS, *options))


def grpclib_method(channel: GrpclibChannel) -> UnaryUnaryMethod[Message, Message]:
    """Return the echo service's unary method."""
    return UnaryUnaryMethod(channel, _UNARY, Message, Message)
