// Serves EmptyCall with Node's own HTTP/2. servers/README.md documents its arguments and output.

import * as http2 from "node:http2";
import { parseArgs } from "node:util";

const DRAIN_MS = 30_000;

// An empty message: not compressed, no bytes.
const EMPTY = Buffer.alloc(5);

function answer(stream, headers) {
  stream.on("error", () => {}); // the client has cancelled the call
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  stream.resume().on("end", () => {
    setTimeout(() => {
      if (stream.destroyed) return;
      stream.respond(
        { ":status": 200, "content-type": "application/grpc" },
        { waitForTrailers: true },
      );
      stream.end(EMPTY);
    }, Number(headers["answer-after-ms"] ?? 0));
  });
}

const { values } = parseArgs({
  options: { port: { type: "string", default: "0" } },
});
const server = http2.createServer().on("stream", answer);

process.once("SIGTERM", () => {
  server.close(() => process.exit(0));
  setTimeout(() => process.exit(0), DRAIN_MS);
});
process.stdin.once("end", () => process.exit(0)).resume();

server.listen(Number(values.port), "127.0.0.1", () => {
  const versions = { node: process.versions.node };
  const { port } = server.address();
  console.log(JSON.stringify({ event: "listening", port, versions }));
});
