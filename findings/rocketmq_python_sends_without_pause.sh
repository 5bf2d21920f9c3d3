#!/usr/bin/env bash
# RocketMQ's Python producer makes all its attempts within milliseconds, but only one if the broker throttles it.
#
# Versions: rocketmq-python-client 5.1.2 with grpcio 1.85.3; Python 3.11 or newer, Linux. `Producer.send` is documented
# to retry "on failure based on the configured backoff policy (default: 3 attempts with exponential backoff)"; the
# policy comes from the server when a client starts. A server with RocketMQ's protocol sends one with five attempts, and
# pauses of 1, 2, 4 and 8 s. A producer sends three messages. The server fails the first with UNAVAILABLE, answers the
# second with FORBIDDEN, and the third with TOO_MANY_REQUESTS.
#
# Seen: the policy has arrived: there are five attempts, not three. All five come within some milliseconds, where its
# pauses add up to 15 s: the producer asks its policy for the number alone, and nothing calls `get_next_attempt_delay`
# for a message that is sent (`Producer.__handle_send_response_sync`). So a broker that is away for a second loses the
# message, and gets five calls for each message meanwhile. A message that is forbidden is sent five times as well. The
# one answer for which waiting helps, TOO_MANY_REQUESTS, is the one that is not repeated: the error is raised at once.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet rocketmq-python-client==5.1.2 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, itertools, os, sys, threading, time
import grpc
from rocketmq import ClientConfiguration, Credentials, Message, Producer
from rocketmq.grpc_protocol import AddressScheme, Code, definition_pb2, service_pb2, service_pb2_grpc

codes = {"good": Code.OK, "forbidden": Code.FORBIDDEN, "throttled": Code.TOO_MANY_REQUESTS}
times = []  # of the attempts of a message
policy_sent = threading.Event()


def ok(message):
    message.status.code = Code.OK
    return message


class Broker(service_pb2_grpc.MessagingServiceServicer):
    def QueryRoute(self, request, context):
        response = ok(service_pb2.QueryRouteResponse())
        queue = response.message_queues.add(topic=request.topic, permission=definition_pb2.READ_WRITE)
        queue.broker.name = "a"
        queue.broker.endpoints.scheme = AddressScheme.IPv4
        queue.broker.endpoints.addresses.add(host="127.0.0.1", port=port)
        queue.accept_message_types.append(definition_pb2.NORMAL)
        return response

    def Telemetry(self, commands, context):
        """Answer a client's settings with the policy."""
        for command in commands:
            command.status.code = Code.OK
            command.settings.publishing.max_body_size = 1000
            command.settings.backoff_policy.max_attempts = 5
            backoff = command.settings.backoff_policy.exponential_backoff
            backoff.initial.seconds, backoff.max.seconds, backoff.multiplier = 1, 10, 2
            yield command
            policy_sent.set()

    def Heartbeat(self, request, context):
        return ok(service_pb2.HeartbeatResponse())

    def SendMessage(self, request, context):
        times.append(time.monotonic())
        topic = request.messages[0].topic.name
        if topic == "unavailable":
            context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        response = service_pb2.SendMessageResponse()
        response.status.code = codes[topic]
        response.entries.add(message_id="a").status.code = codes[topic]
        return response


server = grpc.server(concurrent.futures.ThreadPoolExecutor(20))
service_pb2_grpc.add_MessagingServiceServicer_to_server(Broker(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
topics = ["good", "unavailable", "forbidden", "throttled"]
producer = Producer(ClientConfiguration(f"127.0.0.1:{port}", Credentials("a", "b")), topics)
producer.startup()
assert policy_sent.wait(30)
time.sleep(2)
attempts, spans = [], []
for topic in topics:
    times.clear()
    message = Message()
    message.topic, message.body = topic, b"a"
    try:
        producer.send(message)
        end = "sent"
    except Exception as error:
        end = type(error).__name__
    pauses = [round((after - before) * 1000) for before, after in itertools.pairwise(times)]
    print(f"{topic}: {len(times)} attempts, pauses between them {pauses} ms, {end}")
    attempts.append(len(times))
    spans.append(times[-1] - times[0])
sys.stdout.flush()
os._exit(not (attempts == [1, 5, 5, 1] and max(spans) < 1))  # threads of the client would keep it alive
PYTHON
export HOME="$folder" # where the client writes its log
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
