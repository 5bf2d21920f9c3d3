"""The shop from `docs/get-started.md`: its stub, generated as the page says, and its server."""

from __future__ import annotations

import importlib
import subprocess
import sys

import grpc.aio
import pytest

from tests.certificates import AUTHORITY, server_credentials
from tests.docs.pages import ADDRESS, MUTUAL, SECURE, block


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """Yield a folder with the page's files and the generated stub, which is on the import path."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.proto").write_text(block("get-started.md", "service Orders", "proto"))
    (folder / "server.py").write_text(block("get-started.md", "class Orders("))
    (folder / "client.py").write_text(block("get-started.md", "orders.Place("))
    command = block("get-started.md", "grpc_tools.protoc", "").split()
    assert command[0] == "python"
    subprocess.run([sys.executable, *command[1:]], cwd=folder, check=True)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
async def ports(shop):
    """Run the server of `docs/get-started.md` on three free ports and yield them by the addresses on the pages."""
    server = grpc.aio.server()
    importlib.import_module("shop_pb2_grpc").add_OrdersServicer_to_server(
        importlib.import_module("server").Orders(), server
    )
    bound = {
        ADDRESS: server.add_insecure_port("localhost:0"),
        SECURE: server.add_secure_port("localhost:0", server_credentials()),
        MUTUAL: server.add_secure_port("localhost:0", server_credentials(mutual=True)),
    }
    await server.start()
    yield bound
    await server.stop(None)


@pytest.fixture
def port(ports):
    """Return the port of the server without TLS."""
    return ports[ADDRESS]


@pytest.fixture
def pems(tmp_path, monkeypatch):
    """Write the certificates that the pages name into the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.cert_pem.bytes())
    for name in ("server", "client"):
        issued = AUTHORITY.issue_cert("localhost")
        (tmp_path / f"{name}.pem").write_bytes(issued.cert_chain_pems[0].bytes())
        (tmp_path / f"{name}.key").write_bytes(issued.private_key_pem.bytes())
