#!/usr/bin/env bash
# A process that takes longer than its `requestTimeout` is started anew by Camunda's Node.js SDK, without an end.
#
# Versions: @camunda8/sdk 8.8.13, @grpc/grpc-js 1.14.7 (npm) for a gateway with Zeebe's protocol; Node.js 20 or newer,
# Linux. `createProcessInstanceWithResult` documents `requestTimeout` as a "timeout in milliseconds. the request will be
# closed if the process is not completed before". The comment on `executeOperation` has retries for gRPC's code 14;
# `ZEEBE_GRPC_CLIENT_RETRY`, on by default, is documented for "network conditions or broker backpressure", where
# "retries back off to this maximum period. Defaults to 10s". A gateway starts an instance for each call, and ends the
# call with DEADLINE_EXCEEDED once the `requestTimeout` of 0.5 s has passed, as the process still runs. It refuses each
# message that is published with RESOURCE_EXHAUSTED. Clients with several settings start a process and publish one
# message each, and 14 s pass.
#
# Seen: without retries, one instance is started and the caller gets error 4 after 0.5 s. With the defaults, the caller
# gets nothing, and an instance is started every 1.5 s: `retryOnFailure` takes code 4 for backpressure and repeats it
# for ever. Each of them runs, so a slow order is carried out again and again. The retries of the message do not back
# off: they come every second, for `forever` without a number of retries leaves promise-retry one pause, the shortest.
# With three retries the pauses are 1, 2 and 4 s, and then the caller gets the error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(@camunda8/sdk@8.8.13 @grpc/grpc-js@1.14.7 @grpc/proto-loader@0.8.1)
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import path from "node:path";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { Server, ServerCredentials, loadPackageDefinition, status } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { Camunda8 } from "@camunda8/sdk";

const sdk = path.dirname(createRequire(import.meta.url).resolve("@camunda8/sdk"));
const definition = loadSync(path.join(sdk, "proto/zeebe.proto"), { keepCase: true, longs: Number });
const { Gateway } = loadPackageDefinition(definition).gateway_protocol;
const calls = {}; // by name: when each call begins, in seconds

function note(name) {
  calls[name] = [...(calls[name] ?? []), performance.now() / 1000];
}

const methods = {
  Topology: (call, callback) => callback(null, {}),
  CreateProcessInstanceWithResult: ({ request }, callback) => {
    note(request.request.bpmnProcessId);
    setTimeout(callback, request.requestTimeout, { code: status.DEADLINE_EXCEEDED, details: "it still runs" });
  },
  PublishMessage: ({ request }, callback) => {
    note(request.name);
    callback({ code: status.RESOURCE_EXHAUSTED, details: "backpressure" });
  },
};

const server = new Server();
server.addService(Gateway.service, methods);
const port = await promisify(server.bindAsync.bind(server))("127.0.0.1:0", ServerCredentials.createInsecure());
const address = { ZEEBE_GRPC_ADDRESS: `grpc://127.0.0.1:${port}`, CAMUNDA_AUTH_STRATEGY: "NONE" };

function connect(settings) {
  const zeebeGrpcSettings = { ZEEBE_CLIENT_LOG_LEVEL: "NONE", ...settings };
  return new Camunda8({ ...address, zeebeGrpcSettings }).getZeebeGrpcApiClient();
}

const clients = {
  defaults: connect({}),
  "no retries": connect({ ZEEBE_GRPC_CLIENT_RETRY: false }),
  "three retries": connect({ ZEEBE_GRPC_CLIENT_MAX_RETRIES: 3 }),
};
const ends = {}; // by name: the code of the error that the caller gets
const result = (code) => (error) => (ends[code] = error.code);
for (const [name, client] of Object.entries(clients)) {
  const [process, message] = [`process, ${name}`, `message, ${name}`];
  const wanted = { bpmnProcessId: process, variables: {}, requestTimeout: 500 };
  client.createProcessInstanceWithResult(wanted).catch(result(process));
  const published = { name: message, correlationKey: "a", variables: {}, timeToLive: 0 };
  client.publishMessage(published).catch(result(message));
}
await sleep(14000);
const pauses = (times) => times.slice(1).map((time, index) => (time - times[index]).toFixed(1));
for (const [name, times] of Object.entries(calls)) {
  console.log(`${name}: ${times.length} calls, ${pauses(times)} s apart; error: ${ends[name] ?? "none, it waits"}`);
}
const once = calls["process, no retries"].length === 1 && ends["process, no retries"] === status.DEADLINE_EXCEEDED;
const again = calls["process, defaults"].length >= 5 && !("process, defaults" in ends);
const steady = pauses(calls["message, defaults"]);
const growing = pauses(calls["message, three retries"]);
const flat = steady.length >= 6 && Math.max(...steady) < 2.5 && !("message, defaults" in ends);
const grows = growing.length === 3 && growing[2] > 3.5 && ends["message, three retries"] === status.RESOURCE_EXHAUSTED;
process.exit(once && again && flat && grows ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY node "$folder/see.mjs"
