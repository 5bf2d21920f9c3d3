package grpcbackoff.interop;

import io.grpc.MethodDescriptor;
import java.io.ByteArrayInputStream;
import java.io.InputStream;

/**
 * The method that is called: an empty message for request and for answer, so no generated code is
 * needed.
 */
final class EmptyCall {
  private enum Empty implements MethodDescriptor.Marshaller<Void> {
    MARSHALLER;

    @Override
    public InputStream stream(Void message) {
      return new ByteArrayInputStream(new byte[0]);
    }

    @Override
    public Void parse(InputStream stream) {
      return null;
    }
  }

  static final MethodDescriptor<Void, Void> METHOD =
      MethodDescriptor.newBuilder(Empty.MARSHALLER, Empty.MARSHALLER)
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("grpc.testing.TestService/EmptyCall")
          .build();

  private EmptyCall() {}
}
