"""`grpc_backoff.install`, together with other libraries that replace grpc's constructors."""

from __future__ import annotations

import gc
import itertools

import grpc
import grpc.aio
import grpc.experimental.aio
import pytest

import grpc_backoff
from grpc_backoff import aio
from tests.aio.test_drop_in_interceptors import notes
from tests.echo import EchoStub, Message, serving

NAMES = ("insecure_channel", "secure_channel")
MODULES = (grpc.aio, grpc.experimental.aio)
PATH = b"/echo.v1.Echo/Unary"


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Restore all constructors after the test."""
    for module, name in itertools.product(MODULES, NAMES):
        monkeypatch.setattr(module, name, getattr(module, name))
    yield
    grpc_backoff.uninstall()


def wrap(noted, name):
    """Wrap grpc's constructors, as tracing libraries do; return a function that restores them."""
    before = {each: getattr(grpc.aio, each) for each in NAMES}

    def wrapper(beneath):
        def make(*args, interceptors=None, **kwargs):
            return beneath(*args, interceptors=[*notes(noted, name), *(interceptors or ())], **kwargs)

        return make

    def undo():
        for each, beneath in before.items():
            setattr(grpc.aio, each, beneath)

    for each, beneath in before.items():
        setattr(grpc.aio, each, wrapper(beneath))
    return undo


async def call(channel):
    async with channel:
        assert (await EchoStub(channel).Unary(Message(text="a"))).text == "a"


def is_ours():
    return grpc.aio.insecure_channel.__module__.startswith("grpc_backoff")


ORDERS = [order for length in (1, 2, 3) for order in itertools.product(["tracer", "install"], repeat=length)]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
async def test_each_call_is_traced_once(order):
    """CH-1: a library that wraps the constructors, before or after `install()`, sees each call once."""
    noted = []
    for number, what in enumerate(order):
        if what == "install":
            grpc_backoff.install()
        else:
            wrap(noted, str(number))
    expected = sorted((str(number), PATH) for number, what in enumerate(order) if what == "tracer")
    async with serving() as port:
        for make in (grpc.aio.insecure_channel, aio.insecure_channel):
            noted.clear()
            channel = make(f"127.0.0.1:{port}", interceptors=notes(noted, "users"))
            assert ("install" in order or make is aio.insecure_channel) == (type(channel) is aio.Channel)
            await call(channel)
            assert sorted(noted) == [*expected, ("users", PATH)]
            assert noted[-1][0] == "users"


@pytest.mark.parametrize("after", [False, True])
async def test_uninstalled_beneath_another(after):
    """CH-1: `uninstall()` leaves another library's wrapper in place; our constructor under it then calls grpc's own."""
    noted = []
    genuine = grpc.aio.insecure_channel
    grpc_backoff.install()
    undo = wrap(noted, "tracer")
    wrapper = grpc.aio.insecure_channel
    grpc_backoff.uninstall()
    assert grpc.aio.insecure_channel is wrapper
    async with serving() as port:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        assert type(channel) is not aio.Channel
        await call(channel)
        assert noted == [("tracer", PATH)]
        if after:  # now installed both above and beneath the wrapper
            grpc_backoff.install()
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
            assert type(channel) is aio.Channel
            await call(channel)
            assert noted == [("tracer", PATH)] * 2
            grpc_backoff.uninstall()
            assert grpc.aio.insecure_channel is wrapper
    undo()
    grpc_backoff.uninstall()
    assert grpc.aio.insecure_channel is genuine


async def test_a_tracer_that_goes_takes_ours_along():
    """CH-1: `install()` works again after a wrapping library has restored the constructors that it had replaced."""
    noted = []
    undo = wrap(noted, "tracer")
    grpc_backoff.install()
    undo()
    assert not is_ours()
    grpc_backoff.install()
    async with serving() as port:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        assert type(channel) is aio.Channel
        await call(channel)
    assert noted == []


async def test_a_wrapper_that_copies_our_attributes():
    """CH-1: a wrapper made with `functools.wraps` is not mistaken for this library's constructor."""
    import functools

    grpc_backoff.install()
    beneath = grpc.aio.insecure_channel

    @functools.wraps(beneath)
    def wrapper(*args, **kwargs):
        return beneath(*args, **kwargs)

    grpc.aio.insecure_channel = wrapper
    grpc_backoff.uninstall()
    assert grpc.aio.insecure_channel is wrapper
    channel = wrapper("127.0.0.1:1")
    assert type(channel) is not aio.Channel
    await channel.close()


async def test_assigned_beneath():
    """CH-1: `install()` causes no recursion if this library's constructor has already been assigned to grpc's name."""
    grpc.aio.insecure_channel = aio.insecure_channel
    grpc_backoff.install()
    async with serving() as port:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        assert type(channel) is aio.Channel
        await call(channel)
    grpc_backoff.uninstall()
    assert grpc.aio.insecure_channel is aio.insecure_channel


async def test_secure_assigned():
    """CH-1: this library's `secure_channel` can be assigned to grpc's name too."""
    grpc.aio.secure_channel = aio.secure_channel
    async with grpc.aio.secure_channel("127.0.0.1:1", grpc.ssl_channel_credentials()) as channel:
        assert type(channel) is aio.Channel


async def test_a_refusal_leaves_no_trace():
    """CH-10: with wrappers installed, bad arguments raise the usual errors, and later channels are not affected."""
    noted = []
    wrap(noted, "beneath")
    grpc_backoff.install()
    wrap(noted, "above")
    with pytest.raises(grpc_backoff.OptionError):
        grpc.aio.insecure_channel("127.0.0.1:1", options=[("grpc_backoff.jiter", 0.1)])
    with pytest.raises(ValueError, match="must be"):
        grpc.aio.insecure_channel("127.0.0.1:1", interceptors=[object()])
    async with serving() as port:
        await call(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
    assert sorted(noted) == [("above", PATH), ("beneath", PATH)]
    gc.collect()  # no ResourceWarning from a half-made channel
