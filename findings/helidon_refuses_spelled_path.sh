#!/usr/bin/env bash
# Helidon's gRPC server ends each connection of grpcio at its first call: it takes no `:path` spelled out in HPACK.
#
# Versions: helidon-webserver-grpc 4.5.0 with grpc-services 1.73.0 (Maven Central), grpcio 1.85.3; a JDK 21 or newer as
# JAVA_HOME, Maven, Python 3.11 or newer, Linux. HPACK lets a client name a header by its number in a table or spell the
# name out, as it likes (RFC 7541, section 6.2). A Helidon server has the method Check of gRPC's health service. grpcio
# calls it; then a raw HTTP/2 client sends the same request four times: with the numbers of the static table, and with
# one name spelled out, of `:path`, `:authority` and `content-type`. A listener notes how grpcio writes `:path`.
#
# Seen: grpcio spells `:path` out. Its calls end with UNAVAILABLE "GOAWAY received; Error code: 1", PROTOCOL_ERROR with
# no text, so a policy repeats them. The raw request is answered with the numbers and with `content-type` spelled out,
# and gets the same GOAWAY for `:path` and `:authority`. Clients that use the table, such as grpc-go, work.
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
      <groupId>io.helidon.webserver</groupId>
      <artifactId>helidon-webserver-grpc</artifactId>
      <version>4.5.0</version>
    </dependency>
    <dependency>
      <groupId>com.google.protobuf</groupId>
      <artifactId>protobuf-java</artifactId>
      <version>4.29.3</version>
    </dependency>
    <dependency>
      <groupId>io.grpc</groupId>
      <artifactId>grpc-services</artifactId>
      <version>1.73.0</version>
    </dependency>
  </dependencies>
</project>
XML
cat > "$folder/src/main/java/See.java" <<'JAVA'
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthCheckResponse;
import io.grpc.health.v1.HealthProto;
import io.grpc.stub.StreamObserver;
import io.helidon.webserver.WebServer;
import io.helidon.webserver.grpc.GrpcRouting;

/** Serves Health/Check and prints its port. */
public final class See {
  static void check(HealthCheckRequest request, StreamObserver<HealthCheckResponse> observer) {
    observer.onNext(HealthCheckResponse.getDefaultInstance());
    observer.onCompleted();
  }

  public static void main(String[] args) {
    GrpcRouting.Builder routing =
        GrpcRouting.builder().unary(HealthProto.getDescriptor(), "grpc.health.v1.Health", "Check", See::check);
    System.out.println(WebServer.builder().host("127.0.0.1").port(0).addRouting(routing).build().start().port());
  }
}
JAVA
(cd "$folder" && mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=classpath >&2)
cat > "$folder/see.py" <<'PYTHON'
import os, pathlib, socket, subprocess, sys
import grpc

folder = pathlib.Path(sys.argv[1])
METHOD = "/grpc.health.v1.Health/Check"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Name, number in HPACK's static table, value.
FIELDS = [(":path", 4, METHOD), (":authority", 1, "127.0.0.1"), ("content-type", 31, "application/grpc")]


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def text(value):
    return bytes([len(value)]) + value.encode()


def read(sock):
    """Return all that comes until the peer closes or is quiet for two seconds."""
    sock.settimeout(2)
    data = b""
    try:
        while more := sock.recv(65536):
            data += more
    except (TimeoutError, ConnectionError):
        pass
    return data


def call(channel):
    try:
        channel.unary_unary(METHOD)(b"", timeout=10)
    except grpc.RpcError as error:
        return f"{error.code().name} {error.details()}"
    return "OK"


def raw(port, spelled):
    """Return how the server ends the request if this name is spelled out."""
    block = b"\x83\x86"  # POST and http, by number
    for name, number, value in FIELDS:
        block += (b"\x40" + text(name) if name == spelled else bytes([0x40 | number])) + text(value)
    block += b"\x40" + text("te") + text("trailers")
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(PREFACE + frame(4, 0, 0) + frame(1, 4, 1, block) + frame(0, 1, 1, bytes(5)))
        data, end = read(sock), "nothing"
    while len(data) >= 9:
        size = int.from_bytes(data[:3])
        if data[3] == 7:
            end = f"GOAWAY {int.from_bytes(data[13:17])}"
        elif data[3] == 1 and data[4] & 1:
            end = "answer"
        data = data[9 + size :]
    return end


with socket.create_server(("127.0.0.1", 0)) as listener:
    with grpc.insecure_channel(f"127.0.0.1:{listener.getsockname()[1]}") as channel:
        pending = channel.unary_unary(METHOD).future(b"", timeout=10)
        with listener.accept()[0] as sock:
            sock.sendall(frame(4, 0, 0))
            spells = text(":path") in read(sock)
        pending.cancel()
classpath = f"{folder / 'target/classes'}:{(folder / 'classpath').read_text().strip()}"
command = [f"{os.environ['JAVA_HOME']}/bin/java", "-cp", classpath, "See"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
try:
    port = int(server.stdout.readline())
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        calls = [call(channel) for _ in range(3)]
    ends = {spelled or "nothing": raw(port, spelled) for spelled in ("", ":path", ":authority", "content-type")}
finally:
    server.kill()
    server.wait()
print(f"grpcio spells :path out: {spells}; its calls: {calls}\nraw request, by what is spelled out: {ends}")
expected = {"nothing": "answer", ":path": "GOAWAY 1", ":authority": "GOAWAY 1", "content-type": "answer"}
failed = all(end.startswith("UNAVAILABLE") and "GOAWAY received; Error code: 1;" in end for end in calls)
sys.exit(not (spells and failed and ends == expected))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
