// Command peer keeps one channel of grpc-go busy. clients/README.md documents its arguments and output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	rpccode "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// grace is how long running calls may continue when the time has passed.
const grace = time.Second

// defaultMinConnectTimeout is grpc-go's default, since ConnectParams needs all its fields.
const defaultMinConnectTimeout = 20 * time.Second

// order holds the command-line arguments.
type order struct {
	target  string
	seconds time.Duration
	workers int
	pause   time.Duration
	ca      string

	initial, max, minConnectTimeout time.Duration // 0 for grpc-go's default
}

func main() {
	log.SetFlags(0)
	told := readOrder()
	say(map[string]any{"event": "ready"})
	if !begun() {
		return
	}
	conn, err := dial(told)
	if err != nil {
		log.Fatal(err)
	}
	calls := keepBusy(testpb.NewTestServiceClient(conn), told)
	conn.Close()
	say(calls.account())
}

func readOrder() order {
	var told order
	flag.StringVar(&told.target, "target", "", "where to connect")
	seconds := flag.Float64("seconds", 0, "for how long to make calls")
	flag.IntVar(&told.workers, "workers", 1, "how many calls are made at a time")
	pause := flag.Int("pause-ms", 20, "how long a worker pauses after each call")
	flag.StringVar(&told.ca, "ca", "", "use TLS, and trust the certificate authority in this file")
	initial := flag.Int("initial-ms", 0, "INITIAL_BACKOFF")
	maximum := flag.Int("max-ms", 0, "MAX_BACKOFF")
	minConnectTimeout := flag.Int("min-connect-timeout-ms", 0, "MIN_CONNECT_TIMEOUT")
	flag.Parse()
	told.seconds = time.Duration(*seconds * float64(time.Second))
	told.pause = milliseconds(*pause)
	told.initial, told.max = milliseconds(*initial), milliseconds(*maximum)
	told.minConnectTimeout = milliseconds(*minConnectTimeout)
	return told
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// begun waits for the line that starts the calls; it reports whether there was one.
func begun() bool {
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	return line != ""
}

func say(what map[string]any) {
	if err := json.NewEncoder(os.Stdout).Encode(what); err != nil {
		log.Fatal(err)
	}
}

func dial(told order) (*grpc.ClientConn, error) {
	secret := insecure.NewCredentials()
	if told.ca != "" {
		var err error
		if secret, err = credentials.NewClientTLSFromFile(told.ca, ""); err != nil {
			return nil, err
		}
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(secret)}
	if told.initial != 0 || told.max != 0 || told.minConnectTimeout != 0 {
		options = append(options, grpc.WithConnectParams(connectParams(told)))
	}
	return grpc.NewClient(told.target, options...)
}

func connectParams(told order) grpc.ConnectParams {
	params := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: defaultMinConnectTimeout}
	if told.initial != 0 {
		params.Backoff.BaseDelay = told.initial
	}
	if told.max != 0 {
		params.Backoff.MaxDelay = told.max
	}
	if told.minConnectTimeout != 0 {
		params.MinConnectTimeout = told.minConnectTimeout
	}
	return params
}

// keepBusy makes calls until the time has passed.
func keepBusy(client testpb.TestServiceClient, told order) *tally {
	calls := &tally{failed: map[string]int{}}
	over := time.Now().Add(told.seconds)
	ctx, cancel := context.WithCancel(context.Background()) // no deadline, which the server would be told
	defer cancel()
	time.AfterFunc(told.seconds+grace, cancel)
	var workers sync.WaitGroup
	for number := range told.workers {
		patient := grpc.WaitForReady(number%2 == 1)
		workers.Go(func() {
			for call := 0; time.Now().Before(over); call++ {
				named := metadata.AppendToOutgoingContext(ctx, "call-id", fmt.Sprintf("%d-%d", number, call))
				calls.begin()
				_, err := client.EmptyCall(named, &testpb.Empty{}, patient)
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
		t.failed[rpccode.Code(status.Code(err)).String()]++
	}
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
		"versions":   map[string]string{"grpc-go": grpc.Version, "go": strings.TrimPrefix(runtime.Version(), "go")},
	}
}
