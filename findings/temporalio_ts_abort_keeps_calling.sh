#!/usr/bin/env bash
# An abort signal does not end a call that @temporalio/client retries: all ten attempts follow, and no error says abort.
#
# Versions: @temporalio/client 1.24.0 with @grpc/grpc-js 1.14.7 (npm) for a server with one of Temporal's methods;
# Node.js 20 or newer, Linux. `Connection.withAbortSignal` is documented to set a signal that "cancels any ongoing
# service requests", and its example says "throws if incomplete by the timeout". A connection has retries by default. A
# server answers a count of workflows after a second, or fails it at once with UNAVAILABLE. The client counts with a
# signal that is aborted after 0.5 s: once at each server, and once with `withDeadline` of 0.5 s instead.
#
# Seen: if the server is slow, the call ends after 0.5 s with CANCELLED. If it fails, the client goes on: two or three
# calls before the abort, ten in all, and UNAVAILABLE after 16 to 24 s, as if there had been no signal. The signal
# cancels the first call alone, which is over. With the deadline the call ends with DEADLINE_EXCEEDED, but only when the
# backoff that runs is over, which with the later ones is up to 6 s. So a shutdown or a web request that is given up
# waits for 20 s, and keeps calling a server that is in trouble.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(@temporalio/client@1.24.0 @grpc/grpc-js@1.14.7)
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { promisify } from "node:util";
import { Server, ServerCredentials, status } from "@grpc/grpc-js";
import { Connection } from "@temporalio/client";

const path = "/temporal.api.workflowservice.v1.WorkflowService/CountWorkflowExecutions";
const asIs = (bytes) => bytes;
const codec = { requestDeserialize: asIs, requestSerialize: asIs, responseDeserialize: asIs, responseSerialize: asIs };
let slow;
let calls;

function count(call, callback) {
  calls.push(performance.now());
  if (slow) setTimeout(() => callback(null, Buffer.alloc(0)), 1000);
  else callback({ code: status.UNAVAILABLE, details: "no" });
}

const server = new Server();
server.addService({ C: { path, requestStream: false, responseStream: false, ...codec } }, { C: count });
const port = await promisify(server.bindAsync.bind(server))("127.0.0.1:0", ServerCredentials.createInsecure());
const connection = Connection.lazy({ address: `127.0.0.1:${port}` });
const call = () => connection.workflowService.countWorkflowExecutions({ namespace: "a" });

/** Return the status of the call, after how many seconds it ends, and all calls and those within 0.6 s. */
async function see(name, isSlow, make) {
  slow = isSlow;
  calls = [];
  const start = performance.now();
  const end = await make().then(() => "OK", (error) => status[error.code]);
  const seconds = Math.round((performance.now() - start) / 100) / 10;
  const soon = calls.filter((time) => time < start + 600).length;
  console.log(`${name}: ${end} after ${seconds} s, ${calls.length} calls, ${soon} of them within 0.6 s`);
  return { end, seconds, calls: calls.length, soon };
}

await see("without a signal, slow", true, call);
const aborted = (make) => connection.withAbortSignal(AbortSignal.timeout(500), make);
const one = await see("aborted, slow", true, () => aborted(call));
const all = await see("aborted, failing", false, () => aborted(call));
const late = await see("deadline, failing", false, () => connection.withDeadline(Date.now() + 500, call));
const ends = one.end === "CANCELLED" && one.seconds < 0.9 && late.end === "DEADLINE_EXCEEDED" && late.calls < 10;
process.exit(ends && all.end === "UNAVAILABLE" && all.calls === 10 && all.soon < 5 && all.seconds > 12 ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY node "$folder/see.mjs"
