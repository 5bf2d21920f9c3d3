"""A name server on loopback that knows one name. Changing the name's address simulates a server that moves."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
from dns.exception import DNSException

_NAME = "moves.test"
_HOST = "127.0.0.1"
_TTL = 1


class NameServer(asyncio.DatagramProtocol):
    """A name server that runs while its context is open.

    Attributes:
        address: the IPv4 address of the name, which may be changed; None if the name does not exist.
        asked: how many address queries were answered.
    """

    def __init__(self, address: str | None) -> None:
        """Answer queries with this address, or with NXDOMAIN for None."""
        self.address = address
        self.asked = 0

    async def __aenter__(self) -> Self:
        """Listen on any free port."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(_HOST, 0))
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close the port."""
        self._transport.close()

    def target(self, port: int) -> str:
        """Return a gRPC target that resolves the name with this server and dials `port`."""
        own = self._transport.get_extra_info("sockname")[1]
        return f"dns://{_HOST}:{own}/{_NAME}:{port}"

    def datagram_received(self, data: bytes, addr: tuple[str | int, int]) -> None:
        """Answer a query. Called by the event loop."""
        try:
            query = dns.message.from_wire(data)
        except DNSException:
            return
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        question = query.question[0]
        if self.address is None:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        elif question.rdtype == dns.rdatatype.A:
            self.asked += 1
            answer.answer.append(dns.rrset.from_text(question.name, _TTL, "IN", "A", self.address))
        self._transport.sendto(answer.to_wire(), addr)
