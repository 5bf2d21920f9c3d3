"""Control of the flaky server over gRPC, as another process or another language would use it."""

from __future__ import annotations

import contextlib

import grpc
import grpc.aio
import pytest
from hyperframe.frame import HeadersFrame
from hypothesis import given
from hypothesis import strategies as st

from grpc_judge.flaky import FlakyServer, Silent
from grpc_judge.flaky.control import controlled
from grpc_judge.flaky.messages import from_message, to_message
from grpc_judge.generated.interop_v1 import flaky_pb2 as pb
from grpc_judge.generated.interop_v1.flaky_pb2_grpc import FlakyServerStub
from grpc_judge.timeline import Ending, Request, Timeline, Visit, Window
from tests.interop_suite.flaky.clients import WITHIN, Client

MOMENT = st.floats(0, 1e6)
MAYBE = st.none() | MOMENT
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
REQUESTS = st.builds(
    Request,
    at=MOMENT,
    stream=st.integers(1, 2**31 - 1),
    path=TEXT,
    outcome=st.sampled_from(["ok", "reset", "refused", "open"]),
)
VISITS = st.builds(
    Visit,
    number=st.integers(1, 2**32 - 1),
    client=TEXT,
    behaviour=TEXT,
    accepted=MOMENT,
    first_bytes=MAYBE,
    preface=MAYBE,
    settings_sent=MAYBE,
    requests=st.lists(REQUESTS, max_size=3).map(tuple),
    ended=MAYBE,
    ending=st.sampled_from(Ending),
)
TIMELINES = st.builds(
    Timeline,
    visits=st.lists(VISITS, max_size=3).map(tuple),
    refusing=st.lists(st.builds(Window, begin=MOMENT, end=MAYBE), max_size=3).map(tuple),
    taken=MOMENT,
)


@given(TIMELINES)
def test_a_timeline_as_a_message_and_back(timeline):
    """IO-3: a timeline survives serialization unchanged; a moment that never occurred does not become 0."""
    assert from_message(pb.Timeline.FromString(to_message(timeline).SerializeToString())) == timeline


@contextlib.asynccontextmanager
async def controlling(script):
    async with (
        FlakyServer(script) as server,
        controlled(server) as target,
        grpc.aio.insecure_channel(target) as channel,
    ):
        yield server, FlakyServerStub(channel)


async def test_the_service():
    """IO-3: `Play`, `GetTimeline`, `BreakAll` and `Restart` do what the methods of the Python API do.

    An invalid script fails with INVALID_ARGUMENT. `Restart` also restarts the timeline and the script.
    """
    async with controlling(Silent()) as (server, stub):
        await stub.Play(pb.PlayRequest(script='[{"behaviour": "accept_reset", "times": 1}, "working"]'), timeout=WITHIN)
        async with await Client.open(server) as client:
            assert await client.until_end() == "reset"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Play(pb.PlayRequest(script='[{"behaviour": "slow_settings", "delay": "soon"}]'), timeout=WITHIN)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert caught.value.details() == "slow_settings: delay='soon': expected a number of seconds, 0 or more"
        for end in ("BreakAll", "Restart"):
            async with await Client.open(server) as client:
                client.hello()
                await client.until(HeadersFrame, client.request(), 2)
                seen = from_message((await stub.GetTimeline(pb.GetTimelineRequest(), timeout=WITHIN)).timeline)
                assert seen.visits == server.timeline().visits
                assert seen.visits[-1].requests[0].outcome == "ok"
                assert 0 < seen.taken <= server.timeline().taken
                await getattr(stub, end)(getattr(pb, f"{end}Request")(), timeout=WITHIN)
                assert await client.until_end() == "reset"
        assert server.timeline().visits == ()
        async with await Client.open(server) as client:
            assert await client.until_end() == "reset", "as the script begins"


async def test_the_control_port_is_free_again():
    """IO-3: a control port can be reused as soon as the service on it has stopped."""
    async with FlakyServer(Silent()) as server:
        async with controlled(server) as target:
            port = int(target.rpartition(":")[2])
        async with controlled(server, port=port) as again:
            assert again == target
            async with grpc.aio.insecure_channel(again) as channel:
                await FlakyServerStub(channel).GetTimeline(pb.GetTimelineRequest(), timeout=WITHIN)
