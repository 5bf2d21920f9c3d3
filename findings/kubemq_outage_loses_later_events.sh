#!/usr/bin/env bash
# For each second of an outage, KubeMQ's Python client loses an event after it, when the connection is long up again.
#
# Versions: kubemq 4.1.5, grpcio 1.85.3 for a server with KubeMQ's protocol; Python 3.11 or newer, Linux. The client is
# documented to reconnect by itself (`auto_reconnect`, on by default), and `publish_event` to raise a
# KubeMQConnectionError if "the connection is lost". `send_event_store` returns the result of the send or raises the
# same error; the README has "All SDK errors extend `KubeMQError`". The server of a client that publishes events is away
# for ten seconds. Four seconds after the client's stream has begun again, it publishes the letters from a to z. Then it
# sends an event to be stored, whose call the server ends with UNAVAILABLE. Last, the server is restarted without a
# pause, and three messages are put in a queue.
#
# Seen: before the outage all 26 events arrive. After it 9 to 15 do, and `publish_event` raises nothing for those that
# are lost. Each call of a stream reads its requests from one queue of the client, through a generator that only the
# end of the client ends (`EventSender.send_events_stream`). Those of the calls that failed, one for each second until
# the connection was up, still wait there, before that of the good call, and each takes one event along. The first of
# the three messages fails after two seconds, "Timeout waiting for response" (`UpstreamSender._generate_requests`). The
# stored event ends in a KeyError with its id: `handle_disconnection` forgets the event before `send` looks it up, so
# that neither the documented result nor an `except KubeMQError` sees the failure.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet kubemq==4.1.5 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, logging, os, string, sys, time
import grpc
from kubemq import EventMessage, PubSubClient, QueueMessage, QueuesClient
from kubemq.grpc import kubemq_pb2, kubemq_pb2_grpc
from kubemq.pubsub import EventStoreMessage

logging.disable()  # of broken streams
got, calls = [], []  # what arrives at the server, and which streams begin


class KubeMQ(kubemq_pb2_grpc.kubemqServicer):
    def Ping(self, request, context):
        return kubemq_pb2.PingResult(Version="2.7.0")

    def SendEventsStream(self, requests, context):
        calls.append("events")
        for event in requests:
            if event.Store:
                context.abort(grpc.StatusCode.UNAVAILABLE, "no")
            got.append(event.Body.decode())
            yield from ()

    def QueuesUpstream(self, requests, context):
        calls.append("queue")
        for request in requests:
            got.extend(message.Body.decode() for message in request.Messages)
            results = [kubemq_pb2.SendQueueMessageResult(MessageID=each.MessageID) for each in request.Messages]
            yield kubemq_pb2.QueuesUpstreamResponse(RefRequestID=request.RequestID, Results=results)


def start(port=0):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(20))
    kubemq_pb2_grpc.add_kubemqServicer_to_server(KubeMQ(), server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, port


def restart(server, seconds, stream):
    """Restart the server after some seconds; wait until a stream has begun again, and four seconds more."""
    server.stop(None).wait()
    calls.clear()
    time.sleep(seconds)
    server, _ = start(port)
    for _ in range(300):
        if stream in calls:
            break
        time.sleep(0.1)
    time.sleep(4)
    return server


def publish():
    """Publish the letters, one by one; return those that arrive."""
    got.clear()
    for letter in string.ascii_lowercase:
        client.publish_event(EventMessage(channel="a", body=letter.encode()))
        time.sleep(0.05)
    time.sleep(2)
    return "".join(got)


server, port = start()
client = PubSubClient(address=f"127.0.0.1:{port}")
before = publish()
server = restart(server, 10, "events")
after = publish()
print(f"of 26 events there arrive {len(before)} before the outage, and {len(after)} after it: {after}")
try:
    client.send_event_store(EventStoreMessage(channel="a", body=b"e"))
    stored = "a result"
except Exception as error:
    stored = type(error).__name__
print(f"send_event_store, whose call ends with UNAVAILABLE: {stored}")
queues = QueuesClient(address=f"127.0.0.1:{port}")
assert not queues.send_queue_message(QueueMessage(channel="a", body=b"0")).is_error
server = restart(server, 0, "queue")
got.clear()
sent = [queues.send_queue_message(QueueMessage(channel="a", body=each)) for each in (b"1", b"2", b"3")]
print(f"of the messages 123 after a restart, there arrive {''.join(got)}; errors: {[each.error for each in sent]}")
right = before == string.ascii_lowercase and len(after) <= 21 and stored == "KeyError" and len(got) < 3
sys.stdout.flush()
os._exit(not (right and any(each.is_error for each in sent)))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py"
