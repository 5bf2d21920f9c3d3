"""Checks of what programs pass to a ledger's methods, before anything is stored.

No error shows a request, or a value of metadata.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable, Sequence

import grpc

from grpc_backoff.aio.channel import Channel
from grpc_backoff.base.base_errors import OptionError, kind_of
from grpc_backoff.base.status import Link
from grpc_backoff.config.core_options import SERVICE_CONFIG
from grpc_backoff.config.target import bare_target, read_target
from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.decide.calls.call_texts import Report
from grpc_backoff.decide.calls.events import WaitSource
from grpc_backoff.decide.calls.server_hint import ServerHint
from grpc_backoff.engine.method import Method
from grpc_backoff.ledger.delivery.calling import failure_of
from grpc_backoff.ledger.errors import LedgerLimitError, LedgerStateError, wrong_type
from grpc_backoff.ledger.operation import LONGEST_KEY, Metadata
from grpc_backoff.ledger.policies import Policies
from grpc_backoff.ledger.records import Filter, Submission, is_storable
from grpc_backoff.ledger.stores.rows import unsendable
from grpc_backoff.ledger.stores.store import Store
from grpc_backoff.policy import checks
from grpc_backoff.policy.ledger_settings import unstorable
from grpc_backoff.policy.retry import Retry
from grpc_backoff.telemetry.trace import current_trace_id

_LATEST = 253_402_300_799.0  # the last second of the year 9999, in seconds since the epoch
_ORDER_KEY = re.compile(rf"[^\0\ud800-\udfff]{{1,{LONGEST_KEY}}}")
_WIDEST_KEY = 2048
"""The most bytes of an order key in UTF-8: PostgreSQL's indexes hold 2,704 bytes of target and order key together."""
_KEY = re.compile(rf"[!-~]{{1,{LONGEST_KEY}}}")


def prepared(
    policies: Policies,
    store: Store,
    call: object,
    request: Sequence[object],
    *,
    idempotency_key: str | None = None,
    metadata: Iterable[tuple[str, str | bytes]] | None = (),
    policy: Retry | None = None,
    order_key: str | None = None,
    not_before: float | None = None,
    not_after: float | None = None,
    keep_response: int | None = None,
) -> Submission:
    """Do what `Ledger.prepared` does; the request is what follows the call there."""
    target, method, content = _parts(call, request)
    settings = policies.settings
    pairs = _storable_metadata(metadata, settings.metadata)
    check_size(content, pairs, settings.max_request_bytes)
    _check_keys(idempotency_key, order_key)
    text = policies.stored(policies.text(method, policy), store)
    first, last = _time("not_before", not_before), _time("not_after", not_after)
    if first is not None and last is not None and last <= first:
        raise OptionError("not_after", not_after, "a time after not_before")
    most = settings.max_request_bytes
    if keep_response is not None and not (type(keep_response) is int and 0 < keep_response <= most):
        raise OptionError("keep_response", keep_response, f"a number of bytes from 1 to max_request_bytes ({most})")
    id_, trace_id = str(uuid.uuid4()), current_trace_id()
    return Submission(
        id_, target, method, content, pairs, text, trace_id, idempotency_key, order_key, first, last, keep_response
    )


def _check_keys(idempotency_key: object, order_key: object) -> None:
    """Reject keys that gRPC or a database does not take; None is no key."""
    if idempotency_key is not None and not (isinstance(idempotency_key, str) and _KEY.fullmatch(idempotency_key)):
        allowed = "visible ASCII characters, because it is sent as metadata"
        raise OptionError("idempotency_key", idempotency_key, allowed)
    fits = isinstance(order_key, str) and _ORDER_KEY.fullmatch(order_key) and len(order_key.encode()) <= _WIDEST_KEY
    if order_key is not None and not fits:
        allowed = f"text of 1 to {LONGEST_KEY} characters, at most {_WIDEST_KEY} bytes in UTF-8, without NUL"
        raise OptionError("order_key", order_key, allowed)


def _storable_metadata(metadata: Iterable[tuple[str, str | bytes]] | None, allowed: Collection[str]) -> Metadata:
    """Return metadata as pairs, whose keys must be among those that the settings allow."""
    pairs = _read_pairs("metadata", metadata)
    for key, value in pairs:
        if key not in allowed:
            known = f"a key that the ledger's settings allow ({', '.join(allowed) or 'none'})"
            raise OptionError("metadata", key, unstorable(key) or known)
        wanted = unsendable(key, value)
        if wanted is not None:
            raise OptionError("metadata", key, wanted)  # without the value, which may be secret
    return pairs


def _time(name: str, value: object) -> float | None:
    """Check a time in seconds since the epoch; databases have a latest one, and milliseconds are beyond it."""
    if value is None:
        return None
    seconds = checks.pause(name, value)
    if seconds > _LATEST:
        raise OptionError(name, value, "seconds since the epoch, at most those of the year 9999")
    return seconds


def _parts(call: object, request: Sequence[object]) -> tuple[str, str, bytes]:
    """Return the target, the method and the serialized request."""
    if isinstance(call, Method):
        if call.arity != "unary_unary":
            raise TypeError(f"{call.method} is a {call.arity} method: only unary-unary methods can be stored")
        if len(request) != 1:
            raise TypeError(f"{call.method} takes one request, not {len(request)}")
        try:
            content = call.serialized(request[0])
        except (TypeError, AttributeError) as error:
            raise TypeError(wrong_type("request", request[0], f"what the stub's {call.method} takes")) from error
        target, method = call.channel.target, call.method
    elif isinstance(call, str) and len(request) == 2:  # noqa: PLR2004 - method and request
        target, (path, content) = target_of(call), request
        if not isinstance(path, str) or not path.startswith("/") or not is_storable(path):
            raise OptionError("method", path, "a path such as '/package.Service/Method'")
        method = path
    else:
        allowed = "a unary-unary method of a stub on a channel of this library and a request"
        raise TypeError(wrong_type("call", call, f"{allowed}, or target, method and bytes"))
    return bare_target(target), method, check_bytes(content)


def _read_pairs(name: str, metadata: Iterable[tuple[str, str | bytes]] | None) -> Metadata:
    """Return metadata as pairs; OptionError, which does not show the values, if it is anything else."""
    try:
        pairs = tuple((key, value) for key, value in metadata or ())
    except (TypeError, ValueError):
        allowed = "an iterable of pairs of key and value"
        raise OptionError(name, kind_of(metadata), allowed, problem=wrong_type(name, metadata, allowed)) from None
    for key, _ in pairs:
        if not isinstance(key, str):
            raise OptionError(name, kind_of(key), "keys that are strings")
    return pairs


def check_prepared(prepared: object) -> None:
    """Reject what is not a list of operations; TypeError, which shows only the type of what is wrong."""
    found = prepared if isinstance(prepared, Sequence) else [prepared]
    wrong = [submission for submission in found if not isinstance(submission, Submission)]
    if wrong:
        raise TypeError(wrong_type("prepared", wrong[0], "a list of operations made by `prepared`"))


def check_size(request: bytes, metadata: Metadata, most: int) -> None:
    """Reject a request that is larger, together with its metadata, than `max_request_bytes` (LG-11)."""
    size = len(request) + sum(len(key) + len(value) for key, value in metadata)
    if size > most:
        what = "request and metadata" if metadata else "request"
        raise LedgerLimitError(f"{what}={size} bytes: expected at most max_request_bytes ({most})")


def check_bytes(request: object) -> bytes:
    """Return a serialized request; TypeError if it is anything else."""
    if not isinstance(request, bytes):
        raise TypeError(wrong_type("request", request, "bytes"))
    return request


def target_of(target: str) -> str:
    """Return a target to store; unlike a channel's, it must name something, because no channel would deliver to it."""
    if not target or not is_storable(target):
        raise OptionError("target", target, "the target of a channel that delivers, such as 'localhost:50051'")
    return read_target(target)


def check_channel(channel: object) -> None:
    """Reject what is no channel of `aio`, or is one on which grpc's core would repeat calls."""
    if not isinstance(channel, Channel):
        raise TypeError(wrong_type("channel", channel, "a channel of grpc_backoff.aio"))
    if channel.call_policies.service_config.left_to_core:
        allowed = "a policy that leaves no retries to grpc's core"
        problem = "the service config leaves retries to grpc's core, where a ledger cannot turn them off for its calls"
        raise OptionError(SERVICE_CONFIG, "retryPolicy", allowed, problem=problem)


def read_failure(
    code: str | grpc.StatusCode,
    details: str | None,
    hint: float | None,
    trailing_metadata: Iterable[tuple[str, str | bytes]] | None,
) -> FailedAttempt:
    """Return the failure of an attempt that a program has made; the arguments are those of `Ledger.record_failure`."""
    [name] = checks.codes("code", [code.name if isinstance(code, grpc.StatusCode) else code])
    pairs = _read_pairs("trailing_metadata", trailing_metadata)
    if details is not None and not isinstance(details, str):
        raise TypeError(wrong_type("details", details, "text"))
    failure = failure_of(Report(name, details or "", Link.OPEN, metadata=bool(pairs)), pairs)
    if hint is None:
        return failure
    return failure._replace(hint=ServerHint(checks.pause("hint", hint), WaitSource.RETRY_AFTER))


def read_filter(which: object) -> Filter:
    """Check a filter; None selects all operations."""
    if which is not None and not isinstance(which, Filter):
        raise TypeError(wrong_type("which", which, "a Filter"))
    return which or Filter()


def read_limit(limit: object) -> int:
    """Check how many operations are wanted; more than any database has are as good as all."""
    return min(checks.whole(0)("limit", limit), 2**31 - 1)


def read_id(id_: str) -> str:
    """Return an operation's id in canonical form; LedgerStateError if it is not an id."""
    try:
        return str(uuid.UUID(id_))
    except (ValueError, AttributeError, TypeError):
        raise LedgerStateError(f"id={id_!r}: expected an operation id (a UUID)") from None
