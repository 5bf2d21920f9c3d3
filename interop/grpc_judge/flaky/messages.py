"""Converts timelines to protobuf messages and back."""

from __future__ import annotations

from grpc_judge.generated.interop_v1 import flaky_pb2 as pb
from grpc_judge.timeline import Ending, Request, Timeline, Visit, Window


def to_message(timeline: Timeline) -> pb.Timeline:
    """Convert a timeline to a message."""
    return pb.Timeline(
        visits=[_visit_to(visit) for visit in timeline.visits],
        refusing=[pb.Window(begin=window.begin, end=window.end) for window in timeline.refusing],
        taken=timeline.taken,
    )


def from_message(message: pb.Timeline) -> Timeline:
    """Convert a message to a timeline."""
    return Timeline(
        visits=tuple(_visit_from(visit) for visit in message.visits),
        refusing=tuple(Window(begin=window.begin, end=_moment(window, "end")) for window in message.refusing),
        taken=message.taken,
    )


def _visit_to(visit: Visit) -> pb.Visit:
    return pb.Visit(
        number=visit.number,
        client=visit.client,
        behaviour=visit.behaviour,
        accepted=visit.accepted,
        first_bytes=visit.first_bytes,
        preface=visit.preface,
        settings_sent=visit.settings_sent,
        requests=[_request_to(request) for request in visit.requests],
        ended=visit.ended,
        ending=f"ENDING_{visit.ending.name}",
    )


def _visit_from(visit: pb.Visit) -> Visit:
    return Visit(
        number=visit.number,
        client=visit.client,
        behaviour=visit.behaviour,
        accepted=visit.accepted,
        first_bytes=_moment(visit, "first_bytes"),
        preface=_moment(visit, "preface"),
        settings_sent=_moment(visit, "settings_sent"),
        requests=tuple(_request_from(request) for request in visit.requests),
        ended=_moment(visit, "ended"),
        ending=Ending[pb.Ending.Name(visit.ending).removeprefix("ENDING_")],
    )


def _request_to(request: Request) -> pb.Request:
    outcome = f"OUTCOME_{request.outcome.upper()}"
    return pb.Request(at=request.at, stream=request.stream, path=request.path, outcome=outcome)


def _request_from(request: pb.Request) -> Request:
    outcome = pb.Outcome.Name(request.outcome).removeprefix("OUTCOME_").lower()
    return Request(at=request.at, stream=request.stream, path=request.path, outcome=outcome)


def _moment(message: pb.Visit | pb.Window, name: str) -> float | None:
    return getattr(message, name) if message.HasField(name) else None
