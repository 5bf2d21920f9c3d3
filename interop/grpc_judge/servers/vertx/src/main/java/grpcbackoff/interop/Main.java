package grpcbackoff.interop;

import io.vertx.core.Vertx;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.http.HttpServer;
import io.vertx.core.http.HttpServerRequest;
import io.vertx.core.http.HttpServerResponse;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Serves EmptyCall with Vert.x, without gRPC's own library. servers/README.md documents its
 * arguments and output.
 */
public final class Main {
  private static final long DRAIN_SECONDS = 15;

  /** An empty message: not compressed, no bytes. */
  private static final byte[] EMPTY = new byte[5];

  private Main() {}

  public static void main(String[] args) throws Exception {
    Map<String, String> order = new HashMap<>();
    for (int i = 0; i + 1 < args.length; i += 2) {
      order.put(args[i].replaceFirst("^--", ""), args[i + 1]);
    }
    Vertx vertx = Vertx.vertx();
    HttpServer server =
        vertx
            .createHttpServer()
            .requestHandler(request -> request.end().onSuccess(read -> answerLater(vertx, request)))
            .listen(Integer.parseInt(order.getOrDefault("port", "0")), "127.0.0.1")
            .toCompletionStage()
            .toCompletableFuture()
            .get();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> drain(server)));
    System.out.printf(
        "{\"event\": \"listening\", \"port\": %d,"
            + " \"versions\": {\"vert.x\": \"%s\", \"java\": \"%s\"}}%n",
        server.actualPort(), version(), System.getProperty("java.version"));
    while (System.in.read() != -1) {}
    Runtime.getRuntime().halt(0);
  }

  private static String version() throws IOException {
    try (var stream = Vertx.class.getResourceAsStream("/META-INF/vertx/vertx-version.txt")) {
      return new String(stream.readAllBytes()).strip();
    }
  }

  private static void answerLater(Vertx vertx, HttpServerRequest request) {
    String after = request.getHeader("answer-after-ms");
    if (after == null || after.equals("0")) {
      answer(request.response());
    } else {
      vertx.setTimer(Long.parseLong(after), timer -> answer(request.response()));
    }
  }

  private static void answer(HttpServerResponse response) {
    if (response.closed()) {
      return; // the client has cancelled the call
    }
    response
        .setChunked(true)
        .putHeader("content-type", "application/grpc")
        .putTrailer("grpc-status", "0")
        .end(Buffer.buffer(EMPTY));
  }

  /** Waits for running calls to end, on SIGTERM, and exits with status 0 instead of the signal's. */
  private static void drain(HttpServer server) {
    try {
      server
          .shutdown(DRAIN_SECONDS, TimeUnit.SECONDS)
          .toCompletionStage()
          .toCompletableFuture()
          .get(DRAIN_SECONDS + 1, TimeUnit.SECONDS);
    } catch (Exception error) {
      System.err.println(error);
    }
    Runtime.getRuntime().halt(0);
  }
}
