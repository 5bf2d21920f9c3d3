#!/usr/bin/env bash
# In grpcio a pushback of "5s" makes any call INTERNAL, also one that succeeded, and grpc-js retries 5 ms after it.
#
# Versions: @grpc/grpc-js 1.14.7 (npm), grpcio 1.85.3; Python 3.11 or newer, Node.js 20 or newer, Linux. gRFC A6 has
# `grpc-retry-pushback-ms` in whole milliseconds, and no retry if it is negative or cannot be parsed. A server of
# grpc-js ends each call with UNAVAILABLE and a pushback, and notes when the attempts come. A client of grpcio and one
# of grpc-js call it with the same service config: three attempts, 0.4 s apart. Last, the server answers a call, and
# sends "5s" in the trailers as well.
#
# Seen: both wait for a second if the pushback is 1000, and neither retries if it is -1. If it cannot be parsed, grpcio
# does not retry, but the call fails with INTERNAL "Stream removed (Error parsing 'grpc-retry-pushback-ms' metadata)",
# so that the caller learns neither the status nor the message of the server, nor that the last call has succeeded.
# grpc-js takes the digits at the beginning for milliseconds, so "5s" is 5 ms and "2.5" is 2 ms, and a value without
# any, such as "off", for no wait: the server that asks to be left alone gets all three attempts at once.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" @grpc/grpc-js@1.14.7 >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
cat > "$folder/call.py" <<'PYTHON'
import sys
import grpc

with grpc.insecure_channel(sys.argv[1], options=[("grpc.service_config", sys.argv[2])]) as channel:
    call = channel.unary_unary("/a.B/C").future(sys.argv[3].encode(), timeout=20)
    call.exception()
print(call.code().name, call.details())
PYTHON
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { Client, Metadata, Server, ServerCredentials, credentials, status } from "@grpc/grpc-js";

const folder = process.argv[2];
const asIs = (bytes) => bytes;
const method = { path: "/a.B/C", requestStream: false, responseStream: false };
const codec = { requestDeserialize: asIs, requestSerialize: asIs, responseDeserialize: asIs, responseSerialize: asIs };
const pauses = { initialBackoff: "0.4s", maxBackoff: "0.4s", backoffMultiplier: 1 };
const retryPolicy = { maxAttempts: 3, ...pauses, retryableStatusCodes: ["UNAVAILABLE"] };
const methodConfig = [{ name: [{}], retryPolicy }];
const config = JSON.stringify({ loadBalancingConfig: [{ pick_first: {} }], methodConfig });
let pushback;
let times = [];

function answer(call, callback) {
  times.push(performance.now());
  const metadata = new Metadata();
  if (pushback) {
    metadata.set("grpc-retry-pushback-ms", pushback);
  }
  if (call.request.equals(Buffer.from("good"))) {
    callback(null, Buffer.alloc(0), metadata);
  } else {
    callback({ code: status.UNAVAILABLE, details: "no", metadata });
  }
}

const server = new Server();
server.addService({ C: { ...method, ...codec } }, { C: answer });
const port = await promisify(server.bindAsync.bind(server))("127.0.0.1:0", ServerCredentials.createInsecure());
const target = `127.0.0.1:${port}`;

async function callGrpcJs(text) {
  const client = new Client(target, credentials.createInsecure(), { "grpc.service_config": config });
  const request = promisify(client.makeUnaryRequest.bind(client));
  const good = { code: status.OK, details: "" };
  const error = await request(method.path, asIs, asIs, Buffer.from(text)).then(() => good, (error) => error);
  client.close();
  return `${status[error.code]} ${error.details}`.trim();
}

async function callGrpcio(text) {
  const words = [`${folder}/call.py`, target, config, text];
  const { stdout } = await promisify(execFile)(`${folder}/venv/bin/python`, words);
  return stdout.trim();
}

const gaps = { none: [0, 150], policy: [250, 750], second: [950, 1600] };
// Pushback -> the gaps of two retries with grpcio and with grpc-js, if they retry.
const unparsable = ["5s", "2.5", "off"];
const expected = [
  [undefined, "policy", "policy"],
  ["1000", "second", "second"],
  ["-1", undefined, undefined],
  ...unparsable.map((value) => [value, undefined, "none"]),
];
let right = true;
for (const [value, ...kinds] of expected) {
  pushback = value;
  for (const [i, call] of [callGrpcio, callGrpcJs].entries()) {
    times = [];
    const end = await call("bad");
    const seen = times.slice(1).map((time, j) => time - times[j]);
    const shown = seen.map((gap) => `${gap.toFixed(0)} ms`).join(" and ");
    console.log(`pushback ${value}, ${call.name}: ${shown ? `retries after ${shown}` : "no retry"}, ${end}`);
    const [least, most] = gaps[kinds[i]] ?? [];
    right &&= seen.length === (kinds[i] ? 2 : 0) && seen.every((gap) => least <= gap && gap <= most);
    const lost = call === callGrpcio && unparsable.includes(value);
    right &&= lost ? end.startsWith("INTERNAL ") && end.includes("Error parsing") : end === "UNAVAILABLE no";
  }
}
pushback = "5s";
const ends = [await callGrpcio("good"), await callGrpcJs("good")];
console.log(`success with pushback 5s: grpcio ${ends[0]}, grpc-js ${ends[1]}`);
right &&= ends[0].startsWith("INTERNAL ") && ends[1] === "OK";
process.exit(right ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY node "$folder/see.mjs" "$folder"
