"""Resolves the reference client's targets: `HOST:PORT`, or a name that a DNS server knows."""

from __future__ import annotations

from urllib.parse import urlsplit

_PATIENCE = 1.0


async def resolve(target: str) -> tuple[str, int]:
    """Return the address and port of a target, which may have the form `dns://SERVER:PORT/NAME:PORT`.

    Raises:
        OSError: the name does not have an address.
    """
    if not target.startswith("dns://"):
        host, _, port = target.rpartition(":")
        return host, int(port)
    import dns.asyncquery  # noqa: PLC0415 - a fifth of the program's start, and few targets need it
    import dns.message  # noqa: PLC0415
    import dns.rdatatype  # noqa: PLC0415

    asked = urlsplit(target)
    name, _, port = asked.path.lstrip("/").rpartition(":")
    query = dns.message.make_query(name, dns.rdatatype.A)
    answer = await dns.asyncquery.udp(query, asked.hostname or "", _PATIENCE, asked.port or 53)
    for found in answer.answer:
        return found[0].to_text(), int(port)
    raise OSError(f"{name} has no address")
