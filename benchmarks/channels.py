"""Creates the channels of all subjects: ours, grpc's and grpclib's."""

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

__all__ = ["GRPCLIB", "OWN_SUBCHANNELS", "grpclib_method", "open_channel", "open_threaded"]

GRPCLIB = "grpclib"
_UNARY = "/echo.v1.Echo/Unary"
OWN_SUBCHANNELS = ("grpc.use_local_subchannel_pool", 1)
"""Without this option, all channels to a server, plain ones and ours, share one connection and one backoff."""


def open_channel(subject: str, target: str, options: tuple[tuple[str, Any], ...] = ()) -> grpc.aio.Channel:
    """Return an asyncio channel of the subject's kind."""
    make = aio.insecure_channel if subject == OURS else grpc.aio.insecure_channel
    return make(target, (OWN_SUBCHANNELS, *options))


def open_threaded(subject: str, target: str, options: tuple[tuple[str, Any], ...] = ()) -> grpc.Channel:
    """Return a threaded channel of the subject's kind."""
    make = grpc_backoff.insecure_channel if subject == THREADED else grpc.insecure_channel
    return make(target, (OWN_SUBCHANNELS, *options))


def grpclib_method(channel: GrpclibChannel) -> UnaryUnaryMethod[Message, Message]:
    """Return the unary method of the echo service."""
    return UnaryUnaryMethod(channel, _UNARY, Message, Message)
