#!/usr/bin/env bash
# Helidon's gRPC client takes a NOT_FOUND that follows headers for INTERNAL, and drops each error's text and trailers.
#
# Versions: helidon-webclient-grpc 4.5.0 with grpc-netty-shaded 1.73.0 to compare (Maven Central), grpcio 1.85.3 as the
# server; a JDK 21 or newer as JAVA_HOME, Maven, Python 3.11 or newer, Linux. In gRPC a status comes in the trailers,
# after headers and messages if there are any, or in the headers alone if nothing else comes ("Trailers-Only"); its text
# is in grpc-message (PROTOCOL-HTTP2.md). `GrpcClient.channel()` is a channel for the stubs of grpc-java, whose errors
# have the status, its description and the trailers. A server fails a unary call with NOT_FOUND, "no such record" and a
# trailer, once at once and once after it has sent its headers; and it fails a stream of responses with UNAVAILABLE and
# the same after two messages. Each client makes the three calls.
#
# Seen: grpc-java's own channel brings status, text and trailer each time. With Helidon's, the first error is NOT_FOUND
# without text and trailer. The second one is INTERNAL, "No value received for unary call", since the client
# (`GrpcUnaryClientCall.halfClose`) looks for the status in the headers, and takes it for OK if it is not there. The
# stream's error is UNAVAILABLE, without text and trailer: Helidon makes each status of its number alone, with empty
# trailers. So of servers that send headers first, for a request id, each failed unary call is INTERNAL, which a retry
# policy does not repeat; and RetryInfo, grpc-retry-pushback-ms and all other details of an error never arrive.
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
import io.grpc.Metadata;
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
import java.util.List;

public final class See {
  static final Metadata.Key<String> REASON = Metadata.Key.of("reason", Metadata.ASCII_STRING_MARSHALLER);
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

  static MethodDescriptor<byte[], byte[]> method(MethodType type, String name) {
    return MethodDescriptor.newBuilder(BYTES, BYTES).setType(type).setFullMethodName("a.B/" + name).build();
  }

  /** Prints how a call ends. */
  static void see(String client, Channel channel, String name) {
    String end = "OK";
    try {
      if (name.equals("Stream")) {
        ClientCalls.blockingServerStreamingCall(
                channel, method(MethodType.SERVER_STREAMING, name), CallOptions.DEFAULT, new byte[1])
            .forEachRemaining(message -> {});
      } else {
        ClientCalls.blockingUnaryCall(channel, method(MethodType.UNARY, name), CallOptions.DEFAULT, new byte[1]);
      }
    } catch (StatusRuntimeException error) {
      Metadata trailers = error.getTrailers();
      String reason = trailers == null ? null : trailers.get(REASON);
      end = error.getStatus().getCode() + ", " + error.getStatus().getDescription() + ", " + reason;
    }
    System.out.println(client + ", " + name + ": " + end);
  }

  public static void main(String[] args) {
    int port = Integer.parseInt(args[0]);
    Channel netty = NettyChannelBuilder.forAddress("127.0.0.1", port).usePlaintext().build();
    Tls none = Tls.builder().enabled(false).build();
    Channel helidon = GrpcClient.builder().baseUri("http://127.0.0.1:" + port).tls(none).build().channel();
    for (String name : List.of("Good", "AtOnce", "AfterHeaders", "Stream")) {
      see("grpc-java", netty, name);
      see("Helidon", helidon, name);
    }
    System.exit(0);
  }
}
JAVA
(cd "$folder" && mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=classpath >&2)
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, os, pathlib, subprocess, sys
import grpc

folder = pathlib.Path(sys.argv[1])


def good(request, context):
    context.send_initial_metadata((("request-id", "1"),))
    return b"a"


def fail_at_once(request, context):
    context.set_trailing_metadata((("reason", "gone"),))
    context.abort(grpc.StatusCode.NOT_FOUND, "no such record")


def fail_after_headers(request, context):
    context.send_initial_metadata((("request-id", "1"),))
    fail_at_once(request, context)


def stream(request, context):
    yield b"a"
    yield b"b"
    context.set_trailing_metadata((("reason", "gone"),))
    context.abort(grpc.StatusCode.UNAVAILABLE, "no such record")


server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
handlers = {
    "Good": grpc.unary_unary_rpc_method_handler(good),
    "AtOnce": grpc.unary_unary_rpc_method_handler(fail_at_once),
    "AfterHeaders": grpc.unary_unary_rpc_method_handler(fail_after_headers),
    "Stream": grpc.unary_stream_rpc_method_handler(stream),
}
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", handlers)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
classpath = f"{folder / 'target/classes'}:{(folder / 'classpath').read_text().strip()}"
command = [pathlib.Path(os.environ["JAVA_HOME"]) / "bin/java", "-cp", classpath, "See", str(port)]
output = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
server.stop(None)
print(output, end="")
expected = [
    "grpc-java, Good: OK",
    "Helidon, Good: OK",
    "grpc-java, AtOnce: NOT_FOUND, no such record, gone",
    "Helidon, AtOnce: NOT_FOUND, null, null",
    "grpc-java, AfterHeaders: NOT_FOUND, no such record, gone",
    "Helidon, AfterHeaders: INTERNAL, No value received for unary call, null",
    "grpc-java, Stream: UNAVAILABLE, no such record, gone",
    "Helidon, Stream: UNAVAILABLE, null, null",
]
sys.exit(output.splitlines() != expected)
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
