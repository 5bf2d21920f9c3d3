#!/usr/bin/env bash
# HAProxy says "never processed" of a gRPC call whose server dies at work on it, and the client runs it once more.
#
# Versions: HAProxy 2.6.12 (Debian 12's package), @grpc/grpc-js 1.14.7 (npm) as client and servers; Node.js 20 or newer,
# Debian 12. RFC 9113, section 8.7: REFUSED_STREAM says that a stream was closed before any processing, and a client may
# repeat its request, whatever it does. gRPC's clients do so without a retry policy (gRFC A6, "Transparent Retries").
# A call takes two seconds. Its server notes that it runs and is killed in the middle; HAProxy has a second server,
# which lives. The client has no retry policy, and makes the call once directly and once through HAProxy.
#
# Seen: directly, the call ends with UNAVAILABLE and has run once. Through HAProxy it ends with OK and has run on both
# servers: if the server's connection ends before HAProxy has response headers, which a unary call of gRPC gets when
# its work is done, HAProxy resets the stream with REFUSED_STREAM. So a call that must not run twice does, although no
# policy allows a retry, and its status does not show it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
(
  cd "$folder"
  apt-get download -qq 'haproxy=2.6.12*' liblua5.3-0 libopentracing1 libopentracing-c-wrapper0
  for package in *.deb; do dpkg -x "$package" debian; done
) >&2
export PATH="$folder/debian/usr/sbin:$PATH" LD_LIBRARY_PATH="$folder/debian/usr/lib/$(uname -m)-linux-gnu"
npm install --silent --no-audit --no-fund --prefix "$folder" @grpc/grpc-js@1.14.7 >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { ChannelCredentials, Client, Server, ServerCredentials, status } from "@grpc/grpc-js";

const file = fileURLToPath(import.meta.url);
const asIs = (bytes) => bytes;
const method = { path: "/a.B/C", requestStream: false, responseStream: false };
const codec = { requestDeserialize: asIs, requestSerialize: asIs, responseDeserialize: asIs, responseSerialize: asIs };

function serve() {
  const server = new Server();
  server.addService({ C: { ...method, ...codec } }, {
    C(call, callback) {
      console.log("run");
      setTimeout(() => callback(null, call.request), 2000);
    },
  });
  server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => console.log(port));
}

/** Start a server; return its process, its port and the list of runs, which grows. */
async function start(name, runs) {
  const child = spawn(process.execPath, [file, "serve"], { stdio: ["ignore", "pipe", "inherit"] });
  const port = await new Promise((resolve) => {
    createInterface({ input: child.stdout }).on("line", (line) => (line === "run" ? runs.push(name) : resolve(line)));
  });
  return { child, port };
}

async function unusedPort() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Return the status of a call whose server is killed while it runs, and where it ran. */
async function call(proxied) {
  const runs = [];
  const first = await start("first", runs);
  const second = await start("second", runs);
  const children = [first.child, second.child];
  let { port } = first;
  if (proxied) {
    port = await unusedPort();
    writeFileSync(`${file}.cfg`, `defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option redispatch 1
listen grpc
  bind 127.0.0.1:${port} proto h2
  server first 127.0.0.1:${first.port} proto h2
  server second 127.0.0.1:${second.port} proto h2
`);
    children.push(spawn("haproxy", ["-f", `${file}.cfg`], { stdio: "ignore" }));
    for (let i = 0; i < 100; i++) {
      const up = await new Promise((resolve) => {
        const socket = connect(port, "127.0.0.1", () => resolve(true)).on("error", () => resolve(false));
        socket.unref();
      });
      if (up) break;
      await sleep(100);
    }
  }
  const client = new Client(`127.0.0.1:${port}`, ChannelCredentials.createInsecure());
  const ended = new Promise((resolve) => {
    const deadline = Date.now() + 30_000;
    const done = (error) => resolve(status[error?.code ?? status.OK]);
    client.makeUnaryRequest(method.path, asIs, asIs, Buffer.from("a"), { deadline }, done);
  });
  while (!runs.length) await sleep(50);
  first.child.kill("SIGKILL");
  const code = await ended;
  client.close();
  for (const child of children) child.kill("SIGKILL");
  return `${code}, ran on: ${runs.join(", ")}`;
}

if (process.argv[2] === "serve") {
  serve();
} else {
  const direct = await call(false);
  const proxied = await call(true);
  console.log(`directly: ${direct}\nthrough HAProxy: ${proxied}`);
  process.exit(direct === "UNAVAILABLE, ran on: first" && proxied === "OK, ran on: first, second" ? 0 : 1);
}
JAVASCRIPT
haproxy -v | sed -n 1p
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY node "$folder/see.mjs"
