#!/usr/bin/env bash
# In grpc-js and Mali servers, a helper program that exits with 1 makes its call CANCELLED, and 14 makes it UNAVAILABLE.
#
# Versions: @grpc/grpc-js 1.14.7 with @grpc/proto-loader 0.7.15, Mali 0.47.1 (npm); Node.js 20 or newer, Linux. gRPC's
# guide says that a call whose server throws ends with UNKNOWN (grpc.io/docs/guides/error). A handler of grpc-js gives
# its errors to the callback; Mali's may throw. Handlers await things that fail: a program run with `execFile`, `atob`,
# `readFile`, `JSON.parse`, and a `fetch` with `AbortSignal.timeout`. The client's retry policy repeats UNAVAILABLE, up
# to three attempts.
#
# Seen: with both servers, the program's exit status is the call's status: 1, the usual one for failure, is CANCELLED,
# as if the caller had cancelled; 4 is DEADLINE_EXCEEDED, and 14 is UNAVAILABLE, for which the client runs the program
# three times. Text that is not Base64 is NOT_FOUND, and the timeout of `fetch` is 23, which is no status of gRPC. Only
# the others are UNKNOWN. grpc-js takes any whole number in the `code` of an error for a status, and the errors of child
# processes and the web's DOMException have such numbers of their own. So what callers repeat, count or ignore depends
# on a number that says something else.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(@grpc/grpc-js@1.14.7 @grpc/proto-loader@0.7.15 mali@0.47.1)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/a.proto" <<'PROTO'
syntax = "proto3";
package a;
service B {
  rpc C(Work) returns (Work);
}
message Work {
  string name = 1;
}
PROTO
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import Mali from "mali";

const proto = process.argv[2];
const { B } = grpc.loadPackageDefinition(loadSync(proto)).a;
const silent = createServer(() => {});
await new Promise((resolve) => silent.listen(0, "127.0.0.1", resolve));
const exit = (status) => promisify(execFile)("sh", ["-c", `exit ${status}`]);
const works = {
  "exit 1": () => exit(1),
  "exit 4": () => exit(4),
  "exit 14": () => exit(14),
  atob: () => atob("*"),
  fetch: () => fetch(`http://127.0.0.1:${silent.address().port}`, { signal: AbortSignal.timeout(50) }),
  readFile: () => readFile(`${proto}/none`),
  "JSON.parse": () => JSON.parse("{"),
};
let runs;
const work = async (name) => {
  runs += 1;
  await works[name]();
  return {};
};

const server = new grpc.Server();
server.addService(B.service, {
  C: (call, callback) => {
    work(call.request.name).then((response) => callback(null, response), callback);
  },
});
const ports = {};
ports["grpc-js"] = await promisify(server.bindAsync.bind(server))(
  "127.0.0.1:0",
  grpc.ServerCredentials.createInsecure(),
);
const app = new Mali(proto, "B");
app.silent = true;
app.use({
  C: async (context) => {
    context.res = await work(context.req.name);
  },
});
await app.start("127.0.0.1:0");
ports.mali = app.ports[0];

const retryPolicy = {
  maxAttempts: 3,
  initialBackoff: "0.05s",
  maxBackoff: "0.1s",
  backoffMultiplier: 1,
  retryableStatusCodes: ["UNAVAILABLE"],
};
const config = { loadBalancingConfig: [], methodConfig: [{ name: [{}], retryPolicy }] };
const options = { "grpc.service_config": JSON.stringify(config) };
const expected = {
  "exit 1": "CANCELLED, 1 run",
  "exit 4": "DEADLINE_EXCEEDED, 1 run",
  "exit 14": "UNAVAILABLE, 3 runs",
  atob: "NOT_FOUND, 1 run",
  fetch: "23, 1 run",
  readFile: "UNKNOWN, 1 run",
  "JSON.parse": "UNKNOWN, 1 run",
};
let same = true;
for (const [name, port] of Object.entries(ports)) {
  const client = new B(`127.0.0.1:${port}`, grpc.credentials.createInsecure(), options);
  for (const call of Object.keys(works)) {
    runs = 0;
    const error = await new Promise((resolve) => client.C({ name: call }, resolve));
    const seen = `${grpc.status[error?.code] ?? error?.code}, ${runs} run${runs === 1 ? "" : "s"}`;
    console.log(`${name}, ${call}: ${seen}`);
    same &&= seen === expected[call];
  }
}
process.exit(same ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 node "$folder/see.mjs" "$folder/a.proto"
