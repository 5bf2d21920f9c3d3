from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Ending(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENDING_OPEN: _ClassVar[Ending]
    ENDING_PEER_CLOSED: _ClassVar[Ending]
    ENDING_PEER_RESET: _ClassVar[Ending]
    ENDING_CLOSED: _ClassVar[Ending]
    ENDING_RESET: _ClassVar[Ending]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_OPEN: _ClassVar[Outcome]
    OUTCOME_OK: _ClassVar[Outcome]
    OUTCOME_RESET: _ClassVar[Outcome]
    OUTCOME_REFUSED: _ClassVar[Outcome]
ENDING_OPEN: Ending
ENDING_PEER_CLOSED: Ending
ENDING_PEER_RESET: Ending
ENDING_CLOSED: Ending
ENDING_RESET: Ending
OUTCOME_OPEN: Outcome
OUTCOME_OK: Outcome
OUTCOME_RESET: Outcome
OUTCOME_REFUSED: Outcome

class PlayRequest(_message.Message):
    __slots__ = ("script",)
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    script: str
    def __init__(self, script: _Optional[str] = ...) -> None: ...

class PlayResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTimelineRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTimelineResponse(_message.Message):
    __slots__ = ("timeline",)
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    timeline: Timeline
    def __init__(self, timeline: _Optional[_Union[Timeline, _Mapping]] = ...) -> None: ...

class BreakAllRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BreakAllResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RestartRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RestartResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Timeline(_message.Message):
    __slots__ = ("visits", "refusing", "taken")
    VISITS_FIELD_NUMBER: _ClassVar[int]
    REFUSING_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    visits: _containers.RepeatedCompositeFieldContainer[Visit]
    refusing: _containers.RepeatedCompositeFieldContainer[Window]
    taken: float
    def __init__(self, visits: _Optional[_Iterable[_Union[Visit, _Mapping]]] = ..., refusing: _Optional[_Iterable[_Union[Window, _Mapping]]] = ..., taken: _Optional[float] = ...) -> None: ...

class Visit(_message.Message):
    __slots__ = ("number", "client", "behaviour", "accepted", "first_bytes", "preface", "settings_sent", "requests", "ended", "ending")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    BEHAVIOUR_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    FIRST_BYTES_FIELD_NUMBER: _ClassVar[int]
    PREFACE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_SENT_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    number: int
    client: str
    behaviour: str
    accepted: float
    first_bytes: float
    preface: float
    settings_sent: float
    requests: _containers.RepeatedCompositeFieldContainer[Request]
    ended: float
    ending: Ending
    def __init__(self, number: _Optional[int] = ..., client: _Optional[str] = ..., behaviour: _Optional[str] = ..., accepted: _Optional[float] = ..., first_bytes: _Optional[float] = ..., preface: _Optional[float] = ..., settings_sent: _Optional[float] = ..., requests: _Optional[_Iterable[_Union[Request, _Mapping]]] = ..., ended: _Optional[float] = ..., ending: _Optional[_Union[Ending, str]] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("at", "stream", "path", "outcome")
    AT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    at: float
    stream: int
    path: str
    outcome: Outcome
    def __init__(self, at: _Optional[float] = ..., stream: _Optional[int] = ..., path: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ("begin", "end")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    begin: float
    end: float
    def __init__(self, begin: _Optional[float] = ..., end: _Optional[float] = ...) -> None: ...
