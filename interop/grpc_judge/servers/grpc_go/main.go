// Command server serves EmptyCall with grpc-go. servers/README.md documents its arguments and output.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// answerAfter is the metadata key of a request that holds how long to delay the answer.
const answerAfter = "answer-after-ms"

func main() {
	log.SetFlags(0)
	port := flag.Int("port", 0, "where to listen, on 127.0.0.1; 0 for any free port")
	maxAge := flag.Int("max-age-ms", 0, "MAX_CONNECTION_AGE; 0 for none")
	grace := flag.Int("grace-ms", 1000, "MAX_CONNECTION_AGE_GRACE")
	flag.Parse()

	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	var options []grpc.ServerOption
	if *maxAge != 0 {
		options = append(options, grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge:      milliseconds(*maxAge),
			MaxConnectionAgeGrace: milliseconds(*grace),
		}))
	}
	server := grpc.NewServer(options...)
	testpb.RegisterTestServiceServer(server, service{})
	go endWithParent()
	drained := drainWhenTold(server)
	sayListening(listener)
	if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		log.Fatal(err)
	}
	<-drained
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// endWithParent exits at the end of standard input.
func endWithParent() {
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// drainWhenTold stops the server gracefully on SIGTERM; the channel it returns is closed once running calls have ended.
func drainWhenTold(server *grpc.Server) <-chan struct{} {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	drained := make(chan struct{})
	go func() {
		<-told
		server.GracefulStop()
		close(drained)
	}()
	return drained
}

func sayListening(listener net.Listener) {
	err := json.NewEncoder(os.Stdout).Encode(map[string]any{
		"event":    "listening",
		"port":     listener.Addr().(*net.TCPAddr).Port,
		"versions": map[string]string{"grpc-go": grpc.Version, "go": strings.TrimPrefix(runtime.Version(), "go")},
	})
	if err != nil {
		log.Fatal(err)
	}
}

type service struct {
	testpb.UnimplementedTestServiceServer
}

// EmptyCall answers after the number of milliseconds given in the request's metadata.
func (service) EmptyCall(ctx context.Context, _ *testpb.Empty) (*testpb.Empty, error) {
	delay, err := delayOf(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(delay):
		return &testpb.Empty{}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func delayOf(ctx context.Context) (time.Duration, error) {
	said := metadata.ValueFromIncomingContext(ctx, answerAfter)
	if len(said) == 0 {
		return 0, nil
	}
	delay, err := strconv.ParseUint(said[0], 10, 31)
	if err != nil {
		return 0, status.Errorf(codes.InvalidArgument, "%s is not a number of milliseconds", answerAfter)
	}
	return milliseconds(int(delay)), nil
}
