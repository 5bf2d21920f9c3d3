from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ReconnectParams(_message.Message):
    __slots__ = ("max_reconnect_backoff_ms",)
    MAX_RECONNECT_BACKOFF_MS_FIELD_NUMBER: _ClassVar[int]
    max_reconnect_backoff_ms: int
    def __init__(self, max_reconnect_backoff_ms: _Optional[int] = ...) -> None: ...

class ReconnectInfo(_message.Message):
    __slots__ = ("passed", "backoff_ms")
    PASSED_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MS_FIELD_NUMBER: _ClassVar[int]
    passed: bool
    backoff_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, passed: bool = ..., backoff_ms: _Optional[_Iterable[int]] = ...) -> None: ...
