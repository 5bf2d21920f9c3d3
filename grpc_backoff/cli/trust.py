"""The PEM files that `connect` is given, for a channel and for a probe."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import NamedTuple

from grpc_backoff.cli.refusal import Refusal


class Trust(NamedTuple):
    """The names of the files, None for those that are not given, and their contents as the arguments of grpc."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    pems: tuple[bytes | None, bytes | None, bytes | None] = (None, None, None)

    def context(self) -> ssl.SSLContext:
        """Return a TLS context that verifies as grpc does. OpenSSL reads the files itself, as it takes keys only so.

        Raises:
            Refusal: OpenSSL cannot use the files.
        """
        try:
            # Without --ca, use the file that grpc itself would use, or else the system's certificate authorities.
            context = ssl.create_default_context(cafile=self.ca or os.environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"))
        except OSError as error:
            raise Refusal(f"--ca: no certificate authorities in this file: {error}") from error
        # Newer versions of Python are stricter by default, and older ones require the whole chain up to its root.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key, password=_no_password)
            except OSError as error:
                problem = f"cannot load the certificate and its matching key: {error}"
                raise Refusal(f"--cert and --key: {problem}") from error
        return context


def read_trust(ca: str | None, cert: str | None, key: str | None) -> Trust:
    """Read the files, which have to be PEM.

    Raises:
        Refusal: they are not, or cannot be read, or there is only one of `cert` and `key`.
    """
    if (cert is None) != (key is None):
        raise Refusal("--cert and --key must be given together")
    roots, chain, secret = _read_pem("--ca", ca), _read_pem("--cert", cert), _read_pem("--key", key)
    return Trust(ca, cert, key, (roots, secret, chain))


def _read_pem(option: str, name: str | None) -> bytes | None:
    if name is None:
        return None
    try:
        pem = Path(name).read_bytes()
    except OSError as error:
        raise Refusal(f"{option}: cannot read {name!r}: {error.strerror or error}") from error
    if b"-----BEGIN " not in pem:
        # The core would only report "Failed to create security handshaker", at every attempt.
        raise Refusal(f"{option}={name!r}: expected a PEM file")
    return pem


def _no_password() -> str:
    raise Refusal("--key: the key is encrypted, which grpc does not support")
