"""Notices changes of the machine's network, for channels with `grpc_backoff.watch_network` (LV-4)."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import time
from collections.abc import Callable

from grpc_backoff.base import threads

_LOG = logging.getLogger(__name__)

_TOGETHER = 0.1
"""How long changes of the network are collected, in seconds, because one change causes many messages."""
_GROUPS = 0x10 | 0x40 | 0x100 | 0x400
"""The groups of messages about addresses and routes, for IPv4 and IPv6: RTMGRP_IPV4_IFADDR and so on."""
_LARGEST = 65536


class NetworkWatcher:
    """Watches the routes and addresses of the machine with a netlink socket, in one thread for the process."""

    def __init__(self, tell: Callable[[], None]) -> None:
        """Start; `tell` is called after each change, in another thread.

        Raises:
            RuntimeError: no thread can be started.
        """
        self._tell = tell
        self._stopped = False
        self._wake, self._woken = os.pipe()
        try:
            threads.start(self._run, "grpc-backoff-network")
        except RuntimeError:
            os.close(self._wake)
            os.close(self._woken)
            raise

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped = True
        os.close(self._woken)

    def _run(self) -> None:
        try:
            with contextlib.closing(open_netlink()) as link:
                self._watch(link)
        except OSError as error:
            _LOG.info("changes of the network are not noticed: %s", error)
        finally:
            os.close(self._wake)

    def _watch(self, link: socket.socket) -> None:
        while not self._stopped:
            select.select([link.fileno(), self._wake], [], [])
            if self._stopped:
                return
            end = time.monotonic() + _TOGETHER
            while (left := end - time.monotonic()) > 0:
                if link.fileno() in select.select([link.fileno(), self._wake], [], [], left)[0]:
                    with contextlib.suppress(OSError):  # there was more than the socket could keep
                        link.recv(_LARGEST)
                elif self._stopped:
                    return
            self._tell()


def open_netlink() -> socket.socket:
    """Return a socket that receives a message for each change of a route or an address.

    Raises:
        OSError: there is no netlink, or it is not permitted.
    """
    family = getattr(socket, "AF_NETLINK", None)
    if family is None:
        raise OSError("this system has no netlink")
    link = socket.socket(family, socket.SOCK_RAW, 0)
    try:
        link.bind((0, _GROUPS))
    except OSError:
        link.close()
        raise
    return link
