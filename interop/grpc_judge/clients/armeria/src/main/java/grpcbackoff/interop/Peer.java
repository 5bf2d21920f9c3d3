package grpcbackoff.interop;

import com.linecorp.armeria.client.ClientFactory;
import com.linecorp.armeria.client.Clients;
import com.linecorp.armeria.client.grpc.GrpcClients;
import com.linecorp.armeria.common.util.SafeCloseable;
import com.linecorp.armeria.common.util.Version;
import grpcbackoff.interop.TestServiceGrpc.TestServiceBlockingStub;
import io.grpc.StatusRuntimeException;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Keeps one client of Armeria busy. clients/README.md documents its arguments and output. */
public final class Peer {
  private static final long GRACE_MILLIS = 1000;

  private final Map<String, String> order;
  private final Tally tally = new Tally();
  private final CountDownLatch over = new CountDownLatch(1);

  private Peer(Map<String, String> order) {
    this.order = order;
  }

  public static void main(String[] args) throws Exception {
    Map<String, String> order = new HashMap<>();
    for (int i = 0; i + 1 < args.length; i += 2) {
      order.put(args[i].replaceFirst("^--", ""), args[i + 1]);
    }
    Peer peer = new Peer(order);
    peer.warmUp();
    System.out.println("{\"event\": \"ready\"}");
    if (!hears()) {
      return;
    }
    peer.run(peer.client(order.get("target")));
  }

  /** Loads the classes that connecting needs, by dialling a port that refuses. */
  private void warmUp() throws IOException {
    int port;
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      port = socket.getLocalPort();
    }
    try {
      client("127.0.0.1:" + port).emptyCall();
    } catch (StatusRuntimeException refused) {
      // as expected
    }
  }

  /** Returns a client without a limit of time, since the server would be told of one. */
  private TestServiceBlockingStub client(String target) {
    String scheme = "gproto+h2c";
    ClientFactory factory = ClientFactory.ofDefault();
    if (order.containsKey("ca")) {
      scheme = "gproto+h2";
      File authority = new File(order.get("ca"));
      factory =
          ClientFactory.builder().tlsCustomizer(tls -> tls.trustManager(authority)).build();
    }
    return GrpcClients.builder(scheme + "://" + target)
        .factory(factory)
        .responseTimeout(Duration.ZERO)
        .build(TestServiceBlockingStub.class);
  }

  private void run(TestServiceBlockingStub client) throws InterruptedException {
    long millis = (long) (1000 * Double.parseDouble(order.get("seconds")));
    int count = Integer.parseInt(order.getOrDefault("workers", "1"));
    ExecutorService workers = Executors.newFixedThreadPool(count);
    for (int i = 0; i < count; i++) {
      int number = i;
      workers.submit(() -> work(client, number));
    }
    workers.shutdown();
    Thread listener = new Thread(this::stopWhenTold);
    listener.setDaemon(true);
    listener.start();
    over.await(millis, TimeUnit.MILLISECONDS);
    over.countDown();
    workers.awaitTermination(GRACE_MILLIS, TimeUnit.MILLISECONDS);
    System.out.println(tally.done(versions()));
    System.exit(0); // cancels running calls
  }

  /** Makes one call after another. Armeria has no wait-for-ready calls: all workers are alike. */
  private Void work(TestServiceBlockingStub client, int number) throws InterruptedException {
    long pause = Long.parseLong(order.getOrDefault("pause-ms", "20"));
    for (int call = 0; over.getCount() > 0; call++) {
      tally.making();
      try (SafeCloseable named = Clients.withHeader("call-id", number + "-" + call)) {
        client.emptyCall();
        tally.succeeded();
      } catch (StatusRuntimeException error) {
        tally.failed(error.getStatus().getCode().name());
      }
      Thread.sleep(pause);
    }
    return null;
  }

  /** Waits for a line, of which the first starts the calls; returns whether there was one. */
  private static boolean hears() throws IOException {
    int letter = System.in.read();
    boolean heard = letter != -1;
    while (letter != -1 && letter != '\n') {
      letter = System.in.read();
    }
    return heard;
  }

  /** Ends the time for calls early if there is a second line. */
  private void stopWhenTold() {
    try {
      if (hears()) {
        over.countDown();
      }
    } catch (IOException closed) {
      // as good as no line
    }
  }

  private static Map<String, String> versions() {
    String armeria = Version.get("armeria-grpc", Peer.class.getClassLoader()).artifactVersion();
    return Map.of("armeria", armeria, "java", System.getProperty("java.version"));
  }
}
