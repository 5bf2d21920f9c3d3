"""Where the reference client dials: `HOST:PORT`, or a name that a DNS server resolves."""

from __future__ import annotations

from urllib.parse import urlsplit

import dns.asyncquery
import dns.message
import dns.rdatatype

__all__ = ["resolve"]

_PATIENCE = 1.0


async def resolve(target: str) -> tuple[str, int]:
    """Return address and port of a target, which may be `dns://SERVER:PORT/NAME:PORT`.

    Raises:
        OSError: the name has no address.
    """
    if not target.startswith("dns://"):
        host, _, port = target.rpartition(":")
        return host, int(port)
    asked = urlsplit(target)
    name, _, port = asked.path.lstrip("/").rpartition(":")
    query = dns.message.make_query(name, dns.rdatatype.A)
    answer = await dns.asyncquery.udp(query, asked.hostname or "", _PATIENCE, asked.port or 53)
    for found in answer.answer:
        return found[0].to_text(), int(port)
    raise OSError(f"{name} has no address")
