"""`grpc_backoff.install`: grpc's own constructors then make this library's channels."""

from __future__ import annotations

import itertools
import subprocess
import sys

import grpc
import grpc.aio
import grpc.experimental.aio
import pytest
import trustme

import grpc_backoff
from grpc_backoff import aio
from tests.echo import EchoStub, Message, serving

NAMES = ("insecure_channel", "secure_channel")
MODULES = (grpc.aio, grpc.experimental.aio)


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Undo any installation after each test, even if the test fails."""
    for module, name in itertools.product(MODULES, NAMES):
        monkeypatch.setattr(module, name, getattr(module, name))
    yield
    grpc_backoff.uninstall()


async def call(channel):
    async with channel:
        assert (await EchoStub(channel).Unary(Message(text="a"))).text == "a"


def is_ours():
    return grpc.aio.insecure_channel.__module__.startswith("grpc_backoff")


@pytest.mark.parametrize("module", MODULES)
async def test_both_names(module):
    """CH-1: both constructors of both modules make our channels, and take grpc's positional arguments."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    server = grpc.ssl_server_credentials(
        [(certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())]
    )
    trusted = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    grpc_backoff.install()
    async with serving() as port:
        channel = module.insecure_channel(f"127.0.0.1:{port}", None, None, None)
        assert type(channel) is aio.Channel
        await call(channel)
    async with serving(credentials=server) as port:
        channel = module.secure_channel(f"localhost:{port}", trusted, [("grpc.primary_user_agent", "x")], None)
        assert type(channel) is aio.Channel
        await call(channel)


async def test_again():
    """CH-1: a second `install` changes nothing, and one `uninstall` is enough."""
    before = [getattr(module, name) for module in MODULES for name in NAMES]
    grpc_backoff.install()
    once = [getattr(module, name) for module in MODULES for name in NAMES]
    grpc_backoff.install()
    assert [getattr(module, name) for module in MODULES for name in NAMES] == once
    grpc_backoff.uninstall()
    grpc_backoff.uninstall()
    assert [getattr(module, name) for module in MODULES for name in NAMES] == before
    channel = grpc.aio.insecure_channel("127.0.0.1:1")
    assert type(channel) is not aio.Channel
    await channel.close()


async def test_for_a_while():
    """CH-1: `installed` installs for a block, and keeps an earlier `install` in place."""
    with grpc_backoff.installed():
        assert is_ours()
    assert not is_ours()
    grpc_backoff.install()
    with grpc_backoff.installed():
        assert is_ours()
    assert is_ours()


async def test_from_the_environment(monkeypatch, tmp_path):
    """BP-3: channels use the file that the environment names; the caller's options take precedence."""
    file = tmp_path / "backoff.toml"
    file.write_text("[connection]\ninitial_backoff = '3s'\nmax_backoff = '7s'\n")
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(file))
    grpc_backoff.install()
    async with grpc.aio.insecure_channel("127.0.0.1:1", [("grpc.max_reconnect_backoff_ms", 9000)]) as channel:
        assert (channel.policy.initial_backoff, channel.policy.backoff.cap) == (3.0, 9.0)


def test_a_name_taken_before():
    """CH-1: names imported before `install` make grpc's channels; those imported later do so after `uninstall`."""
    code = """if True:
        import asyncio
        from grpc.aio import insecure_channel as before
        import grpc_backoff
        grpc_backoff.install()
        from grpc.aio import insecure_channel as during
        from grpc.experimental.aio import insecure_channel as experimental
        from grpc_backoff.aio import Channel

        async def main():
            kinds = []
            for make in (before, during, experimental):
                async with make("127.0.0.1:1") as channel:
                    kinds.append(type(channel) is Channel)
            grpc_backoff.uninstall()
            async with during("127.0.0.1:1") as channel:
                kinds.append(type(channel) is Channel)
            print(*kinds)

        asyncio.run(main())
        """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True", "False"]
