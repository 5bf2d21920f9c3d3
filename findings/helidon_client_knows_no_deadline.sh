#!/usr/bin/env bash
# Helidon's gRPC client knows no deadline: calls succeed after it, and a stream whose server died waits for ever.
#
# Versions: helidon-webclient-grpc 4.5.0 with grpc-netty-shaded 1.73.0 to compare (Maven Central), grpcio 1.85.3 for the
# servers; a JDK 21 or newer as JAVA_HOME, Maven, Python 3.11 or newer, Linux. `GrpcClient.channel()` is a channel for
# the stubs of grpc-java, whose `withDeadlineAfter` sets a deadline in the options of a call; gRPC ends the call then,
# and tells the server of it in advance. Each client makes four calls: one of 6 s with a deadline of 3 s; a stream of a
# message each second for 6 s, with a deadline of 3 s; a stream whose server dies after the first message, with a
# deadline of 8 s; and one of 14 s with a deadline of 30 s.
#
# Seen: grpc-java's own channel ends the first two with DEADLINE_EXCEEDED, the third with UNAVAILABLE as the server
# dies, and the fourth well. With Helidon's, the first two are OK after 6 s, with all the messages; the third has no end
# within 25 s, neither at the server's death nor at the deadline; and the fourth fails after 10 s with Helidon's own
# StreamTimeoutException, which `catch (StatusRuntimeException e)` lets pass. The servers are told of no deadline. The
# client (`GrpcBaseClientCall`) reads no deadline from the options; it has `pollWaitTime`, 10 s, as the limit of a
# unary call, after which a stream looks again, whether its connection is there or not. So code that moves to Helidon's
# channel keeps its deadlines and has none, and a thread that reads a stream is lost with each server that dies.
set -euo pipefail
: "${JAVA_HOME:?must be a JDK 21 or newer}"
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
mkdir -p "$folder/src/main/java"
cat > "$folder/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>a</groupId>
  <artifactId>see</artifactId>
  <version>0</version>
  <properties>
    <maven.compiler.source>21</maven.compiler.source>
    <maven.compiler.target>21</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>io.helidon.webclient</groupId>
      <artifactId>helidon-webclient-grpc</artifactId>
      <version>4.5.0</version>
    </dependency>
    <dependency>
      <groupId>io.grpc</groupId>
      <artifactId>grpc-netty-shaded</artifactId>
      <version>1.73.0</version>
    </dependency>
  </dependencies>
</project>
XML
cat > "$folder/src/main/java/See.java" <<'JAVA'
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCalls;
import io.helidon.common.tls.Tls;
import io.helidon.webclient.grpc.GrpcClient;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

public final class See {
  static final MethodDescriptor.Marshaller<byte[]> BYTES =
      new MethodDescriptor.Marshaller<>() {
        @Override
        public InputStream stream(byte[] value) {
          return new ByteArrayInputStream(value);
        }

        @Override
        public byte[] parse(InputStream stream) {
          try {
            return stream.readAllBytes();
          } catch (IOException error) {
            throw new UncheckedIOException(error);
          }
        }
      };

  /** A call with a deadline in so many seconds, in a thread of its own. */
  static final class Call extends Thread {
    final Channel channel;
    final String client;
    final String name;
    final int deadline;
    volatile int messages;
    volatile String end;
    volatile double seconds;

    Call(String client, Channel channel, String name, int deadline) {
      this.client = client;
      this.channel = channel;
      this.name = name;
      this.deadline = deadline;
      setDaemon(true);
    }

    @Override
    public void run() {
      long began = System.nanoTime();
      String ended = "OK";
      try {
        make();
      } catch (StatusRuntimeException error) {
        ended = error.getStatus().getCode().name();
      } catch (RuntimeException error) {
        ended = error.getClass().getSimpleName();
      }
      seconds = (System.nanoTime() - began) / 1e9;
      end = ended;
    }

    void make() {
      boolean unary = name.startsWith("Work");
      MethodDescriptor<byte[], byte[]> method =
          MethodDescriptor.newBuilder(BYTES, BYTES)
              .setType(unary ? MethodType.UNARY : MethodType.SERVER_STREAMING)
              .setFullMethodName("a.B/" + name)
              .build();
      CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(deadline, TimeUnit.SECONDS);
      if (unary) {
        ClientCalls.blockingUnaryCall(channel, method, options, new byte[1]);
        messages++;
      } else {
        ClientCalls.blockingServerStreamingCall(channel, method, options, new byte[1])
            .forEachRemaining(message -> messages++);
      }
    }
  }

  static Channel connect(String client, int port) {
    if (client.equals("grpc-java")) {
      return NettyChannelBuilder.forAddress("127.0.0.1", port).usePlaintext().build();
    }
    return GrpcClient.builder()
        .baseUri("http://127.0.0.1:" + port)
        .tls(Tls.builder().enabled(false).build())
        .build()
        .channel();
  }

  public static void main(String[] ports) throws InterruptedException {
    Map<String, Integer> deadlines = Map.of("Work6", 3, "Count", 3, "Die", 8, "Work14", 30);
    List<Call> calls = new ArrayList<>();
    int port = 0;
    for (String client : List.of("grpc-java", "Helidon")) {
      Channel channel = connect(client, Integer.parseInt(ports[port++]));
      Channel dying = connect(client, Integer.parseInt(ports[port++]));
      Call first = new Call(client, channel, "Work0", 60); // loads the classes
      first.start();
      first.join();
      for (String name : List.of("Work6", "Count", "Die", "Work14")) {
        calls.add(new Call(client, name.equals("Die") ? dying : channel, name, deadlines.get(name)));
      }
    }
    calls.forEach(Thread::start);
    Thread.sleep(25_000);
    for (Call call : calls) {
      boolean over = call.end != null;
      String end = over ? call.end : "none";
      double seconds = over ? call.seconds : 25;
      System.out.printf("%s %s %s %d %.1f%n", call.client, call.name, end, call.messages, seconds);
    }
    System.exit(0);
  }
}
JAVA
(cd "$folder" && mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=classpath >&2)
cat > "$folder/serve.py" <<'PYTHON'
import concurrent.futures, os, threading, time
import grpc


def worker(seconds):
    def work(request, context):
        """Answer after the time, or when the call ends; print whether the call has a deadline."""
        print("told" if context.time_remaining() < 1e9 else "untold", flush=True)
        ended = threading.Event()
        context.add_callback(ended.set)
        ended.wait(seconds)
        return b"a"

    return grpc.unary_unary_rpc_method_handler(work)


def count(request, context):
    """Stream a message each second."""
    for _ in range(6):
        time.sleep(1)
        yield b"a"


def die(request, context):
    """Stream a message, and end the process a second later."""
    yield b"a"
    time.sleep(1)
    os._exit(0)


server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
handlers = {
    "Work0": worker(0),
    "Work6": worker(6),
    "Work14": worker(14),
    "Count": grpc.unary_stream_rpc_method_handler(count),
    "Die": grpc.unary_stream_rpc_method_handler(die),
}
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", handlers)])
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination(timeout=100)
PYTHON
cat > "$folder/see.py" <<'PYTHON'
import os, pathlib, subprocess, sys

folder = pathlib.Path(sys.argv[1])
command = [sys.executable, folder / "serve.py"]
servers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
try:
    ports = [server.stdout.readline().strip() for server in servers]
    classpath = f"{folder / 'target/classes'}:{(folder / 'classpath').read_text().strip()}"
    command = [pathlib.Path(os.environ["JAVA_HOME"]) / "bin/java", "-cp", classpath, "See", *ports]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=80, check=True).stdout
finally:
    for server in servers:
        server.kill()
ends = {}
for line in output.splitlines():
    client, name, end, messages, seconds = line.split()
    print(f"{client}, {name}: {end if end != 'none' else 'no end'} after {seconds} s, {messages} messages")
    ends[client, name] = end, int(messages)
told = [server.stdout.read().split() for server in servers]
for client, seen in ("grpc-java", told[0]), ("Helidon", told[2]):
    print(f"{client}: the server is told {seen.count('told')} of {len(seen)} deadlines")
right = [ends["grpc-java", name][0] for name in ("Work6", "Count", "Die", "Work14")]
right = right == ["DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "OK"] and set(told[0]) == {"told"}
right = right and ends["Helidon", "Work6"] == ("OK", 1) and ends["Helidon", "Count"] == ("OK", 6)
right = right and ends["Helidon", "Die"] == ("none", 1) and ends["Helidon", "Work14"] == ("StreamTimeoutException", 0)
sys.exit(not (right and told[2] == ["untold"] * 3))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
