"""The functions that create asyncio channels, and what `install` puts in the place of grpcio's class of channels.

A program may have put them in the place of grpc's own functions, to which the making of a channel then leads back
(`interceptor_channel.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, cast

import grpc
import grpc.aio

from grpc_backoff.aio.channel import Channel, Interceptors
from grpc_backoff.aio.interceptor_channel import is_being_made, made_within, passed_on
from grpc_backoff.config.channel_settings import ChannelSettings, Options
from grpc_backoff.grpcio.aio_private import GrpcioChannel, constructors, core_channel
from grpc_backoff.grpcio.channel_class import ChannelClass

if TYPE_CHECKING:
    from grpc_backoff.config.credentials import ChannelSecurity, CredentialsSource
else:
    ChannelSecurity = Any  # for programs that evaluate the annotations of `secure_channel`


def insecure_channel(
    target: str,
    options: Options | None = None,
    compression: grpc.Compression | None = None,
    interceptors: Interceptors | None = None,
    **settings: Unpack[ChannelSettings],
) -> Channel:
    """Create a channel without TLS, as `grpc.aio.insecure_channel` does.

    Args:
        target: the server's address, as in grpc. A URL, or a port above 65535, is rejected, because grpc cannot dial
            it.
        options: channel options; `docs/reference/options.md` lists those that affect the backoff.
        compression: the compression for the channel's calls, as in grpc.
        interceptors: as in grpc. They see the wait for a connection as part of the call.
        settings: this library's own arguments, by keyword: `policy`, `config`, `listeners`, `rng`, `clock`, `retry`,
            `retry_budget` and `retry_hooks`; see `ChannelSettings`.

    Raises:
        grpc_backoff.OptionError: a `ValueError` that names the option, its value and what was expected (CH-10).
        grpc_backoff.ConfigError: a `ValueError` that names the file, the key, the value and what was expected (BP-4).
        grpc_backoff.ForkError: this process was forked while channels were open, so grpcio would hang or crash (FK-1).
    """
    return _made(target, None, options, compression, interceptors, settings)


def secure_channel(
    target: str,
    credentials: ChannelSecurity,
    options: Options | None = None,
    compression: grpc.Compression | None = None,
    interceptors: Interceptors | None = None,
    **settings: Unpack[ChannelSettings],
) -> Channel:
    """Create a channel with credentials, as `grpc.aio.secure_channel` does.

    `credentials` are as in grpc; or `grpc_backoff.tls_files(...)`, whose files are watched; or a function that returns
    `grpc.ChannelCredentials`, which a thread calls for each attempt (PO-10). The other arguments, and the other errors,
    are those of `insecure_channel`.

    Raises:
        TypeError: `credentials` are none of these.
    """
    from grpc_backoff.engine.credentials import security_of  # noqa: PLC0415 - many channels have no credentials

    return _made(target, security_of(credentials), options, compression, interceptors, settings)


def _made(
    target: str,
    credentials: grpc.ChannelCredentials | CredentialsSource | None,
    options: Options | None,
    compression: grpc.Compression | None,
    interceptors: Interceptors | None,
    settings: ChannelSettings,
) -> Channel:
    if is_being_made():  # the function that was called has replaced grpc's
        chain = passed_on(interceptors)
        return cast("Channel", core_channel(target, cast("Any", credentials), options or (), compression, chain))
    return Channel(target, credentials, options, compression, interceptors, **settings)


def _made_by_grpc(
    target: str, options: Any, credentials: object, compression: Any, interceptors: Any = None
) -> Channel:
    secure = None if credentials is None else grpc.ChannelCredentials(credentials)
    with made_within():
        return Channel(target, secure, options, compression, interceptors)


CHANNEL_CLASS = ChannelClass(constructors, GrpcioChannel, Channel, _made_by_grpc, is_being_made)
