#!/usr/bin/env bash
# A durabletask worker for Node.js that starts before its server stays idle; one stopped during an outage works again.
#
# Versions: @microsoft/durabletask-js 0.4.0 with @grpc/grpc-js 1.14.7 and google-protobuf 3.21.4 (npm); Node.js 20 or
# newer, Linux. A worker opens a stream of work (GetWorkItems) when it starts. If the stream breaks, it opens it anew,
# with an exponential backoff of one to thirty seconds. `stop` is documented to "stop the worker and wait for any
# pending work items". A server with the protocol gives each stream one activity to run. One worker is started two
# seconds before its server, and gets ten more. Another one has its server restarted while it runs, and is stopped as
# the server comes back from a longer outage.
#
# Seen: `start` of the first worker resolves, but it never opens a stream: a first connection that fails is logged, not
# repeated. The second worker opens its stream again after the restart, as it should, and also after `stop`: the backoff
# that ran goes on, and nothing looks whether the worker is still wanted. It runs the activity of that stream, seconds
# after `stop` has resolved. So where a worker and its sidecar start together, chance decides whether it ever works, and
# a worker that is stopped in an outage takes work again while its program shuts down what the work needs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(@microsoft/durabletask-js@0.4.0 @grpc/grpc-js@1.14.7 google-protobuf@3.21.4)
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { TaskHubGrpcWorker } from "@microsoft/durabletask-js";
import services from "@microsoft/durabletask-js/dist/proto/orchestrator_service_grpc_pb.js";
import messages from "@microsoft/durabletask-js/dist/proto/orchestrator_service_pb.js";
import empty from "google-protobuf/google/protobuf/empty_pb.js";

let streams = 0;
let runs = 0;
let warnings = 0; // one for each wait before a retry

const hello = (call, callback) => callback(null, new empty.Empty());
const completeActivityTask = (call, callback) => callback(null, new messages.CompleteTaskResponse());

function getWorkItems(call) {
  streams += 1;
  const instance = new messages.OrchestrationInstance();
  instance.setInstanceid("a");
  const request = new messages.ActivityRequest();
  request.setName("work");
  request.setTaskid(1);
  request.setOrchestrationinstance(instance);
  const item = new messages.WorkItem();
  item.setActivityrequest(request);
  call.write(item);
}

async function serve(port) {
  const server = new Server();
  server.addService(services.TaskHubSidecarServiceService, { hello, getWorkItems, completeActivityTask });
  const bind = promisify(server.bindAsync.bind(server));
  return [server, await bind(`127.0.0.1:${port}`, ServerCredentials.createInsecure())];
}

function makeWorker() {
  const note = (message) => (warnings += /retr[yi]/i.test(message) ? 1 : 0);
  const logger = { error() {}, warn: note, info: note, debug() {} };
  const worker = new TaskHubGrpcWorker({ hostAddress: `127.0.0.1:${port}`, logger });
  worker.addNamedActivity("work", () => (runs += 1));
  return worker;
}

/** Wait up to some seconds until there are so many, and return whether there are. */
async function until(seconds, condition) {
  for (const end = performance.now() + seconds * 1000; performance.now() < end && !condition(); ) await sleep(20);
  return condition();
}

let [server, port] = await serve(0);
server.forceShutdown();
const early = makeWorker();
await early.start();
await sleep(2000);
[server] = await serve(port);
await sleep(10_000);
const idle = streams;
await early.stop();
console.log(`the worker that started first opens ${idle} streams`);

const worker = makeWorker();
await worker.start();
const begins = await until(10, () => streams === 1 && runs === 1);
server.forceShutdown();
[server] = await serve(port);
const again = await until(20, () => streams === 2 && runs === 2);
warnings = 0;
server.forceShutdown();
const waits = await until(20, () => warnings === 3); // the stream has broken, and two connections have failed
[server] = await serve(port);
await worker.stop();
const stopped = streams === 2 && runs === 2;
const zombie = await until(10, () => streams === 3 && runs === 3);
console.log(`the other one: begins ${begins}, again after a restart ${again}, again after stop ${zombie}`);
process.exit(idle === 0 && begins && again && waits && stopped && zombie ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 120 node "$folder/see.mjs"
