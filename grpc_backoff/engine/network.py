"""Notices changes of the machine's network, for channels with `grpc_backoff.watch_network` (LV-4)."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable

from grpc_backoff.base import threads

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
            OSError: there is no netlink, it is not permitted, or there is no free file.
            RuntimeError: no thread can be started.
        """
        self._tell = tell
        self._stopped = False
        with contextlib.ExitStack() as opened:
            self._link = opened.enter_context(open_netlink())
            self._wake, self._woken = os.pipe()
            opened.callback(os.close, self._wake)
            opened.callback(os.close, self._woken)
            threads.start(self._run, "grpc-backoff-network")
            opened.pop_all()  # the thread closes them

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped = True
        os.close(self._woken)

    def _run(self) -> None:
        try:
            self._watch(self._link)
        finally:
            self._link.close()
            os.close(self._wake)

    def _watch(self, link: socket.socket) -> None:
        poll = select.poll()  # `select.select` refuses descriptors from 1024 on
        poll.register(link, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._stopped:
            poll.poll()
            if self._stopped:
                return
            end = time.monotonic() + _TOGETHER
            while (left := end - time.monotonic()) > 0:
                if link.fileno() in dict(poll.poll(left * 1000)):
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
