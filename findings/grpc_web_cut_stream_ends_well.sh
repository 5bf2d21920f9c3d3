#!/usr/bin/env bash
# If a gRPC-Web server dies at work behind nginx, its caller with grpc-web sees a complete stream, or a good response.
#
# Versions: grpc-web 2.1.1 with xhr2 0.2.1 for XMLHttpRequest, nice-grpc-web 3.3.11 to compare (npm), nginx 1.22.1
# (Debian 12's package); Node.js 20 or newer, Debian 12. gRPC-Web puts the status into the last frame of the body
# (PROTOCOL-WEB.md), so a body without one has been cut. A server behind nginx's `proxy_pass` sends the letters "abcd",
# one message each. Both clients read them, first from a server that lives and then from one that is killed after "b";
# last, they make a unary call whose server is killed between the response and the status.
#
# Seen: while the server lives, both clients get four messages and a good end. When it dies, nice-grpc-web fails both
# calls with UNKNOWN "Response stream closed without gRPC status". grpc-web gives "a", "b" and "end", with no error and
# no status, and the unary call succeeds. nginx makes requests to its servers in HTTP/1.0 by default, where the end of
# the connection is the end of the body, so a crash looks like an end to the client; and grpc-web does not miss the
# status. So a page that loads a list of records shows half of it as all, while servers restart.
set -euo pipefail
folder=$(mktemp -d)
chmod 755 "$folder" # nginx's workers run as another user.
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
(
  cd "$folder"
  apt-get download -qq 'nginx=1.22.1*'
  dpkg -x nginx_*.deb debian
) >&2
packages=(grpc-web@2.1.1 xhr2@0.2.1 nice-grpc-web@3.3.11)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/server.cjs" <<'JAVASCRIPT'
const http = require("node:http");
const { setTimeout: sleep } = require("node:timers/promises");

const frame = (flag, text) => Buffer.concat([Buffer.from([flag, 0, 0, 0, text.length]), Buffer.from(text)]);
const deaths = { "/a.B/Lives": "", "/a.B/DiesAtTwo": "b", "/a.B/DiesAtOne": "a" };

const server = http.createServer(async (request, response) => {
  request.resume();
  response.writeHead(200, { "content-type": "application/grpc-web+proto", "x-accel-buffering": "no" });
  for (const letter of "abcd") {
    response.write(frame(0, letter));
    await sleep(200);
    if (letter === deaths[request.url]) {
      process.kill(process.pid, "SIGKILL");
    }
  }
  response.end(frame(128, "grpc-status:0\r\n"));
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
JAVASCRIPT
cat > "$folder/see.cjs" <<'JAVASCRIPT'
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const { writeFileSync } = require("node:fs");
const http = require("node:http");
const { setTimeout: sleep } = require("node:timers/promises");
const { GrpcWebClientBase, MethodDescriptor, MethodType } = require("grpc-web");
const { createChannel, createClient, FetchTransport } = require("nice-grpc-web");
global.XMLHttpRequest = require("xhr2");

const here = __dirname;
const asIs = (bytes) => bytes;
const text = (bytes) => Buffer.from(bytes).toString();

const web = (url, path, stream) =>
  new Promise((resolve) => {
    const client = new GrpcWebClientBase({ format: "binary" });
    const type = stream ? MethodType.SERVER_STREAMING : MethodType.UNARY;
    const method = new MethodDescriptor(path, type, Object, Object, asIs, text);
    if (!stream) {
      const done = (error, response) => resolve(error ? `error ${error.code}` : `${response} OK`);
      client.rpcCall(url + path, Buffer.alloc(0), {}, method, done);
      return;
    }
    const events = [];
    const call = client.serverStreaming(url + path, Buffer.alloc(0), {}, method);
    call.on("data", (letter) => events.push(letter));
    call.on("status", (status) => events.push(`status ${status.code}`));
    call.on("error", (error) => resolve([...events, `error ${error.code}`].join(" ")));
    call.on("end", () => resolve([...events, "end"].join(" ")));
  });
const nice = async (url, path, responseStream) => {
  const requests = { requestStream: false, requestSerialize: asIs, requestDeserialize: asIs };
  const responses = { responseStream, responseSerialize: asIs, responseDeserialize: asIs };
  const service = { C: { path, ...requests, ...responses, options: {} } };
  const client = createClient(service, createChannel(url, FetchTransport()));
  const events = [];
  try {
    if (!responseStream) {
      return `${text(await client.C(new Uint8Array()))} OK`;
    }
    for await (const letter of client.C(new Uint8Array())) {
      events.push(text(letter));
    }
    events.push("end");
  } catch (error) {
    events.push(`error ${error.code}`);
  }
  return events.join(" ");
};

const see = async () => {
  const free = http.createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const { port } = free.address();
  free.close();
  const url = `http://127.0.0.1:${port}`;
  const expected = {
    "grpc-web, Lives": "a b c d status 0 end",
    "grpc-web, DiesAtTwo": "a b end",
    "grpc-web, DiesAtOne": "a OK",
    "nice-grpc-web, Lives": "a b c d end",
    "nice-grpc-web, DiesAtTwo": "a b error 2",
    "nice-grpc-web, DiesAtOne": "error 2",
  };
  let same = true;
  for (const [name, call] of [["grpc-web", web], ["nice-grpc-web", nice]]) {
    for (const method of ["Lives", "DiesAtTwo", "DiesAtOne"]) {
      const server = spawn("node", [`${here}/server.cjs`], { stdio: ["ignore", "pipe", "inherit"] });
      const [serverPort] = await once(server.stdout, "data");
      const kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
      const temporary = kinds.map((kind) => `${kind}_temp_path ${here}/t;`);
      const route = `location / { proxy_pass http://127.0.0.1:${Number(serverPort)}; }`;
      const site = `server { listen 127.0.0.1:${port}; ${route} }`;
      const block = `access_log off; ${temporary.join(" ")} ${site}`;
      const main = `daemon off; pid ${here}/pid; error_log ${here}/errors; events {}`;
      writeFileSync(`${here}/nginx.conf`, `${main} http { ${block} }`);
      const nginx = spawn(`${here}/debian/usr/sbin/nginx`, ["-c", `${here}/nginx.conf`], { stdio: "ignore" });
      await sleep(1000);
      const seen = await call(url, `/a.B/${method}`, method !== "DiesAtOne");
      console.log(`${name}, ${method}: ${seen}`);
      same &&= seen === expected[`${name}, ${method}`];
      nginx.kill();
      server.kill();
      await once(nginx, "exit");
    }
  }
  process.exit(same ? 0 : 1);
};
see();
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 90 node "$folder/see.cjs"
