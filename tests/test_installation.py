"""`grpc_backoff.install`: grpc's own constructors then make this library's channels."""

from __future__ import annotations

import asyncio
import gc
import itertools
import subprocess
import sys
import warnings

import grpc
import grpc._channel
import grpc._simple_stubs
import grpc.aio
import grpc.experimental.aio
import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.grpc import GrpcAioInstrumentorClient, GrpcInstrumentorClient
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import grpc_backoff
from grpc_backoff import aio
from tests.certificates import client_credentials, server_credentials
from tests.echo import EchoStub, Message, services, serving

NAMES = ("insecure_channel", "secure_channel")
MODULES = (grpc, grpc.aio, grpc.experimental.aio)
GENUINE = grpc._channel.Channel, grpc.aio._channel.Channel
OURS = grpc_backoff.Channel, aio.Channel
BEFORE = {api: api.insecure_channel for api in (grpc, grpc.aio)}


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Restore grpc's constructors and classes after each test, even if the test fails."""
    for module, name in itertools.product(MODULES, NAMES):
        monkeypatch.setattr(module, name, getattr(module, name))
    yield
    grpc_backoff.uninstall()
    assert (grpc._channel.Channel, grpc.aio._channel.Channel) == GENUINE


async def made(make, *args, **kwargs):
    """Make a channel and a call on it; return the channel, without the wrappers of threaded interceptors."""
    channel = make(*args, **kwargs)
    if isinstance(channel, grpc.aio.Channel):
        async with channel:
            assert (await EchoStub(channel).Unary(Message(text="a"), timeout=20)).text == "a"
        return channel

    def call():
        with channel:
            assert EchoStub(channel).Unary(Message(text="a"), timeout=20).text == "a"

    await asyncio.to_thread(call)
    innermost = channel
    while isinstance(innermost, grpc.Channel) and not isinstance(innermost, (*GENUINE, *OURS)):
        innermost = innermost._channel
    return innermost


async def kinds(target):
    """Return whether grpc's constructors now make our channels: threaded ones, and those for asyncio."""
    return [isinstance(await made(api.insecure_channel, target), OURS) for api in (grpc, grpc.aio)]


@pytest.mark.parametrize("module", MODULES)
async def test_both_names(module):
    """CH-1: both constructors of each module make our channels and take grpc's positional arguments."""
    grpc_backoff.install()
    async with serving() as port:
        assert isinstance(await made(module.insecure_channel, f"127.0.0.1:{port}", None, None), OURS)
    async with serving(credentials=server_credentials()) as port:
        arguments = client_credentials(), [("grpc.primary_user_agent", "x")], None
        assert isinstance(await made(module.secure_channel, f"localhost:{port}", *arguments), OURS)


async def test_again():
    """CH-1: a second `install` changes nothing, and one `uninstall` is enough."""
    async with serving() as port:
        target = f"127.0.0.1:{port}"
        grpc_backoff.install()
        grpc_backoff.install()
        assert await kinds(target) == [True, True]
        grpc_backoff.uninstall()
        grpc_backoff.uninstall()
        assert await kinds(target) == [False, False]


async def test_for_a_while():
    """CH-1: `installed` installs for a block and keeps an earlier `install` in place."""
    async with serving() as port:
        target = f"127.0.0.1:{port}"
        with grpc_backoff.installed():
            assert await kinds(target) == [True, True]
        assert await kinds(target) == [False, False]
        grpc_backoff.install()
        with grpc_backoff.installed():
            assert await kinds(target) == [True, True]
        assert await kinds(target) == [True, True]


async def test_from_the_environment(monkeypatch, tmp_path):
    """BP-3: channels use the file that the environment names; the caller's options take precedence."""
    file = tmp_path / "backoff.toml"
    file.write_text("[connection]\ninitial_backoff = '3s'\nmax_backoff = '7s'\n")
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(file))
    grpc_backoff.install()
    options = [("grpc.max_reconnect_backoff_ms", 9000)]
    async with grpc.aio.insecure_channel("127.0.0.1:1", options) as channel:
        assert (channel.policy.initial_backoff, channel.policy.backoff.cap) == (3.0, 9.0)
    with grpc.insecure_channel("127.0.0.1:1", options) as channel:
        assert (channel.policy.initial_backoff, channel.policy.backoff.cap) == (3.0, 9.0)


def test_a_name_taken_before():
    """CH-1: names imported before `install` make our channels too, and grpc's after `uninstall`."""
    code = """if True:
        import asyncio
        from grpc import insecure_channel as threaded
        from grpc.aio import insecure_channel as before
        import grpc_backoff
        grpc_backoff.install()
        from grpc.aio import insecure_channel as during
        from grpc.experimental.aio import insecure_channel as experimental
        from grpc_backoff.aio import Channel

        async def main():
            kinds = []
            for uninstall in (lambda: None, grpc_backoff.uninstall):
                uninstall()
                for make in (before, during, experimental):
                    async with make("127.0.0.1:1") as channel:
                        kinds.append(type(channel) is Channel)
                with threaded("127.0.0.1:1") as channel:
                    kinds.append(type(channel) is grpc_backoff.Channel)
            print(*kinds)

        asyncio.run(main())
        """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 4 + ["False"] * 4


# Among other libraries.


class Instrumentation:
    """OpenTelemetry's instrumentation of both APIs, and the spans that it has made since they were last taken."""

    def __init__(self, monkeypatch):
        self._exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # the threaded instrumentor uses only the global one
        self._instrumentors = GrpcInstrumentorClient(), GrpcAioInstrumentorClient()
        self.on = False

    def turn(self, on):
        """Turn the instrumentation on or off; turning it on twice would only log a warning."""
        if on is self.on:
            return
        self.on = on
        for each in self._instrumentors:
            each.instrument() if on else each.uninstrument()

    def spans(self):
        """Return and forget the number of spans."""
        found = len(self._exporter.get_finished_spans())
        self._exporter.clear()
        return found


@pytest.fixture
def otel(monkeypatch):
    made = Instrumentation(monkeypatch)
    yield made
    made.turn(on=False)


STEPS = ("install", "uninstall", "instrument", "uninstrument")


@pytest.mark.parametrize("first", STEPS)
async def test_every_order(otel, first):
    """CH-1, TH-7: after any sequence of install, instrument and their undoing, each call is traced as was asked.

    All sequences of up to four steps are tried, on both APIs. A call is traced once or not at all, and its channel is
    ours or grpc's. No channel leaks.
    """
    async with serving() as port:
        target = f"127.0.0.1:{port}"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for length in range(4):
                for rest in itertools.product(STEPS, repeat=length):
                    assert await after(otel, (first, *rest), target) == [], (first, *rest)
                    assert {api: api.insecure_channel for api in BEFORE} == BEFORE
            gc.collect()


async def after(otel, order, target):
    """Take these steps, make calls in each way, and undo everything; return how calls differed from what was asked."""
    installed = False
    for step in order:
        if step.endswith("install"):
            installed = step == "install"
            getattr(grpc_backoff, step)()
        else:
            otel.turn(step == "instrument")
    wrong = []
    makers = {"threads": grpc.insecure_channel, "asyncio": grpc.aio.insecure_channel, "ours": aio.insecure_channel}
    for name, make in makers.items():
        otel.spans()
        kind = isinstance(await made(make, target), OURS)
        if (kind, spans := otel.spans()) != (installed or name == "ours", otel.on):
            wrong.append((name, kind, spans))
    otel.turn(on=False)
    grpc_backoff.uninstall()
    return wrong


def wrapped(make, target):
    """Return a constructor that adds an option, and replaces the target, as a library for service discovery does."""

    def wrapper(_name, *args, options=(), **kwargs):
        return make(target, *args, options=[*options, ("grpc.primary_user_agent", "wrapped")], **kwargs)

    return wrapper


@pytest.mark.parametrize("api", [grpc, grpc.aio], ids=["threads", "asyncio"])
@pytest.mark.parametrize("order", ["before", "after", "both"])
async def test_what_a_wrapper_changes_counts(monkeypatch, api, order):
    """CH-1, TH-7: what a wrapper changes in the arguments takes effect, whether it is there before `install` or not."""
    async with serving() as port:
        if order != "before":
            grpc_backoff.install()
        monkeypatch.setattr(api, "insecure_channel", wrapped(api.insecure_channel, f"127.0.0.1:{port}"))
        if order != "after":
            grpc_backoff.install()
        channel = await made(api.insecure_channel, "shop")
        assert isinstance(channel, OURS)
        assert channel.target == f"127.0.0.1:{port}"
        grpc_backoff.uninstall()
        assert type(await made(api.insecure_channel, "shop")) in GENUINE


async def test_a_constructor_that_makes_something_else(monkeypatch):
    """CH-1: a function that makes its own channels, such as a test's fake, is left alone."""
    monkeypatch.setattr(grpc, "insecure_channel", lambda *_args, **_kwargs: "a fake")
    grpc_backoff.install()
    assert grpc.insecure_channel("127.0.0.1:1") == "a fake"


async def test_a_refusal_leaves_no_trace(otel):
    """CH-10: with wrappers installed, bad arguments raise the usual errors, and later channels are not affected."""
    otel.turn(on=True)
    grpc_backoff.install()
    for api in (grpc, grpc.aio):
        with pytest.raises(grpc_backoff.OptionError):
            api.insecure_channel("127.0.0.1:1", options=[("grpc_backoff.jiter", 0.1)])
    with pytest.raises(ValueError, match="must be"):
        grpc.aio.insecure_channel("127.0.0.1:1", interceptors=[object()])
    async with serving() as port:
        assert await kinds(f"127.0.0.1:{port}") == [True, True]
    assert otel.spans() == 2
    gc.collect()  # no ResourceWarning from a half-made channel


# Simple stubs.


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.filterwarnings("ignore:.*experimental")
async def test_simple_stubs(installed):
    """CH-1: `Service.Method(request, target, insecure=True)` works as on plain grpc, with our channel if installed."""
    if installed:
        grpc_backoff.install()
    cache = grpc._simple_stubs.ChannelCache.get()
    try:
        async with serving() as port:
            texts = await asyncio.to_thread(simply, f"127.0.0.1:{port}")
        assert texts == ["Unary"] * 2 + ["Down", "Up", "Both"]
        [(channel, _)] = cache._mapping.values()
        assert type(channel) is (grpc_backoff.Channel if installed else grpc._channel.Channel)
        channel.close()
    finally:
        with cache._lock:  # otherwise, its thread would look at the channel ten minutes later
            cache._mapping.clear()
            cache._condition.notify_all()


def simply(target):
    """Call each method of the Echo service by the class that grpcio-tools generates for simple stubs."""
    how = {"insecure": True, "timeout": 20}
    texts = [services.Echo.Unary(Message(text="Unary"), target, **how).text for _ in range(2)]
    texts += [each.text for each in services.Echo.Down(Message(text="Down", count=1), target, **how)]
    texts.append(services.Echo.Up(iter([Message(text="Up")]), target, **how).text)
    return [*texts, *(each.text for each in services.Echo.Both(iter([Message(text="Both")]), target, **how))]
