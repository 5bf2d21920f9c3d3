#!/usr/bin/env bash
# java-grpc-prometheus never counts a call whose handler throws, and counts one that missed its deadline as OK.
#
# Versions: java-grpc-prometheus 0.6.0 with grpc-java 1.85.1 (Maven Central); JDK 17 or newer, Maven, Linux. The library
# says of its `grpc_server_handled_total`, in the help text of the metric, "Total number of RPCs completed on the
# server, regardless of success or failure"; started less handled are the calls that run. A server with its interceptor
# takes four calls: its handler answers, or fails with NOT_FOUND, or throws an IllegalStateException, as a bug does, or
# answers after two seconds a call whose deadline is one second.
#
# Seen: the client has OK, NOT_FOUND, UNKNOWN and DEADLINE_EXCEEDED. When all calls are over, four have started and
# three are handled: two with OK, and one with NOT_FOUND. The metric is counted where the handler closes the call
# (`MonitoringServerCall.close`). If a handler throws, grpc-java closes the call itself, past the interceptors; and if
# the call is over, its handler's answer goes nowhere, but counts. So of a server where half of the calls crash and the
# other half are too late, the rate of errors is zero, and its running calls seem to grow without an end.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
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
      <groupId>me.dinowernli</groupId>
      <artifactId>java-grpc-prometheus</artifactId>
      <version>0.6.0</version>
    </dependency>
    <dependency>
      <groupId>io.grpc</groupId>
      <artifactId>grpc-netty-shaded</artifactId>
      <version>1.85.1</version>
    </dependency>
    <dependency>
      <groupId>io.grpc</groupId>
      <artifactId>grpc-stub</artifactId>
      <version>1.85.1</version>
    </dependency>
  </dependencies>
</project>
XML
cat > "$folder/src/main/java/See.java" <<'JAVA'
import io.grpc.CallOptions;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerInterceptors;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import io.prometheus.client.Collector.MetricFamilySamples;
import io.prometheus.client.CollectorRegistry;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import me.dinowernli.grpc.prometheus.Configuration;
import me.dinowernli.grpc.prometheus.MonitoringServerInterceptor;

public final class See {
  private static final MethodDescriptor.Marshaller<String> STRINGS =
      new MethodDescriptor.Marshaller<>() {
        @Override
        public InputStream stream(String value) {
          return new ByteArrayInputStream(value.getBytes());
        }

        @Override
        public String parse(InputStream stream) {
          try {
            return new String(stream.readAllBytes());
          } catch (IOException error) {
            throw new AssertionError(error);
          }
        }
      };
  private static final MethodDescriptor<String, String> METHOD =
      MethodDescriptor.newBuilder(STRINGS, STRINGS)
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("a.B/C")
          .build();

  private static void answer(String kind, StreamObserver<String> answers) {
    if (kind.equals("refuse")) {
      answers.onError(Status.NOT_FOUND.asRuntimeException());
      return;
    }
    if (kind.equals("throw")) {
      throw new IllegalStateException("a bug");
    }
    if (kind.equals("late")) {
      try {
        Thread.sleep(2000);
      } catch (InterruptedException error) {
        throw new AssertionError(error);
      }
    }
    answers.onNext(kind);
    answers.onCompleted();
  }

  public static void main(String[] args) throws Exception {
    CollectorRegistry registry = new CollectorRegistry();
    Configuration configuration = Configuration.cheapMetricsOnly().withCollectorRegistry(registry);
    ServerServiceDefinition service =
        ServerServiceDefinition.builder("a.B").addMethod(METHOD, ServerCalls.asyncUnaryCall(See::answer)).build();
    Server server =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .addService(ServerInterceptors.intercept(service, MonitoringServerInterceptor.create(configuration)))
            .build()
            .start();
    String address = "127.0.0.1:" + server.getPort();
    ManagedChannel channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
    List<String> ends = new ArrayList<>();
    for (String kind : List.of("answer", "refuse", "throw", "late")) {
      CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(kind.equals("late") ? 1 : 20, TimeUnit.SECONDS);
      try {
        ClientCalls.blockingUnaryCall(channel, METHOD, options, kind);
        ends.add("OK");
      } catch (StatusRuntimeException error) {
        ends.add(error.getStatus().getCode().name());
      }
    }
    Thread.sleep(4000); // the late handler answers
    Map<String, Integer> counts = new TreeMap<>();
    for (MetricFamilySamples family : Collections.list(registry.metricFamilySamples())) {
      for (MetricFamilySamples.Sample sample : family.samples) {
        int code = sample.labelNames.indexOf("code");
        if (sample.name.equals("grpc_server_started_total")) {
          counts.put("started", (int) sample.value);
        } else if (sample.name.equals("grpc_server_handled_total")) {
          counts.put(sample.labelValues.get(code), (int) sample.value);
        }
      }
    }
    System.out.println("client: " + ends + "; server's metrics: " + counts);
    boolean right =
        ends.equals(List.of("OK", "NOT_FOUND", "UNKNOWN", "DEADLINE_EXCEEDED"))
            && counts.equals(Map.of("started", 4, "OK", 2, "NOT_FOUND", 1));
    System.exit(right ? 0 : 1);
  }
}
JAVA
(cd "$folder" && mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=classpath >&2)
timeout 100 java -Djava.util.logging.config.file=/dev/null -cp "$folder/target/classes:$(cat "$folder/classpath")" See
