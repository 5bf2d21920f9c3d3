"""Servers' manifests: the committed ones, and manifests with errors."""

from __future__ import annotations

import pytest

from grpc_judge.runner.choice import choose
from grpc_judge.runner.manifest import ManifestError
from grpc_judge.servers.happenings import Happening
from grpc_judge.servers.server import EMPTY_CALL, find_servers

GOOD = """
name = "made up"
command = ["{here}/server"]
"""


def read(folder, text):
    """Write a folder with this manifest and return its server."""
    place = folder / "made_up"
    place.mkdir()
    (place / "server.toml").write_text(text)
    (server,) = find_servers(folder)
    return server


def test_the_servers_that_are_there():
    """IO-4: proxies come last, and each server names the method that is called on it."""
    servers = {server.folder.name: server for server in find_servers()}
    assert {"grpc_python", "etcd", "nginx", "haproxy"} <= servers.keys()
    assert {name for name, server in servers.items() if server.proxy} == {"nginx", "haproxy"}
    assert [server.proxy for server in servers.values()] == sorted(server.proxy for server in servers.values())
    assert servers["etcd"].method == "/etcdserverpb.Maintenance/Status"
    assert (servers["grpc_python"].delays, servers["etcd"].delays) == (True, False)


def test_what_a_manifest_says(tmp_path):
    """IO-4: a manifest needs only a name and a command; `happenings` defaults to all that do not require a proxy."""
    server = read(tmp_path, GOOD)
    assert server.filled(server.command) == [f"{tmp_path}/made_up/server"]
    assert (server.method, server.proxy) == (EMPTY_CALL, False)
    assert set(server.happenings) == set(Happening) - {Happening.RELOADED, Happening.UPSTREAM_DOWN}


def test_a_proxy(tmp_path):
    """IO-4: a proxy's `happenings` defaults to all; its manifest may list fewer."""
    assert read(tmp_path, GOOD + "proxy = true").happenings == tuple(Happening)
    (tmp_path / "less").mkdir()
    assert read(tmp_path / "less", GOOD + 'happenings = ["frozen"]').happenings == (Happening.FROZEN,)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ('happenings = ["burnt"]', "happenings='burnt': expected one of killed, drained, aged, frozen, frozen-pinged"),
        ('happenings = ["reloaded"]', "happenings='reloaded': expected one of killed, "),
        ("happenings = 1", "happenings=1: expected a list of strings"),
        ("proxy = 1", "proxy=1: expected true or false"),
        ("graceful = 1", "graceful=1: expected true or false"),
        ('method = ""', "method='': expected a string that is not empty"),
        (
            "configurable = []",
            "configurable=[]: expected a known key, one of: build, command, graceful, happenings, method, name, ",
        ),
    ],
)
def test_a_manifest_that_is_wrong(tmp_path, more, complaint):
    """IO-4: an error in a manifest names the file, the key, the value and what is expected."""
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, GOOD + more)
    assert str(caught.value).startswith(f"{tmp_path / 'made_up' / 'server.toml'}: {complaint}")


def test_servers_are_chosen_by_name_or_folder():
    """IO-4: `--servers` accepts servers' names or folders."""
    servers = find_servers()
    assert choose(servers, "--servers", []) == servers
    assert [server.name for server in choose(servers, "--servers", ["HAProxy", "etcd"])] == ["etcd", "HAProxy"]
    with pytest.raises(ValueError, match=r"^--servers=nobody: expected one of etcd, "):
        choose(servers, "--servers", ["nobody"])
