"""The functions that create threaded channels, and what `install` puts in the place of grpcio's class of channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import grpc

from grpc_backoff.base.base_errors import kind_of
from grpc_backoff.config.channel_settings import ChannelSettings, Options
from grpc_backoff.grpcio.channel_class import ChannelClass
from grpc_backoff.grpcio.private import cygrpc
from grpc_backoff.grpcio.sync_private import GrpcioChannel, constructors
from grpc_backoff.sync.channel import Channel

if TYPE_CHECKING:
    from grpc_backoff.config.credentials import ChannelSecurity
else:
    ChannelSecurity = Any  # for programs that evaluate the annotations of `secure_channel`


def _made_by_grpc(target: str, options: Any, credentials: object, compression: Any) -> Channel:
    if credentials is not None and not isinstance(credentials, cygrpc.ChannelCredentials):
        raise TypeError(f"credentials={kind_of(credentials)}: expected grpc.ChannelCredentials")
    secure = None if credentials is None else grpc.ChannelCredentials(credentials)
    return Channel(target, secure, options, compression)


CHANNEL_CLASS = ChannelClass(constructors, GrpcioChannel, Channel, _made_by_grpc)


def insecure_channel(
    target: str,
    options: Options | None = None,
    compression: grpc.Compression | None = None,
    **settings: Unpack[ChannelSettings],
) -> Channel:
    """Create a channel without TLS, as `grpc.insecure_channel` does.

    Args:
        target: the server's address, as in grpc. A URL, or a port above 65535, is rejected, because grpc cannot dial
            it.
        options: channel options; `docs/reference/options.md` lists those that affect the backoff.
        compression: the compression for the channel's calls, as in grpc.
        settings: this library's own arguments, by keyword: `policy`, `config`, `listeners`, `rng`, `clock`, `retry`,
            `retry_budget` and `retry_hooks`; see `ChannelSettings`.

    Raises:
        grpc_backoff.OptionError: a `ValueError` that names the option, its value and what was expected (CH-10).
        grpc_backoff.ConfigError: a `ValueError` that names the file, the key, the value and what was expected (BP-4).
        grpc_backoff.ForkError: this process was forked while channels were open, so grpcio would hang (FK-1).
    """
    return Channel(target, None, options, compression, **settings)


def secure_channel(
    target: str,
    credentials: ChannelSecurity,
    options: Options | None = None,
    compression: grpc.Compression | None = None,
    **settings: Unpack[ChannelSettings],
) -> Channel:
    """Create a channel with credentials, as `grpc.secure_channel` does.

    `credentials` are as in grpc; or `grpc_backoff.tls_files(...)`, whose files are watched; or a function that returns
    `grpc.ChannelCredentials`, which a thread calls for each attempt (PO-10). The other arguments, and the other errors,
    are those of `insecure_channel`.

    Raises:
        TypeError: `credentials` are none of these.
    """
    from grpc_backoff.engine.credentials import security_of  # noqa: PLC0415 - many channels have no credentials

    return Channel(target, security_of(credentials), options, compression, **settings)
