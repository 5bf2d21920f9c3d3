#!/usr/bin/env bash
# RocketMQ's producer for Node.js waits milliseconds where the server asks for seconds, and nothing for half a second.
#
# Versions: rocketmq-client-nodejs 1.0.8 with @grpc/grpc-js 1.14.7 and google-protobuf 3.21.4 (npm); Node.js 20 or
# newer, Linux. A server of RocketMQ 5 tells each client its backoff over the telemetry stream, as Durations, and
# refuses with TOO_MANY_REQUESTS what it cannot take. A server with RocketMQ's protocol refuses each message so and
# notes when it came. Its backoff begins with 1 s, then with 20 s, then with 0.5 s, doubles, and is at most 60 s. A
# producer sends a message with four attempts.
#
# Seen: with 1 s, all four attempts come within a tenth of a second, and with 20 s within a quarter of one, after pauses
# of 40, 60 and 60 ms: the client hands the seconds to a function that takes milliseconds. With 0.5 s there is no pause
# at all, since it leaves out the fraction of a Duration. So a server that sheds load gets each message at once as often
# as the client may send it, and the producer has given up before a server could have recovered.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(rocketmq-client-nodejs@1.0.8 @grpc/grpc-js@1.14.7 google-protobuf@3.21.4)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/see.cjs" <<'JAVASCRIPT'
const { promisify } = require("node:util");
const grpc = require("@grpc/grpc-js");
const { Duration } = require("google-protobuf/google/protobuf/duration_pb");
const { Producer } = require("rocketmq-client-nodejs");
const pb = require("rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb");
const messages = require("rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_pb");
const { MessagingServiceService } = require("rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_grpc_pb");

let port, first, sent;
const duration = (seconds) => {
  const whole = Math.floor(seconds);
  return new Duration().setSeconds(whole).setNanos((seconds - whole) * 1e9);
};
const status = (code) => new pb.Status().setCode(code);
const ok = (Response) => (call, callback) => callback(null, new Response().setStatus(status(pb.Code.OK)));

const queryRoute = (call, callback) => {
  const address = new pb.Address().setHost("127.0.0.1").setPort(port);
  const endpoints = new pb.Endpoints().setScheme(pb.AddressScheme.IPV4).setAddressesList([address]);
  const queue = new pb.MessageQueue()
    .setTopic(call.request.getTopic())
    .setPermission(pb.Permission.READ_WRITE)
    .setBroker(new pb.Broker().setName("a").setEndpoints(endpoints))
    .setAcceptMessageTypesList([pb.MessageType.NORMAL]);
  const response = new messages.QueryRouteResponse().setStatus(status(pb.Code.OK));
  callback(null, response.setMessageQueuesList([queue]));
};
const telemetry = (call) => {
  call.on("data", (command) => {
    const backoff = new pb.ExponentialBackoff().setInitial(duration(first)).setMax(duration(60)).setMultiplier(2);
    const settings = command.getSettings();
    settings.setBackoffPolicy(new pb.RetryPolicy().setExponentialBackoff(backoff));
    settings.getPublishing().setMaxBodySize(1_000_000);
    call.write(new messages.TelemetryCommand().setStatus(status(pb.Code.OK)).setSettings(settings));
  });
  call.on("end", () => call.end());
};
const sendMessage = (call, callback) => {
  sent.push(performance.now());
  callback(null, new messages.SendMessageResponse().setStatus(status(pb.Code.TOO_MANY_REQUESTS)));
};

const see = async () => {
  const server = new grpc.Server();
  server.addService(MessagingServiceService, {
    queryRoute,
    telemetry,
    sendMessage,
    heartbeat: ok(messages.HeartbeatResponse),
    notifyClientTermination: ok(messages.NotifyClientTerminationResponse),
  });
  const bind = promisify(server.bindAsync.bind(server));
  port = await bind("127.0.0.1:0", grpc.ServerCredentials.createInsecure());
  const silent = () => {};
  const logger = { debug: silent, info: silent, warn: silent, error: silent };
  const expected = [[1, 0], [20, 130], [0.5, 0]];
  let same = true;
  for (const [seconds, least] of expected) {
    [first, sent] = [seconds, []];
    const producer = new Producer({ endpoints: `127.0.0.1:${port}`, topics: ["a"], maxAttempts: 4, logger });
    await producer.startup();
    const message = { topic: "a", tag: "b", keys: [], body: Buffer.from("c") };
    const end = await producer.send(message).then(
      () => "sent",
      (error) => error.constructor.name,
    );
    const pauses = sent.slice(1).map((at, i) => (at - sent[i]).toFixed(0));
    console.log(`backoff from ${seconds} s: ${end} after ${sent.length} attempts, pauses of ${pauses.join(", ")} ms`);
    const passed = sent.at(-1) - sent[0];
    same &&= end === "TooManyRequestsException" && sent.length === 4 && passed >= least && passed < 900;
    await producer.shutdown();
  }
  process.exit(same ? 0 : 1);
};
see();
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 node "$folder/see.cjs"
