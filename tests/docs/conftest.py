"""The shop of `docs/get-started.md`: its stub, generated as the page says, and its server as a module."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.pages import block


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """Return a folder with the page's files and the generated stub, which is on the path."""
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
