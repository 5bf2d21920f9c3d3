#!/usr/bin/env bash
# protobuf-ts makes a gRPC call whose abort signal is aborted already, and the server runs it to the end.
#
# Versions: @protobuf-ts/grpc-transport, runtime and runtime-rpc 2.11.1 with @grpc/grpc-js 1.14.7 (npm); Node.js 20 or
# newer. The option `abort` is "a signal to cancel a call". For a signal that is aborted before the operation begins,
# the DOM standard says to reject at once and do nothing ("Using AbortController and AbortSignal objects in APIs");
# `fetch` does that, and so does protobuf-ts's gRPC-Web transport. A call of 0.2 s is made twice: with a signal that is
# aborted 50 ms later, and with one that has been aborted before.
#
# Seen: the first ends with CANCELLED. The second reaches the server and succeeds: OK. So a loop of retries that shares
# one signal, such as a page's or a shutdown's, goes on making calls after it, each of which runs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(@protobuf-ts/grpc-transport@2.11.1 @protobuf-ts/runtime@2.11.1 @protobuf-ts/runtime-rpc@2.11.1)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" @grpc/grpc-js@1.14.7 >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { ChannelCredentials, Server, ServerCredentials } from "@grpc/grpc-js";
import { GrpcTransport } from "@protobuf-ts/grpc-transport";
import { MessageType } from "@protobuf-ts/runtime";
import { ServiceType } from "@protobuf-ts/runtime-rpc";

const Empty = new MessageType("a.Empty", []);
const service = new ServiceType("a.B", [{ name: "C", I: Empty, O: Empty, options: {} }]);
const asIs = (bytes) => bytes;
const method = { path: "/a.B/C", requestStream: false, responseStream: false };
const codec = { requestDeserialize: asIs, requestSerialize: asIs, responseDeserialize: asIs, responseSerialize: asIs };
let runs = 0;

function answer(call, callback) {
  runs += 1;
  setTimeout(() => callback(null, Buffer.alloc(0)), 200);
}

const server = new Server();
server.addService({ C: { ...method, ...codec } }, { C: answer });
const port = await new Promise((resolve, reject) => {
  const done = (error, bound) => (error ? reject(error) : resolve(bound));
  server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), done);
});
const channelCredentials = ChannelCredentials.createInsecure();
const transport = new GrpcTransport({ host: `127.0.0.1:${port}`, channelCredentials });

/** Return the end of a call with this signal, and how often the server has run it. */
async function call(signal) {
  runs = 0;
  try {
    const { status } = await transport.unary(service.methods[0], {}, transport.mergeOptions({ abort: signal }));
    return [status.code, runs];
  } catch (error) {
    return [error.code, runs];
  }
}

await call(undefined);
const seen = { later: await call(AbortSignal.timeout(50)), before: await call(AbortSignal.abort()) };
console.log(JSON.stringify(seen));
process.exit(seen.later[0] === "CANCELLED" && JSON.stringify(seen.before) === '["OK",1]' ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY node "$folder/see.mjs"
