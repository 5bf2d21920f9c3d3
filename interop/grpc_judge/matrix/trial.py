"""Runs one peer in one scenario: starts servers and processes and collects the evidence."""

from __future__ import annotations

import asyncio
import functools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import trustme

from grpc_judge.clients.peer import Peer
from grpc_judge.clients.peer_process import Account, PeerProcess
from grpc_judge.clients.plain import PlainPeer, PlainProcess
from grpc_judge.conformance import Calls, Evidence
from grpc_judge.conformance.gaps import by_client
from grpc_judge.flaky import FlakyServer, Tls
from grpc_judge.flaky.dials import watch_dials
from grpc_judge.matrix.lag import LagWatch
from grpc_judge.matrix.scenarios import Pace, Staging
from grpc_judge.runner.process import ProgramError
from grpc_judge.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Trust:
    """The certificates for a run.

    Attributes:
        tls: the servers' certificate and key.
        untrusted: the same from an authority that peers do not trust.
        ca: the file with the CA certificate that peers trust.
    """

    tls: Tls
    untrusted: Tls
    ca: Path

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Create a CA, write its certificate to `folder`, and issue a certificate for the loopback address."""
        authority = trustme.CA()
        ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(ca)
        return cls(_issued(authority), _issued(trustme.CA()), ca)


def _issued(authority: trustme.CA) -> Tls:
    issued = authority.issue_cert("127.0.0.1", "localhost")
    return Tls(b"".join(blob.bytes() for blob in issued.cert_chain_pems), issued.private_key_pem.bytes())


class Start:
    """The barrier at which concurrent trials wait for each other before they start one after another.

    Attributes:
        lags: watches for delays of our own event loop; None for no watch.
        loading: held by a peer while it loads; if all runtimes loaded at once, they would exceed their time limit.
    """

    def __init__(self, parties: int, apart: float = 0.0, lags: LagWatch | None = None) -> None:
        """Wait for this many trials, then release them `apart` seconds apart. `lags` reports event loop delays."""
        self.lags = lags
        self._line = asyncio.Barrier(parties)
        self._gate = asyncio.Lock()
        self._apart = apart
        self.loading = asyncio.Semaphore(os.cpu_count() or 1)

    async def wait(self) -> None:
        """Wait until all trials have arrived and then until those ahead of this one have started."""
        await self._line.wait()
        async with self._gate:
            await asyncio.sleep(self._apart)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One peer in one scenario.

    Attributes:
        peer: the peer.
        staging: how the scenario is staged.
        pace: the pace at which the peer runs.
    """

    peer: Peer
    staging: Staging
    pace: Pace

    @property
    def clients(self) -> int:
        """How many client processes take part."""
        return self.staging.clients_for(self.pace)

    @property
    def seconds(self) -> float:
        """How long the peer makes calls, in seconds."""
        return self.staging.seconds(self.staging.terms_for(self.pace), self.pace)

    async def perform(self, trust: Trust, start: Start) -> tuple[Evidence, Mapping[str, str]]:
        """Run the trial; return the evidence, and the versions that the peer reported.

        Concurrent trials wait for each other at `start`, so that none is timed while another is loading.

        Raises:
            ProgramError: the peer violated its contract.
        """
        async with AsyncExitStack() as stack:
            loop = asyncio.get_running_loop()
            epoch = loop.time()
            labels = [f"client {number}" for number in range(1, self.clients + 1)] if self.clients > 1 else [""]
            servers = [await stack.enter_async_context(self._server(label, epoch, trust)) for label in labels]
            peers = await self._assemble(servers, trust, start, stack)
            dials = stack.enter_context(watch_dials(servers[0].port)) if self.staging.counts_refused else None
            began = wanted = loop.time() - epoch
            for peer in peers:
                await peer.begin()
            accounts = await self._play(servers, peers)
            timeline = replace(
                _merged([server.timeline() for server in servers]),
                lags=() if start.lags is None else start.lags.since(epoch + wanted, epoch),
                refused=None if dials is None else tuple(at - epoch for at in dials.seen),
            )
            settled = accounts is None
            if accounts is None:
                accounts = await _asked(peers)
        if isinstance(self.peer, PlainPeer):
            wanted = max(visits[0].accepted for visits in by_client(timeline.visits))  # none lags behind from here on
        evidence = Evidence(
            terms=self.staging.terms_for(self.pace),
            timeline=timeline,
            wanted=wanted,
            began=began,
            seconds=self.seconds,
            calls=None if isinstance(self.peer, PlainPeer) else _total([account.calls for account in accounts]),
            settled=timeline.taken if settled else None,
        )
        return evidence, accounts[0].versions if accounts else {}

    async def _play(
        self, servers: Sequence[FlakyServer], peers: Sequence[PeerProcess | PlainProcess]
    ) -> Sequence[Account] | None:
        """Return the peers' reports; None if verdicts were settled early, before the peers report."""
        told = asyncio.ensure_future(asyncio.gather(*(peer.account() for peer in peers)))
        settled = asyncio.create_task(self._direct(servers))
        either: set[asyncio.Future[Any]] = {told, settled}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if settled.done() and settled.result():  # raises our own error, if any
                return None
            return await told
        finally:
            await _end(either)

    def _server(self, label: str, epoch: float, trust: Trust) -> FlakyServer:
        script = self.staging.script(self.staging.terms_for(self.pace))
        tls = trust.tls if self.staging.trusted else trust.untrusted
        return FlakyServer(script, tls if self.staging.tls else None, client=label, epoch=epoch)

    def _process(self, server: FlakyServer, trust: Trust) -> PeerProcess | PlainProcess:
        settings, ca = self.staging.settings_for(self.peer, self.pace), trust.ca if self.staging.tls else None
        if isinstance(self.peer, PlainPeer):
            connected = functools.partial(server.wait_for, connections=1)
            return PlainProcess(self.peer, server.target, self.seconds, settings, ca, connected)
        return PeerProcess(self.peer, server.target, self.seconds, settings, ca)

    async def _assemble(
        self,
        servers: Sequence[FlakyServer],
        trust: Trust,
        start: Start,
        stack: AsyncExitStack,
    ) -> list[PeerProcess | PlainProcess]:
        """Return this trial's peers once those of all trials are ready. Failed peers do not delay others."""
        try:
            async with start.loading:
                processes: list[PeerProcess | PlainProcess] = [self._process(each, trust) for each in servers]
                for process in processes:
                    await stack.enter_async_context(process)
                for process in processes:
                    await process.ready()
        except ProgramError:
            await start.wait()
            raise
        await start.wait()
        return processes

    async def _direct(self, servers: Sequence[FlakyServer]) -> bool:
        """Start any second script. Wait for the connections that settle the verdicts; return False if none do."""
        await self._act(servers)
        if self.staging.settled is None:
            return False
        for server in servers:
            seen = len(server.timeline().visits) if self.staging.then else 0
            await server.wait_for(connections=seen + self.staging.settled)
        return True

    async def _act(self, servers: Sequence[FlakyServer]) -> None:
        """Wait until every client has been served for a while, then start the second script on all servers at once."""
        staging, terms = self.staging, self.staging.terms_for(self.pace)
        if staging.serves is None or staging.then is None:
            return
        for server in servers:
            await server.wait_for(connections=1)
        await asyncio.sleep(staging.serves(terms))
        for server in servers:
            server.play(staging.then(terms, self.pace))
            server.break_all()


async def _asked(peers: Iterable[PeerProcess | PlainProcess]) -> Sequence[Account]:
    """Return the reports of peers that are told to stop; none unless all can report."""
    given = await asyncio.gather(*(peer.stop() for peer in peers if isinstance(peer, PeerProcess)))
    accounts = [account for account in given if account is not None]
    return accounts if len(accounts) == len(given) else []


async def _end(tasks: Iterable[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _merged(timelines: Sequence[Timeline]) -> Timeline:
    """Merge the timelines of servers that share a clock."""
    visits = [visit for timeline in timelines for visit in timeline.visits]
    return Timeline(
        visits=tuple(sorted(visits, key=lambda visit: visit.accepted)),
        refusing=tuple(window for timeline in timelines for window in timeline.refusing),
        taken=max(timeline.taken for timeline in timelines),
    )


def _total(calls: Sequence[Calls]) -> Calls:
    return Calls(
        made=sum(each.made for each in calls),
        ok=sum(each.ok for each in calls),
        failed=dict(sum((Counter(each.failed) for each in calls), Counter())),
        unfinished=sum(each.unfinished for each in calls),
    )
