"""Where a secure channel's credentials come from: grpc's own object, files, or a function (PO-10).

This module only checks and loads. When credentials are read, and what follows from a change, is in
`engine/credentials.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

import grpc

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.status import Failure
from grpc_backoff.policy.checks import duration

_FILE = "the path of a file"


class TLSFiles(NamedTuple):
    """The files with a channel's certificates and its key; see `tls_files`.

    Attributes:
        ca: the file with the certificates that the channel trusts; None for grpc's default.
        certificate: the file with the channel's own certificate and those that lead to its CA; None for none.
        key: the file with the private key of that certificate.
        check_every: how often the files are checked for changes, in seconds.
    """

    ca: str | None
    certificate: str | None
    key: str | None
    check_every: float


ChannelSecurity = grpc.ChannelCredentials | TLSFiles | Callable[[], grpc.ChannelCredentials]
"""What `secure_channel` accepts: credentials, the files with them, or a function that returns them."""


Outcome = grpc.ChannelCredentials | Failure
Tell = Callable[[Outcome], None]
"""Handles credentials, or why there are none, in the thread that has read them."""
Changed = Callable[[], None]
"""Handles a change of the files, in the thread that checks them; RuntimeError if its event loop is closed."""


class CredentialsSource(Protocol):
    """Where the credentials of each attempt come from."""

    @property
    def identity(self) -> Hashable:
        """Return what identifies the source in a key (SH-1): not the credentials, which change."""

    def read(self, tell: Tell) -> None:
        """Read the credentials in a thread and call `tell` there. If a read is running, its outcome counts."""

    def watch(self, changed: Changed) -> None:
        """Call the method `changed` after each change of the credentials; only a weak reference to it is kept."""

    def close(self) -> None:
        """Stop watching."""


class Loaded(NamedTuple):
    """Credentials from files, and a digest of the contents of the files."""

    credentials: grpc.ChannelCredentials
    digest: bytes


class UnusableFilesError(Exception):
    """The files contain no usable credentials now; the text says why."""


def tls_files(
    ca: str | os.PathLike[str] | None = None,
    certificate: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    *,
    check_every: float = 60.0,
) -> TLSFiles:
    """Return credentials for `secure_channel` that follow the files they are in (PO-10).

    The files are read for each attempt to connect. While there is a channel, they are also checked for changes; after a
    change, the channel replaces its connections and loses no call. If a file is missing or half-written, or the key
    does not match the certificate, the channel keeps the credentials that it has, logs one warning, and tries again.

    Args:
        ca: a PEM file with the certificates of the CAs to trust. By default, grpc's own.
        certificate: a PEM file with the client's certificate, for mutual TLS.
        key: a PEM file with the unencrypted private key of that certificate.
        check_every: how often to check the files for changes, in seconds.

    Raises:
        grpc_backoff.OptionError: there is neither `ca` nor `certificate`, only one of `certificate` and `key`, a value
            is not a path, or `check_every` is not a duration above 0.
    """
    paths = {"ca": _path("ca", ca), "certificate": _path("certificate", certificate), "key": _path("key", key)}
    for name, other in (("certificate", "key"), ("key", "certificate")):
        if paths[name] is None and paths[other] is not None:
            raise OptionError(name, None, f"{_FILE}, because {other} is given")
    if ca is None and certificate is None:
        raise OptionError("ca", None, f"{_FILE}, unless certificate and key are given")
    return TLSFiles(**paths, check_every=duration("check_every", check_every))


def _path(name: str, value: object) -> str | None:
    if value is None:
        return None
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise OptionError(name, value, _FILE)
    return text


def load_files_checks() -> None:
    """Import what reading the files needs, before an attempt reads them (CH-12)."""
    import hashlib  # noqa: F401, PLC0415 - only channels whose credentials are in files need them
    import ssl  # noqa: F401, PLC0415


def load_files(files: TLSFiles) -> Loaded:
    """Read and check the files.

    Raises:
        UnusableFilesError: they cannot be read, or do not fit together.
    """
    import ssl  # noqa: PLC0415 - only channels whose credentials are in files need it

    paths = files.ca, files.certificate, files.key
    before = tuple(map(_content, paths))
    ca, certificate, key = before
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is not None:
        text = ca.decode("ascii", "replace")  # text beside the certificates may be in any encoding
        _check(f"{files.ca!r} is not a PEM file of certificates", lambda: context.load_verify_locations(cadata=text))
    if files.certificate is not None:
        leaf, secret = files.certificate, files.key
        problem = f"{leaf!r} and {secret!r} are not a certificate and its unencrypted key"
        _check(problem, lambda: context.load_cert_chain(leaf, secret, password=_no_password))
    if tuple(map(_content, paths)) != before:
        raise UnusableFilesError("the files changed while they were read")
    return Loaded(grpc.ssl_channel_credentials(ca, key, certificate), digest_of(before))


def digest_of(pems: Iterable[bytes | None]) -> bytes:
    """Return a digest of PEMs, in their order; None stands for one that is not given, and differs from an empty one."""
    import hashlib  # noqa: PLC0415 - only channels with TLS need it

    digest = hashlib.sha256()
    for pem in pems:
        digest.update(b"-" if pem is None else b"%d:" % len(pem) + pem)
    return digest.digest()


def _content(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            return file.read()
    except OSError as error:
        raise UnusableFilesError(f"{path!r} cannot be read: {error.strerror}") from error


def _check(problem: str, load: Callable[[], object]) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # OpenSSL's errors are OSErrors
        raise UnusableFilesError(problem) from error


def _no_password() -> bytes:
    """Keep OpenSSL from asking for the password of an encrypted key on the terminal."""
    raise ValueError("the key is encrypted")
