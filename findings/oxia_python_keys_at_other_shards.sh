#!/usr/bin/env bash
# Oxia's Python client looks for keys at other shards than its Java client: it finds a quarter of what that one wrote.
#
# Versions: oxia 0.2.1 with betterproto2 0.9.0 and xxhash 3.6.0, as it does not work with the newest of these (PyPI),
# oxia-client 0.7.4 (Maven Central), grpcio 1.85.3 for a server with Oxia's protocol; JDK 17 or newer, Maven, Python
# 3.11 or newer, Linux. Oxia spreads keys over shards, and it is the client that chooses the shard: the server's
# assignments give each shard a range of hashes, and name the hash, XXHASH3. The Python client refuses assignments that
# name another one. A server has four shards of equal ranges, and keeps what a client puts into a shard there, as each
# shard of Oxia is a store of its own. Each client puts a hundred keys and gets them and those of the other one. Last,
# the Python client lists all keys.
#
# Seen: each client finds all its own keys. The Python client finds 24 of the hundred that the Java client put, and the
# Java client 21 of the other way; for the rest each is told that there is no such key. The list of the Python client
# has all of them, since a list asks all shards: it has keys that a get does not find. The Python client hashes with
# XXH64, the Java client with XXH3, as Oxia's Go client does. So a service in Python that shares a namespace with one in
# another language misses three quarters of its keys, and what it puts under them goes beside them, unseen by the other.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet oxia==0.2.1 betterproto2==0.9.0 xxhash==3.6.0 grpcio==1.85.3
mkdir -p "$folder/src/main/java"
cat > "$folder/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>a</groupId>
  <artifactId>see</artifactId>
  <version>0</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source>
    <maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>io.github.oxia-db</groupId>
      <artifactId>oxia-client</artifactId>
      <version>0.7.4</version>
    </dependency>
  </dependencies>
</project>
XML
cat > "$folder/src/main/java/See.java" <<'JAVA'
import io.oxia.client.api.OxiaClientBuilder;
import io.oxia.client.api.SyncOxiaClient;

/** Puts a hundred keys and prints how many of them, and of those of the Python client, it then finds. */
public final class See {
  public static void main(String[] args) throws Exception {
    int own = 0;
    int other = 0;
    try (SyncOxiaClient client = OxiaClientBuilder.create(args[0]).syncClient()) {
      for (int i = 0; i < 100; i++) client.put("java-" + i, new byte[0]);
      for (int i = 0; i < 100; i++) {
        if (client.get("java-" + i) != null) own++;
        if (client.get("python-" + i) != null) other++;
      }
    }
    System.out.println(own + " " + other);
    System.exit(0);
  }
}
JAVA
(cd "$folder" && mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=classpath >&2)
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, pathlib, subprocess, sys, threading
import grpc
import oxia
import oxia.ex
from oxia.internal.proto.io.streamnative.oxia import proto as pb

folder = pathlib.Path(sys.argv[1])
shards = [{} for _ in range(4)]


def assign(request, context):
    ended = threading.Event()
    context.add_callback(ended.set)
    namespace = pb.NamespaceShardsAssignment(shard_key_router=pb.ShardKeyRouter.XXHASH3)
    for shard in range(4):
        part = pb.Int32HashRange(min_hash_inclusive=shard << 30, max_hash_inclusive=(shard + 1 << 30) - 1)
        namespace.assignments.append(pb.ShardAssignment(shard=shard, leader=address, int32_hash_range=part))
    yield pb.ShardAssignments(namespaces={"default": namespace})
    ended.wait()


def write(request, context):
    told = dict(context.invocation_metadata()).get("shard-id")
    shard = shards[int(told) if request.shard is None else request.shard]
    shard.update((put.key, put.value) for put in request.puts)
    return pb.WriteResponse(puts=[pb.PutResponse(version=pb.Version()) for _ in request.puts])


def write_stream(requests, context):
    for request in requests:
        yield write(request, context)


def read(request, context):
    found = [shards[request.shard].get(get.key) for get in request.gets]
    missing = pb.GetResponse(status=pb.Status.KEY_NOT_FOUND)
    gets = [missing if value is None else pb.GetResponse(version=pb.Version(), value=value) for value in found]
    yield pb.ReadResponse(gets=gets)


def list_keys(request, context):
    yield pb.ListResponse(keys=sorted(shards[request.shard]))


def finds(key):
    try:
        return bool(client.get(key))
    except oxia.ex.KeyNotFound:
        return False


methods = {
    "GetShardAssignments": grpc.unary_stream_rpc_method_handler(assign, None, bytes),
    "Write": grpc.unary_unary_rpc_method_handler(write, pb.WriteRequest.parse, bytes),
    "WriteStream": grpc.stream_stream_rpc_method_handler(write_stream, pb.WriteRequest.parse, bytes),
    "Read": grpc.unary_stream_rpc_method_handler(read, pb.ReadRequest.parse, bytes),
    "List": grpc.unary_stream_rpc_method_handler(list_keys, pb.ListRequest.parse, bytes),
}
server = grpc.server(concurrent.futures.ThreadPoolExecutor(32))
service = grpc.method_handlers_generic_handler("io.streamnative.oxia.proto.OxiaClient", methods)
server.add_generic_rpc_handlers([service])
address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
server.start()
client = oxia.Client(address)
for number in range(100):
    client.put(f"python-{number}", b"")
classpath = f"{folder / 'target/classes'}:{(folder / 'classpath').read_text().strip()}"
command = ["java", "-cp", classpath, "See", address]
run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60, check=True)
java = [int(word) for word in run.stdout.split()]
python = [sum(finds(f"{name}-{number}") for number in range(100)) for name in ("java", "python")]
listed = sum(key.startswith("java-") for key in client.list("", "~"))
print(f"of the keys of Java, Java finds {java[0]} and Python {python[0]}, whose list has {listed}")
print(f"of the keys of Python, Python finds {python[1]} and Java {java[1]}")
client.close()
server.stop(None)
sys.exit(not (java[0] == python[1] == listed == 100 and 10 < java[1] < 45 and 10 < python[0] < 45))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 120 "$folder/venv/bin/python" "$folder/see.py" "$folder"
