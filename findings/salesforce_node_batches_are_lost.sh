#!/usr/bin/env bash
# Once its stream has failed, Salesforce's Pub/Sub client for Node.js loses all later batches, and calls them sent.
#
# Versions: salesforce-pubsub-api-client 5.5.2 with @grpc/grpc-js 1.14.7 and avro-js 1.12.1 (npm); Node.js 20 or newer,
# Linux. `publishBatch` publishes "a batch of events using the gRPC client's publish stream", and calls back for each
# response, error and status. A server with the API's methods answers the first batch, and fails the stream at the
# second one with UNAVAILABLE, as a restart would. The program goes on with four batches, then publishes one event by
# itself with `publish`, and a batch with a second client.
#
# Seen: the callback gets the first batch's response, and the error of the second one. Each later batch resolves like
# those two, and nothing else happens: the server gets no stream and no event, and the callback is not called any more.
# The client keeps the topic's stream after it has failed, and writes into it for the rest of its life. The event by
# itself arrives, and so does the second client's batch: the server would take them all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --prefix "$folder" salesforce-pubsub-api-client@5.5.2 \
  @grpc/grpc-js@1.14.7 @grpc/proto-loader@0.8.1 avro-js@1.12.1 >&2
openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 3 -subj /CN=localhost 2>/dev/null
cat > see.mjs <<'JAVASCRIPT'
import fs from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";
import PubSubApiClient from "salesforce-pubsub-api-client";

const proto = protoLoader.loadSync("node_modules/salesforce-pubsub-api-client/pubsub_api.proto");
const { PubSub } = grpc.loadPackageDefinition(proto).eventbus.v1;
const schemaJson = JSON.stringify({ type: "record", name: "Event", fields: [{ name: "n", type: "int" }] });
const at_server = [];
const called = [];
let streams = 0;

const answer = (events) => ({ results: events.map(({ id }) => ({ replayId: Buffer.alloc(8), correlationKey: id })) });
const server = new grpc.Server();
server.addService(PubSub.service, {
  GetTopic: (call, callback) => callback(null, { topicName: call.request.topicName, schemaId: "1", canPublish: true }),
  GetSchema: (call, callback) => callback(null, { schemaId: "1", schemaJson }),
  Publish: (call, callback) => {
    at_server.push("alone");
    callback(null, answer(call.request.events));
  },
  PublishStream: (call) => {
    streams += 1;
    call.on("data", ({ events }) => {
      at_server.push("batch");
      if (at_server.length === 2) call.emit("error", { code: grpc.status.UNAVAILABLE, details: "restart" });
      else call.write(answer(events));
    });
  },
});
const pair = { private_key: fs.readFileSync("key.pem"), cert_chain: fs.readFileSync("cert.pem") };
const credentials = grpc.ServerCredentials.createSsl(null, [pair]);
const port = await new Promise((resolve, reject) => {
  server.bindAsync("localhost:0", credentials, (error, port) => (error ? reject(error) : resolve(port)));
});
const ignore = () => {};
const quiet = { debug: ignore, info: ignore, warn: ignore, error: ignore };

async function connect() {
  const client = new PubSubApiClient(
    {
      authType: "user-supplied",
      accessToken: "token",
      instanceUrl: "https://localhost",
      organizationId: "0".repeat(15),
      pubSubEndpoint: `localhost:${port}`,
      rejectUnauthorizedSsl: false,
    },
    quiet,
  );
  await client.connect();
  return client;
}

/** Publish a batch, and wait until something is called, or for two seconds; return how the promise ends. */
async function publish(client, name) {
  const before = called.length;
  const callback = (info, type, data) => called.push([name, type, data?.code ?? null]);
  const end = await client
    .publishBatch("/event/Event", [{ payload: { n: 1 } }], callback)
    .then(() => "resolved", (error) => String(error));
  for (let i = 0; i < 20 && called.length === before; i++) await sleep(100);
  await sleep(500);
  return end;
}

const client = await connect();
const ends = [];
for (let i = 1; i <= 6; i++) ends.push(await publish(client, i));
const before = { streams, at_server: [...at_server] };
await client.publish("/event/Event", { n: 1 });
const other = await publish(await connect(), "other");
console.log("promises of six batches:", ends.join(" "));
console.log("callbacks:", JSON.stringify(called));
console.log("at the server after six batches:", JSON.stringify(before), "in the end:", JSON.stringify(at_server));
const right =
  ends.every((end) => end === "resolved") &&
  JSON.stringify(called.filter(([name]) => name !== "other")) ===
    JSON.stringify([[1, "publishResponse", null], [2, "error", 14], [2, "grpcStatus", 14]]) &&
  before.streams === 1 &&
  before.at_server.length === 2 &&
  at_server.join() === "batch,batch,alone,batch" &&
  other === "resolved" &&
  called.some(([name, type]) => name === "other" && type === "publishResponse");
process.exit(right ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 90 node see.mjs
