"""TLS credentials for tests, signed by the tests' own CA."""

from __future__ import annotations

import grpc
import trustme

AUTHORITY = trustme.CA()


def server_credentials(*, mutual=False):
    issued = AUTHORITY.issue_cert("localhost", "127.0.0.1")
    pair = (issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())
    return grpc.ssl_server_credentials([pair], AUTHORITY.cert_pem.bytes() if mutual else None, mutual)


def client_credentials(*, mutual=False):
    if not mutual:
        return grpc.ssl_channel_credentials(AUTHORITY.cert_pem.bytes())
    issued = AUTHORITY.issue_cert("client@example.org")
    return grpc.ssl_channel_credentials(
        AUTHORITY.cert_pem.bytes(), issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()
    )
