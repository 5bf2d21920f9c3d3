// Command server serves EmptyCall with Go's net/http, without gRPC's own library. servers/README.md documents its
// arguments and output.
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
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// answerAfter is the header of a request that holds how many milliseconds to delay the answer.
	answerAfter = "answer-after-ms"
	// drain is how long running calls may continue after SIGTERM.
	drain = 30 * time.Second
)

// empty is an empty message: not compressed, no bytes.
var empty = make([]byte, 5)

func main() {
	log.SetFlags(0)
	port := flag.Int("port", 0, "where to listen, on 127.0.0.1; 0 for any free port")
	flag.Parse()

	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /grpc.testing.TestService/EmptyCall", emptyCall)
	server := &http.Server{Handler: mux, Protocols: protocols}
	go endWithParent()
	drained := drainWhenTold(server)
	sayListening(listener)
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	<-drained
}

// endWithParent exits at the end of standard input.
func endWithParent() {
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// drainWhenTold stops the server gracefully on SIGTERM; the channel it returns is closed once running calls have ended.
func drainWhenTold(server *http.Server) <-chan struct{} {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	drained := make(chan struct{})
	go func() {
		<-told
		within, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		server.Shutdown(within)
		close(drained)
	}()
	return drained
}

func sayListening(listener net.Listener) {
	err := json.NewEncoder(os.Stdout).Encode(map[string]any{
		"event":    "listening",
		"port":     listener.Addr().(*net.TCPAddr).Port,
		"versions": map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go")},
	})
	if err != nil {
		log.Fatal(err)
	}
}

// emptyCall answers after the number of milliseconds given in the request's headers.
func emptyCall(writer http.ResponseWriter, request *http.Request) {
	delay, _ := strconv.ParseUint(request.Header.Get(answerAfter), 10, 31)
	io.Copy(io.Discard, request.Body)
	select {
	case <-time.After(time.Duration(delay) * time.Millisecond):
	case <-request.Context().Done():
		return
	}
	header := writer.Header()
	header.Set("Content-Type", "application/grpc")
	header.Set(http.TrailerPrefix+"Grpc-Status", "0")
	writer.Write(empty)
}
