"""Drains a server before it stops, so that a rolling deployment costs its clients no calls (RO-2).

When a gRPC server stops, it sends GOAWAY. Calls that have reached the process but not yet its Python code end with
CANCELLED then (grpc/grpc#41785), and calls that are on their way to it fail with UNAVAILABLE. No client can repeat all
of them safely. So the server has to say that it is about to stop while it still answers: `drain` sets its health to
NOT_SERVING, waits until the clients use other servers, and stops it only then.

This works with servers of `grpc` and of `grpc.aio`, and with the health servicers of `grpcio-health-checking`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
import threading
import time
from collections.abc import Awaitable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol, overload
from weakref import WeakKeyDictionary, WeakSet

import grpc
import grpc.aio

from grpc_backoff.base.base_errors import shown
from grpc_backoff.base.logs import Log
from grpc_backoff.grpcio.aio_private import running_server_calls as running_in_loop
from grpc_backoff.grpcio.sync_private import running_server_calls as running_in_threads
from grpc_backoff.policy.checks import pause

__all__ = ["Servicer", "drain", "drain_on_signals"]

_LOG = Log(__name__)
_UNREADY = 5.0
_GRACE = 30.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_drains: WeakKeyDictionary[object, Any] = WeakKeyDictionary()
"""The drain of each server: a task or a thread. There is at most one, however often it is asked for."""
_starting = threading.Lock()
_asked_by_signal: WeakSet[object] = WeakSet()
"""The servers that a signal has asked to drain: the next one stops them. Drains of the program's own do not count."""


class Servicer(Protocol):
    """A health servicer, such as `grpc_health.v1.health.HealthServicer` and its asyncio counterpart."""

    def enter_graceful_shutdown(self) -> Awaitable[None] | None:
        """Set the status of all services to NOT_SERVING, for good."""
        ...


@overload
def drain(
    server: grpc.aio.Server, health: Servicer | None = None, *, unready: float = ..., grace: float = ...
) -> Awaitable[None]: ...


@overload
def drain(server: grpc.Server, health: Servicer | None = None, *, unready: float = ..., grace: float = ...) -> None: ...


def drain(
    server: grpc.Server | grpc.aio.Server,
    health: Servicer | None = None,
    *,
    unready: float = _UNREADY,
    grace: float = _GRACE,
) -> Awaitable[None] | None:
    """Stop a server so that its clients lose no calls (RO-2).

    This sets the health of all services to NOT_SERVING, goes on serving for `unready` seconds, and then stops the
    server with a grace period. With a server of `grpc.aio`, await the result; with one of `grpc`, the function returns
    when the server has stopped. If the server is being drained already, this waits for that drain. If it has been
    stopped, this returns at once.

    Args:
        server: a started server.
        health: the server's health servicer; without one, clients learn nothing before the server stops, but a load
            balancer or the endpoints of a Kubernetes Service may.
        unready: for how many seconds the server still accepts calls. Choose more than the clients need to turn to other
            servers: with gRPC's health checks, a round trip; with a load balancer, its interval of checks.
        grace: for how many seconds calls may continue after that. Those that still run then are cancelled.

    Raises:
        grpc_backoff.OptionError: `unready` or `grace` is not a finite, non-negative number of seconds.
        TypeError: `server` is not a server, or `health` is not a health servicer.
    """
    unready, grace = _check(server, health, unready, grace)
    if isinstance(server, grpc.aio.Server):
        return _shared_drain(server, health, unready, grace)
    _drain_thread(server, health, unready, grace).join()
    return None


def drain_on_signals(
    server: grpc.Server | grpc.aio.Server,
    health: Servicer | None = None,
    *,
    unready: float = _UNREADY,
    grace: float = _GRACE,
    signals: Iterable[signal.Signals] = _SIGNALS,
) -> None:
    """Drain a server when the process receives a signal; a second signal stops the server at once (RO-2).

    Call this after the server has started: on its event loop, or, for a server of `grpc`, in the main thread. The
    program then waits with `server.wait_for_termination()`. The signals' earlier handlers are replaced.

    Args:
        server: a started server.
        health: see `drain`.
        unready: see `drain`.
        grace: see `drain`. Kubernetes kills a pod `terminationGracePeriodSeconds` after the signal, so that has to be
            more than `unready` and `grace` together.
        signals: the signals; by default, SIGTERM and SIGINT.

    Raises:
        grpc_backoff.OptionError: `unready` or `grace` is not a finite, non-negative number of seconds.
        TypeError: `server` is not a server, or `health` is not a health servicer.
        ValueError: `server` is one of `grpc`, and this is not the main thread.
        RuntimeError: `server` is one of `grpc.aio`, and no event loop is running.
    """
    unready, grace = _check(server, health, unready, grace)
    if isinstance(server, grpc.aio.Server):
        loop = asyncio.get_running_loop()
        for number in signals:
            loop.add_signal_handler(number, _signalled, server, health, unready, grace)
        return
    for number in signals:
        signal.signal(number, lambda *_: _signalled(server, health, unready, grace))


def _signalled(server: grpc.Server | grpc.aio.Server, health: Servicer | None, unready: float, grace: float) -> None:
    """Handle a signal. Nothing here blocks, because a signal handler interrupts the main thread anywhere."""
    again = server in _asked_by_signal
    _asked_by_signal.add(server)
    if isinstance(server, grpc.aio.Server):
        if again:
            _keep(asyncio.get_running_loop().create_task(server.stop(0)))
        else:
            _shared_drain(server, health, unready, grace)
        return
    stop = partial(server.stop, 0) if again else partial(_drain_thread, server, health, unready, grace)
    threading.Thread(target=stop, name="grpc-backoff-signal", daemon=True).start()


def _check(server: object, health: object, unready: float, grace: float) -> tuple[float, float]:
    if not isinstance(server, grpc.Server | grpc.aio.Server):
        raise TypeError(f"server={shown(server)}: expected a grpc.Server or a grpc.aio.Server")
    enter = getattr(health, "enter_graceful_shutdown", None)
    if health is not None and not callable(enter):
        raise TypeError(f"health={shown(health)}: expected a health servicer with enter_graceful_shutdown()")
    if isinstance(server, grpc.Server) and inspect.iscoroutinefunction(enter):
        raise TypeError(f"health={shown(health)}: expected a health servicer for threads: the server is a grpc.Server")
    return pause("unready", unready), pause("grace", grace)


# Servers of grpc.aio.

_tasks: set[asyncio.Task[None]] = set()


def _shared_drain(server: grpc.aio.Server, health: Servicer | None, unready: float, grace: float) -> Awaitable[None]:
    """Return the server's drain, after starting one if there is none; cancelling the wait does not cancel the drain."""
    task = _drains.get(server)
    if task is None:
        task = _drains[server] = _keep(
            asyncio.get_running_loop().create_task(_drain_on_loop(server, health, unready, grace))
        )
    return asyncio.shield(task)


def _keep(task: asyncio.Task[None]) -> asyncio.Task[None]:
    _tasks.add(task)  # the loop itself keeps only weak references
    task.add_done_callback(_tasks.discard)
    return task


async def _drain_on_loop(server: grpc.aio.Server, health: Servicer | None, unready: float, grace: float) -> None:
    if not await server.wait_for_termination(0):
        return  # it has been stopped
    with _logged_errors(asyncio.current_task()):
        entered = None if health is None else health.enter_graceful_shutdown()
        if inspect.isawaitable(entered):
            await entered
    _say_unready(unready)
    if not await server.wait_for_termination(unready):
        return  # stopped meanwhile
    began, waiting = time.monotonic(), running_in_loop(asyncio.get_running_loop())
    _say_stopping(waiting, grace)
    await server.stop(grace)
    _say_stopped(waiting, time.monotonic() - began)


# Servers of grpc.


def _drain_thread(server: grpc.Server, health: Servicer | None, unready: float, grace: float) -> threading.Thread:
    """Return the thread that drains the server, after starting it if there is none."""
    with _starting:
        thread = _drains.get(server)
        if thread is None:
            thread = _drains[server] = threading.Thread(
                target=_drain_in_thread, args=(server, health, unready, grace), name="grpc-backoff-drain", daemon=True
            )
            thread.start()
    return thread


def _drain_in_thread(server: grpc.Server, health: Servicer | None, unready: float, grace: float) -> None:
    if not server.wait_for_termination(0):
        return  # it has been stopped
    with _logged_errors():
        if health is not None:
            health.enter_graceful_shutdown()
    _say_unready(unready)
    if not server.wait_for_termination(unready):
        return  # stopped meanwhile
    began, waiting = time.monotonic(), running_in_threads(server)
    _say_stopping(waiting, grace)
    server.stop(grace).wait()
    _say_stopped(waiting, time.monotonic() - began)


@contextlib.contextmanager
def _logged_errors(task: asyncio.Task[Any] | None = None) -> Iterator[None]:
    """Log what a health servicer raises, unless `task` itself is cancelled: the server has to stop all the same."""
    try:
        yield
    except (Exception, asyncio.CancelledError, SystemExit) as error:
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        _LOG.exception("the health servicer could not be set to NOT_SERVING")


def _say_unready(unready: float) -> None:
    _LOG.info("draining: serving for %g s more, while clients turn to other servers", unready)


def _say_stopping(waiting: int, grace: float) -> None:
    _LOG.info("draining: stopping; waiting up to %g s for %d calls", grace, waiting)


def _say_stopped(waiting: int, seconds: float) -> None:
    _LOG.info("drained: stopped after waiting %.1f s for %d calls", seconds, waiting)
