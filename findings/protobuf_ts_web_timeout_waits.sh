#!/usr/bin/env bash
# A `timeout` of protobuf-ts's gRPC-Web transport ends no call: if the server does not answer, the caller waits on.
#
# Versions: @protobuf-ts/grpcweb-transport, runtime and runtime-rpc 2.11.1 (npm); Node.js 20 or newer, Linux. The option
# `timeout` is documented as "Timeout for the call in milliseconds", or as a deadline if it is a Date. gRPC's guide says
# that a client's call ends with DEADLINE_EXCEEDED at its deadline (grpc.io/docs/guides/deadlines). An HTTP server reads
# each request and does not answer, as a proxy does whose server has frozen. The client calls it with a timeout of
# 0.5 s, with a deadline in 0.5 s, with a signal of `AbortSignal.timeout(500)` as `abort`, and with a signal that a
# program aborts after 0.5 s.
#
# Seen: the header grpc-timeout arrives in both calls that have one, and both still wait after 5 s: the transport leaves
# the time to the server. `AbortSignal.timeout` ends the call after 0.5 s, but with INTERNAL, the status of a broken
# server; only the program's own abort is CANCELLED. So the option helps as long as the server is well, and a policy
# that looks for DEADLINE_EXCEEDED never sees it when the network or the server is gone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(@protobuf-ts/grpcweb-transport@2.11.1 @protobuf-ts/runtime@2.11.1 @protobuf-ts/runtime-rpc@2.11.1)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { GrpcWebFetchTransport } from "@protobuf-ts/grpcweb-transport";
import { MessageType } from "@protobuf-ts/runtime";
import { ServiceType } from "@protobuf-ts/runtime-rpc";

const Empty = new MessageType("a.Empty", []);
const service = new ServiceType("a.B", [{ name: "C", I: Empty, O: Empty, options: {} }]);
let header;
const server = http.createServer((request) => {
  header = request.headers["grpc-timeout"];
  request.resume();
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const transport = new GrpcWebFetchTransport({ baseUrl: `http://127.0.0.1:${server.address().port}` });

/** Return how a call with these options ends within 5 s, and whether the server got a timeout. */
async function call(options) {
  header = undefined;
  const ended = transport.unary(service.methods[0], {}, transport.mergeOptions(options)).then(
    () => "OK",
    (error) => error.code,
  );
  const end = await Promise.race([ended, sleep(5000, "waits")]);
  return [end, header !== undefined];
}

const program = new AbortController();
const aborted = call({ abort: program.signal });
setTimeout(() => program.abort(), 500);
const seen = {
  program: await aborted,
  timeout: await call({ timeout: 500 }),
  deadline: await call({ timeout: new Date(Date.now() + 500) }),
  signal: await call({ abort: AbortSignal.timeout(500) }),
};
console.log(JSON.stringify(seen));
const waits = '"timeout":["waits",true],"deadline":["waits",true]';
process.exit(JSON.stringify(seen) === `{"program":["CANCELLED",false],${waits},"signal":["INTERNAL",false]}` ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY node "$folder/see.mjs"
