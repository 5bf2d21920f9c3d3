"""The server program for grpcio. `interop/grpc_judge/servers/README.md` specifies what the program does."""

from __future__ import annotations

import asyncio
import json
import platform
import signal

import click
import grpc
import grpc.aio

DRAIN = 15.0  # seconds that running calls may continue after SIGTERM


class EmptyCall(grpc.GenericRpcHandler):
    """Handles EmptyCall without generated code: it takes and returns an empty message."""

    def service(self, handler_call_details):
        if handler_call_details.method != "/grpc.testing.TestService/EmptyCall":
            return None
        delay = float(dict(handler_call_details.invocation_metadata).get("answer-after-ms", 0)) / 1000

        async def answer(request, _context):
            await asyncio.sleep(delay)
            return request

        return grpc.unary_unary_rpc_method_handler(answer)


async def serve(port, age_ms, grace_ms):
    ages = [("grpc.max_connection_age_ms", age_ms), ("grpc.max_connection_age_grace_ms", grace_ms)]
    server = grpc.aio.server(options=ages if age_ms else [])
    server.add_generic_rpc_handlers([EmptyCall()])
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    await server.start()
    versions = {"grpcio": grpc.__version__, "python": platform.python_version()}
    click.echo(json.dumps({"event": "listening", "port": port, "versions": versions}))
    await told.wait()
    await server.stop(DRAIN)


@click.command()
@click.option("--port", type=int, required=True)
@click.option("--max-age-ms", type=int)
@click.option("--grace-ms", type=int, default=1000)
def main(port, max_age_ms, grace_ms):
    asyncio.run(serve(port, max_age_ms, grace_ms))


if __name__ == "__main__":
    main()
