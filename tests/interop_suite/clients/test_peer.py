"""Peers' manifests: the committed ones, and manifests with errors."""

from __future__ import annotations

import sys

import pytest

from grpc_judge.clients.peer import Setting, find_peers
from grpc_judge.runner.manifest import ManifestError
from grpc_judge.runner.program import build

GOOD = """
name = "made up"
command = ["{python}", "{here}/client.py"]
configurable = ["initial", "max"]
"""


def read(folder, text):
    """Write a folder with this manifest and return its peer."""
    place = folder / "made_up"
    place.mkdir()
    (place / "peer.toml").write_text(text)
    (peer,) = find_peers(folder)
    return peer


def test_the_peers_that_are_there():
    """IO-4: our own clients come first and must pass; the other peers follow by name and need not pass."""
    peers = find_peers()
    ours, others = peers[:2], peers[2:]
    assert [(peer.name, peer.must_pass, peer.missing) for peer in ours] == [
        ("grpc_backoff aio", True, ""),
        ("grpc_backoff sync", True, ""),
    ]
    assert [peer.name for peer in others] == sorted(peer.name for peer in others)
    assert {"grpcio aio", "grpcio sync", "grpclib"} <= {peer.name for peer in others}
    assert not any(peer.must_pass for peer in others)


def test_what_a_manifest_says(tmp_path):
    """IO-4: a new peer needs only a folder with a manifest."""
    peer = read(tmp_path, GOOD)
    assert peer.filled(peer.command) == [sys.executable, f"{tmp_path}/made_up/client.py"]
    assert peer.can_be_told(Setting.INITIAL, Setting.MAX)
    assert not peer.can_be_told(Setting.INITIAL, Setting.STABLE_AFTER)
    assert (peer.name, peer.must_pass, peer.loud, peer.missing) == ("made up", False, False, "")


def test_what_is_missing(tmp_path):
    """IO-4: a peer that cannot run here names the Python modules and the programs that are missing."""
    needs = '[needs]\nmodules = ["click", "no_such_module"]\nprograms = ["no-such-program", "env"]'
    peer = read(tmp_path, GOOD + needs)
    assert peer.missing == "the Python module no_such_module and the program no-such-program"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("made up", ""), "name='': expected a string that is not empty"),
        (('"{python}", ', "1, "), "expected a list of strings"),
        (('"initial"', '"min"'), "configurable='min': expected one of initial, max, min-connect-timeout, stable-after"),
        (("configurable", "configured"), "expected a known key, one of: build, command, configurable, loud, "),
        (("name =", "must_pass = 1\nname ="), "must_pass=1: expected true or false"),
        (("name =", "loud = 'yes'\nname ="), "loud='yes': expected true or false"),
        (("name =", "build = ['make']\nname ="), "build='make': expected a list of strings"),
        (('"max"]', '"max"]\n[needs]\ntools = []'), "expected a known key, one of: modules, programs"),
        (("name =", "name"), "peer.toml: "),
    ],
)
def test_manifests_that_are_wrong(tmp_path, change, complaint):
    """BP-4: an error in a manifest names the file, the key, the value and what is expected."""
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, GOOD.replace(*change))
    assert str(caught.value).startswith(f"{tmp_path}/made_up/peer.toml: ")
    assert complaint in str(caught.value)


async def test_build(tmp_path):
    """IO-4: a peer's build commands run in its own folder; a build that fails, or whose tool is missing, says so."""
    touch = "import pathlib; pathlib.Path('built').touch()"
    assert await build(read(tmp_path, f'build = [["{{python}}", "-c", "{touch}"]]' + GOOD)) == ""
    made_up = tmp_path / "made_up"
    assert (made_up / "built").exists()
    broken = read(made_up, """build = [["{python}", "-c", "raise SystemExit('no compiler')"]]""" + GOOD)
    assert (await build(broken)).endswith(" failed: no compiler")
    unbuilt = read(made_up / "made_up", 'build = [["/no/such/tool"]]' + GOOD)
    assert (await build(unbuilt)).startswith("/no/such/tool could not be run: ")
