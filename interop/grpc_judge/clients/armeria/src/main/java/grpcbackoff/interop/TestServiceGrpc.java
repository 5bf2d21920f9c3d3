package grpcbackoff.interop;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.MethodDescriptor;
import io.grpc.ServiceDescriptor;
import io.grpc.stub.AbstractBlockingStub;
import io.grpc.stub.ClientCalls;
import java.io.ByteArrayInputStream;
import java.io.InputStream;

/**
 * As if generated from a .proto file: a service whose method has an empty message for request and
 * for answer.
 */
public final class TestServiceGrpc {
  private static final String SERVICE = "grpc.testing.TestService";

  private enum Empty implements MethodDescriptor.Marshaller<byte[]> {
    MARSHALLER;

    @Override
    public InputStream stream(byte[] message) {
      return new ByteArrayInputStream(message);
    }

    @Override
    public byte[] parse(InputStream stream) {
      return new byte[0];
    }
  }

  private static final MethodDescriptor<byte[], byte[]> EMPTY_CALL =
      MethodDescriptor.newBuilder(Empty.MARSHALLER, Empty.MARSHALLER)
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName(SERVICE + "/EmptyCall")
          .build();

  private static final ServiceDescriptor DESCRIPTOR =
      ServiceDescriptor.newBuilder(SERVICE).addMethod(EMPTY_CALL).build();

  public static ServiceDescriptor getServiceDescriptor() {
    return DESCRIPTOR;
  }

  public static TestServiceBlockingStub newBlockingStub(Channel channel) {
    return new TestServiceBlockingStub(channel, CallOptions.DEFAULT);
  }

  /** The stub for blocking calls. */
  public static final class TestServiceBlockingStub
      extends AbstractBlockingStub<TestServiceBlockingStub> {
    private TestServiceBlockingStub(Channel channel, CallOptions options) {
      super(channel, options);
    }

    @Override
    protected TestServiceBlockingStub build(Channel channel, CallOptions options) {
      return new TestServiceBlockingStub(channel, options);
    }

    /** Makes a call and waits for its answer. */
    public void emptyCall() {
      ClientCalls.blockingUnaryCall(getChannel(), EMPTY_CALL, getCallOptions(), new byte[0]);
    }
  }

  private TestServiceGrpc() {}
}
