package grpcbackoff.interop;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptors;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Keeps one channel of grpc-java busy. clients/README.md documents its arguments and
 * output.
 */
public final class Peer {
  private static final long GRACE_MILLIS = 1000;

  private static final Metadata.Key<String> CALL_ID =
      Metadata.Key.of("call-id", Metadata.ASCII_STRING_MARSHALLER);

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
    ChannelCredentials credentials = peer.credentials();
    warmUp(credentials);
    System.out.println("{\"event\": \"ready\"}");
    if (!hears()) {
      return;
    }
    peer.run(Grpc.newChannelBuilder(order.get("target"), credentials).build());
  }

  /** Loads the classes that connecting needs, by dialling a port that refuses. */
  private static void warmUp(ChannelCredentials credentials) throws IOException {
    int port;
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      port = socket.getLocalPort();
    }
    ManagedChannel channel = Grpc.newChannelBuilder("127.0.0.1:" + port, credentials).build();
    try {
      ClientCalls.blockingUnaryCall(channel, EmptyCall.METHOD, CallOptions.DEFAULT, null);
    } catch (StatusRuntimeException refused) {
      channel.shutdownNow();
    }
  }

  private ChannelCredentials credentials() throws IOException {
    return order.containsKey("ca")
        ? TlsChannelCredentials.newBuilder().trustManager(new File(order.get("ca"))).build()
        : InsecureChannelCredentials.create();
  }

  private void run(ManagedChannel channel) throws InterruptedException {
    long millis = (long) (1000 * Double.parseDouble(order.get("seconds")));
    int count = Integer.parseInt(order.getOrDefault("workers", "1"));
    ExecutorService workers = Executors.newFixedThreadPool(count);
    for (int i = 0; i < count; i++) {
      int number = i;
      workers.submit(() -> work(channel, number));
    }
    workers.shutdown();
    Thread listener = new Thread(this::stopWhenTold);
    listener.setDaemon(true);
    listener.start();
    over.await(millis, TimeUnit.MILLISECONDS);
    over.countDown();
    workers.awaitTermination(GRACE_MILLIS, TimeUnit.MILLISECONDS);
    System.out.println(tally.done(versions()));
    channel.shutdownNow(); // cancels running calls
    System.exit(0);
  }

  private Void work(ManagedChannel channel, int number) throws InterruptedException {
    CallOptions options = CallOptions.DEFAULT;
    if (number % 2 == 1) {
      options = options.withWaitForReady();
    }
    long pause = Long.parseLong(order.getOrDefault("pause-ms", "20"));
    for (int call = 0; over.getCount() > 0; call++) {
      tally.making();
      try {
        Channel named = withId(channel, number + "-" + call);
        ClientCalls.blockingUnaryCall(named, EmptyCall.METHOD, options, null);
        tally.succeeded();
      } catch (StatusRuntimeException error) {
        tally.failed(error.getStatus().getCode().name());
      }
      Thread.sleep(pause);
    }
    return null;
  }

  private static Channel withId(Channel channel, String id) {
    Metadata headers = new Metadata();
    headers.put(CALL_ID, id);
    return ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(headers));
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
    String grpc = ManagedChannel.class.getPackage().getImplementationVersion();
    return Map.of("grpc-java", grpc, "java", System.getProperty("java.version"));
  }
}
