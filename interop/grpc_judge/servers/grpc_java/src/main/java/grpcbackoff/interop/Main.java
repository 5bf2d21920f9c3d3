package grpcbackoff.interop;

import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * Serves EmptyCall with grpc-java. servers/README.md documents its arguments and output.
 */
public final class Main {
  private static final long DRAIN_SECONDS = 30;

  private static final Metadata.Key<String> ANSWER_AFTER =
      Metadata.Key.of("answer-after-ms", Metadata.ASCII_STRING_MARSHALLER);

  private static final ScheduledExecutorService TIMER =
      Executors.newSingleThreadScheduledExecutor();

  private Main() {}

  public static void main(String[] args) throws IOException {
    Map<String, String> order = new HashMap<>();
    for (int i = 0; i + 1 < args.length; i += 2) {
      order.put(args[i].replaceFirst("^--", ""), args[i + 1]);
    }
    Server server = start(order);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> drain(server)));
    System.out.printf(
        "{\"event\": \"listening\", \"port\": %d,"
            + " \"versions\": {\"grpc-java\": \"%s\", \"java\": \"%s\"}}%n",
        server.getPort(),
        Server.class.getPackage().getImplementationVersion(),
        System.getProperty("java.version"));
    while (System.in.read() != -1) {}
    Runtime.getRuntime().halt(0);
  }

  private static Server start(Map<String, String> order) throws IOException {
    int port = Integer.parseInt(order.getOrDefault("port", "0"));
    NettyServerBuilder builder =
        NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", port))
            .addService(
                ServerServiceDefinition.builder("grpc.testing.TestService")
                    .addMethod(EmptyCall.METHOD, Main::answer)
                    .build());
    if (order.containsKey("max-age-ms")) {
      long age = Long.parseLong(order.get("max-age-ms"));
      long grace = Long.parseLong(order.getOrDefault("grace-ms", "1000"));
      builder
          .maxConnectionAge(age, TimeUnit.MILLISECONDS) // grpc-java enforces a minimum of a second
          .maxConnectionAgeGrace(grace, TimeUnit.MILLISECONDS);
    }
    return builder.build().start();
  }

  private static ServerCall.Listener<Void> answer(ServerCall<Void, Void> call, Metadata headers) {
    String after = headers.get(ANSWER_AFTER);
    long millis = after == null ? 0 : Long.parseLong(after);
    call.request(1);
    return new ServerCall.Listener<>() {
      @Override
      public void onHalfClose() {
        TIMER.schedule(this::finish, millis, TimeUnit.MILLISECONDS);
      }

      private void finish() {
        call.sendHeaders(new Metadata());
        call.sendMessage(null);
        call.close(Status.OK, new Metadata());
      }
    };
  }

  /** Waits for running calls to end, on SIGTERM, and exits with status 0 instead of the signal's. */
  private static void drain(Server server) {
    try {
      server.shutdown().awaitTermination(DRAIN_SECONDS, TimeUnit.SECONDS);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
    Runtime.getRuntime().halt(0);
  }
}
