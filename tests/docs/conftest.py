"""The shop from `docs/get-started.md`: its stub, generated as the page says, and its server."""

from __future__ import annotations

import importlib
import subprocess
import sys

import grpc.aio
import pytest

from tests.docs.pages import block


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
async def port(shop):
    """Run the server of `docs/get-started.md` on a free port, and yield the port."""
    server = grpc.aio.server()
    importlib.import_module("shop_pb2_grpc").add_OrdersServicer_to_server(
        importlib.import_module("server").Orders(), server
    )
    bound = server.add_insecure_port("localhost:0")
    await server.start()
    yield bound
    await server.stop(None)
