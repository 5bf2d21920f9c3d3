"""The name server for a name whose address changes: each query is answered with the current address."""

from __future__ import annotations

import asyncio

import dns.asyncquery
import dns.message
import dns.rcode
import dns.rdatatype

from tests.interop.names import NameServer

WITHIN = 10.0


async def asked(names, kind="A"):
    """Query the name and return the addresses in the answer."""
    answer = await question(names, kind)
    return [item.address for found in answer.answer for item in found]


async def answered(names):
    """Query the name and return the response code."""
    return (await question(names, "A")).rcode()


async def question(names, kind):
    server, _, target = names.target(1).removeprefix("dns://").partition("/")
    host, _, port = server.rpartition(":")
    query = dns.message.make_query(target.rpartition(":")[0], kind)
    return await dns.asyncquery.udp(query, host, timeout=WITHIN, port=int(port))


async def test_the_address_of_this_moment():
    """CH-8: a changed address appears in the answer to the next query."""
    async with NameServer("127.0.0.1") as names:
        assert names.target(50051).endswith("/moves.test:50051")
        assert await asked(names) == ["127.0.0.1"]
        names.address = "127.0.0.2"
        assert await asked(names) == ["127.0.0.2"]
        assert names.asked == 2


async def test_a_name_that_is_not_there_yet():
    """CH-8: queries for a name return NXDOMAIN until the name is given an address."""
    async with NameServer(None) as names:
        assert await asked(names) == []
        assert await answered(names) == dns.rcode.NXDOMAIN
        names.address = "127.0.0.1"
        assert await asked(names) == ["127.0.0.1"]


async def test_no_other_kind_of_address():
    """CH-8: a query for an IPv6 address gets an empty answer and is not counted."""
    async with NameServer("127.0.0.1") as names:
        assert await asked(names, "AAAA") == []
        assert names.asked == 0


async def test_nonsense_is_passed_over():
    """IO-3: data that is not a DNS query is ignored, and the next query is answered."""
    async with NameServer("127.0.0.1") as names:
        port = int(names.target(1).split("/")[2].rpartition(":")[2])
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=("127.0.0.1", port)
        )
        transport.sendto(b"nonsense")
        assert await asked(names) == ["127.0.0.1"]
        transport.close()
