// Command peer keeps one client of connect-go busy. clients/README.md documents its arguments and output.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"
)

// grace is how long running calls may continue when the time has passed.
const grace = time.Second

const method = "/grpc.testing.TestService/EmptyCall"

// order holds the command-line arguments.
type order struct {
	target  string
	seconds time.Duration
	workers int
	pause   time.Duration
	ca      string
}

type client = connect.Client[emptypb.Empty, emptypb.Empty]

func main() {
	log.SetFlags(0)
	told := readOrder()
	say(map[string]any{"event": "ready"})
	if !heard() {
		return
	}
	transport, err := transportFor(told)
	if err != nil {
		log.Fatal(err)
	}
	scheme := "http"
	if told.ca != "" {
		scheme = "https"
	}
	url := scheme + "://" + told.target + method
	caller := connect.NewClient[emptypb.Empty, emptypb.Empty](&http.Client{Transport: transport}, url, connect.WithGRPC())
	calls := keepBusy(caller, told)
	transport.CloseIdleConnections()
	say(calls.account())
}

func readOrder() order {
	var told order
	flag.StringVar(&told.target, "target", "", "where to connect")
	seconds := flag.Float64("seconds", 0, "for how long to make calls")
	flag.IntVar(&told.workers, "workers", 1, "how many calls are made at a time")
	pause := flag.Int("pause-ms", 20, "how long a worker pauses after each call")
	flag.StringVar(&told.ca, "ca", "", "use TLS, and trust the certificate authority in this file")
	flag.Parse()
	told.seconds = time.Duration(*seconds * float64(time.Second))
	told.pause = time.Duration(*pause) * time.Millisecond
	return told
}

var input = bufio.NewReader(os.Stdin)

// heard waits for a line, of which the first starts the calls and the second ends them; it reports whether there was one.
func heard() bool {
	line, _ := input.ReadString('\n')
	return line != ""
}

func say(what map[string]any) {
	if err := json.NewEncoder(os.Stdout).Encode(what); err != nil {
		log.Fatal(err)
	}
}

// transportFor returns net/http's transport, with its defaults and HTTP/2 alone, which gRPC needs.
func transportFor(told order) (*http.Transport, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Protocols = new(http.Protocols)
	if told.ca == "" {
		transport.Protocols.SetUnencryptedHTTP2(true)
		return transport, nil
	}
	transport.Protocols.SetHTTP2(true)
	authority, err := os.ReadFile(told.ca)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s: no certificate in this file", told.ca)
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: trusted}
	return transport, nil
}

// keepBusy makes calls until the time has passed. connect-go has no wait-for-ready calls, so all workers make the same
// kind.
func keepBusy(caller *client, told order) *tally {
	calls := &tally{failed: map[string]int{}}
	over, end := context.WithTimeout(context.Background(), told.seconds)
	ctx, cancel := context.WithCancel(context.Background()) // no deadline, which the server would be told
	defer cancel()
	context.AfterFunc(over, func() { time.AfterFunc(grace, cancel) })
	go func() {
		if heard() {
			end()
		}
	}()
	var workers sync.WaitGroup
	for number := range told.workers {
		workers.Go(func() {
			for call := 0; over.Err() == nil; call++ {
				request := connect.NewRequest(&emptypb.Empty{})
				request.Header().Set("call-id", fmt.Sprintf("%d-%d", number, call))
				calls.begin()
				_, err := caller.CallUnary(ctx, request)
				if ctx.Err() != nil {
					return // cancelled, and so unfinished
				}
				calls.end(err)
				time.Sleep(told.pause)
			}
		})
	}
	workers.Wait()
	return calls
}

// tally counts the outcomes of the calls.
type tally struct {
	lock     sync.Mutex
	made, ok int
	failed   map[string]int
}

func (t *tally) begin() {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.made++
}

func (t *tally) end(err error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if err == nil {
		t.ok++
	} else {
		t.failed[statusName(err)]++
	}
}

// statusName returns the name of a status code in gRPC's spelling.
func statusName(err error) string {
	code := connect.CodeOf(err)
	if code == connect.CodeCanceled {
		return "CANCELLED"
	}
	return strings.ToUpper(code.String())
}

func (t *tally) account() map[string]any {
	unfinished := t.made - t.ok
	for _, count := range t.failed {
		unfinished -= count
	}
	return map[string]any{
		"event":      "done",
		"made":       t.made,
		"ok":         t.ok,
		"failed":     t.failed,
		"unfinished": unfinished,
		"versions":   map[string]string{"connect-go": connect.Version, "go": strings.TrimPrefix(runtime.Version(), "go")},
	}
}
