#!/usr/bin/env bash
# A call of grpc-web whose deadline has passed runs without any deadline, and one that has 0.1 s waits for a second.
#
# Versions: grpc-web 2.1.1 with xhr2 0.2.1 for XMLHttpRequest (npm), @grpc/grpc-js 1.14.7 to compare; Node.js 20 or
# newer, Linux. grpc-web takes a deadline as the metadata `deadline`, a time in milliseconds; gRPC's guide says that a
# call ends with DEADLINE_EXCEEDED at its deadline. A server of each protocol answers each call after three seconds and
# notes the header grpc-timeout; nothing but the client ends a call. Both clients call with deadlines in 10 s and in
# 0.1 s, and with one that passed a second ago.
#
# Seen: with 10 s, both calls succeed after 3 s. With 0.1 s, grpc-js's call ends after 0.1 s and grpc-web's after 1.0 s,
# the least time that it gives its request. With the deadline that has passed, grpc-js fails at once and sends nothing;
# grpc-web sends the call without grpc-timeout and without a limit of its own, and it succeeds after 3 s. A page that
# hands the rest of its time from call to call so gives the last one, for which none is left, as long as it takes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(grpc-web@2.1.1 xhr2@0.2.1 @grpc/grpc-js@1.14.7)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/see.cjs" <<'JAVASCRIPT'
const http = require("node:http");
const { setTimeout: sleep } = require("node:timers/promises");
const { promisify } = require("node:util");
const grpc = require("@grpc/grpc-js");
const { GrpcWebClientBase, MethodDescriptor, MethodType } = require("grpc-web");
global.XMLHttpRequest = require("xhr2");

const asIs = (bytes) => bytes;
const frame = (flag, text) => Buffer.concat([Buffer.from([flag, 0, 0, 0, text.length]), Buffer.from(text)]);
let header = "no call";

const web = http.createServer(async (request, response) => {
  header = request.headers["grpc-timeout"] ?? "none";
  request.resume();
  await sleep(3000);
  response.writeHead(200, { "content-type": "application/grpc-web-text" });
  response.end(Buffer.concat([frame(0, "ok"), frame(128, "grpc-status:0\r\n")]).toString("base64"));
});

const native = new grpc.Server();
const method = {
  path: "/a.B/C",
  requestStream: false,
  responseStream: false,
  requestSerialize: asIs,
  requestDeserialize: asIs,
  responseSerialize: asIs,
  responseDeserialize: asIs,
};
native.addService({ C: method }, {
  C: async (call, callback) => {
    header = call.getDeadline() === Infinity ? "none" : "a deadline";
    await sleep(3000);
    callback(null, Buffer.from("ok"));
  },
});

const see = async () => {
  await new Promise((resolve) => web.listen(0, "127.0.0.1", resolve));
  const bind = promisify(native.bindAsync.bind(native));
  const port = await bind("127.0.0.1:0", grpc.ServerCredentials.createInsecure());
  const webClient = new GrpcWebClientBase({ format: "text" });
  const descriptor = new MethodDescriptor("/a.B/C", MethodType.UNARY, Object, Object, asIs, asIs);
  const url = `http://127.0.0.1:${web.address().port}/a.B/C`;
  const nativeClient = new grpc.Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
  const clients = {
    "grpc-web": (deadline, done) =>
      webClient.rpcCall(url, Buffer.from("a"), { deadline: String(deadline) }, descriptor, done),
    "grpc-js": (deadline, done) =>
      nativeClient.makeUnaryRequest("/a.B/C", asIs, asIs, Buffer.from("a"), { deadline }, done),
  };
  await promisify(nativeClient.waitForReady.bind(nativeClient))(Date.now() + 10_000);
  const expected = {
    "grpc-web, 10": "OK after 3 s, server's deadline: 10000m",
    "grpc-web, 0.1": "DEADLINE_EXCEEDED after 1 s, server's deadline: 100m",
    "grpc-web, -1": "OK after 3 s, server's deadline: none",
    "grpc-js, 10": "OK after 3 s, server's deadline: a deadline",
    "grpc-js, 0.1": "DEADLINE_EXCEEDED after 0 s, server's deadline: a deadline",
    "grpc-js, -1": "DEADLINE_EXCEEDED after 0 s, server's deadline: no call",
  };
  let same = true;
  for (const [name, call] of Object.entries(clients)) {
    for (const seconds of [10, 0.1, -1]) {
      header = "no call";
      const began = performance.now();
      const error = await new Promise((resolve) => call(Date.now() + seconds * 1000, resolve));
      const passed = (performance.now() - began) / 1000;
      const end = error ? grpc.status[error.code] : "OK";
      const seen = `${end} after ${Math.round(passed)} s, server's deadline: ${header.replace(/^99\d\dm$/, "10000m")}`;
      console.log(`${name}, deadline in ${seconds} s: ${seen} (${passed.toFixed(2)} s)`);
      same &&= seen.replace(/\b9\dm$/, "100m") === expected[`${name}, ${seconds}`];
    }
  }
  process.exit(same ? 0 : 1);
};
see();
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 node "$folder/see.cjs"
