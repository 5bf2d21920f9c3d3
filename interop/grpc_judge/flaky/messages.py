"""Converts timelines to protobuf messages and back."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

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
        refusing=tuple(Window(**_values(window)) for window in message.refusing),
        taken=message.taken,
    )


def _visit_to(visit: Visit) -> pb.Visit:
    requests = [
        pb.Request(**_shared(each, pb.Request, outcome=f"OUTCOME_{each.outcome.upper()}")) for each in visit.requests
    ]
    return pb.Visit(**_shared(visit, pb.Visit, requests=requests, ending=f"ENDING_{visit.ending.name}"))


def _visit_from(visit: pb.Visit) -> Visit:
    requests = tuple(
        Request(**_values(each) | {"outcome": pb.Outcome.Name(each.outcome).removeprefix("OUTCOME_").lower()})
        for each in visit.requests
    )
    ending = Ending[pb.Ending.Name(visit.ending).removeprefix("ENDING_")]
    return Visit(**_values(visit) | {"requests": requests, "ending": ending})


def _shared(value: Visit | Request, message: type[Message], **changed: Any) -> dict[str, Any]:
    """Return the attributes of a value that this message has too, apart from changed ones."""
    return {field.name: getattr(value, field.name) for field in message.DESCRIPTOR.fields} | changed


def _values(message: Message) -> dict[str, Any]:
    """Return the fields of a message; a moment that never came is None."""
    fields = message.DESCRIPTOR.fields
    return {
        field.name: getattr(message, field.name) if not field.has_presence or message.HasField(field.name) else None
        for field in fields
    }
