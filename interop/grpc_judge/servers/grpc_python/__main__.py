"""The server program for grpcio. `servers/README.md` specifies what the program does."""

from __future__ import annotations

import asyncio
import signal

import grpc
import grpc.aio

from grpc_judge.servers.server_program import HOST, ServeOrder, command, end_with_input, say_listening

_DRAIN = 15.0
"""How long running calls may continue after SIGTERM, in seconds."""


class _EmptyCall(grpc.GenericRpcHandler):
    """Handles EmptyCall without generated code: it takes and returns an empty message."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        if handler_call_details.method != "/grpc.testing.TestService/EmptyCall":
            return None
        delay = float(dict(handler_call_details.invocation_metadata).get("answer-after-ms", 0)) / 1000

        async def answer(request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            await asyncio.sleep(delay)
            return request

        return grpc.unary_unary_rpc_method_handler(answer)


def _options(order: ServeOrder) -> list[tuple[str, int]]:
    if order.max_age_ms is None:
        return []
    return [
        ("grpc.max_connection_age_ms", order.max_age_ms),
        ("grpc.max_connection_age_grace_ms", order.grace_ms),
    ]


async def _serve(order: ServeOrder) -> None:
    server = grpc.aio.server(options=_options(order))
    server.add_generic_rpc_handlers([_EmptyCall()])
    port = server.add_insecure_port(f"{HOST}:{order.port}")
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    await server.start()
    say_listening(port, grpcio=grpc.__version__)
    await told.wait()
    await server.stop(_DRAIN)


@command
def main(order: ServeOrder) -> None:
    """Serve until SIGTERM."""
    end_with_input()
    asyncio.run(_serve(order))


if __name__ == "__main__":
    main()
