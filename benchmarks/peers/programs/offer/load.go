// Package offer is what the loads of NATS and etcd have in common: how payloads are offered, and what is written down.
//
// It keeps the manners of benchmarks/load.py: a closed loop keeps a window of unacknowledged payload bytes full, an open
// loop follows a schedule whatever comes back. It prints the monotonic time at which it began, offers for the given seconds,
// waits for the outcomes, writes the samples, and prints a report of one line of JSON.
package offer

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	poolBytes = 64 << 20 // random bytes kept ready: far above what any cache of a processor holds
	patience  = 60 * time.Second
	// A peer that refuses is not asked again at once.
	pauseAfterError = time.Millisecond
	samplesAtFirst  = 1 << 20
)

// Spec is what a load is told.
type Spec struct {
	Payload int     // bytes of each payload
	Batch   int     // payloads an append
	Window  int     // unacknowledged payload bytes at most, in the closed loop
	Rate    float64 // appends a second by the schedule; 0: closed loop
	Seconds float64 // how long to offer
	Samples string  // file of int64 triples: acknowledged ns, appended ns, payloads
}

// Flags reads a Spec from the command line once flag.Parse has run.
func Flags() *Spec {
	spec := &Spec{}
	flag.IntVar(&spec.Payload, "payload", 1024, "bytes of each payload")
	flag.IntVar(&spec.Batch, "batch", 1, "payloads an append")
	flag.IntVar(&spec.Window, "window", 2_000_000, "unacknowledged payload bytes at most")
	flag.Float64Var(&spec.Rate, "rate", 0, "appends a second; 0: as many as the window lets in")
	flag.Float64Var(&spec.Seconds, "seconds", 1, "how long to offer")
	flag.StringVar(&spec.Samples, "samples", "", "where the samples go")
	return spec
}

// Load offers by its Spec and writes down what was acknowledged.
type Load struct {
	spec    Spec
	room    int
	slots   chan struct{}
	pool    []byte
	pending sync.WaitGroup

	mu         sync.Mutex
	samples    []int64
	errors     int
	firstError string
}

// New prepares a load with at most roomMax appends in flight.
func New(spec Spec, roomMax int) *Load {
	room := min(max(1, spec.Window/(spec.Payload*spec.Batch)), roomMax)
	load := &Load{spec: spec, room: room, slots: make(chan struct{}, room), pool: make([]byte, poolBytes)}
	if _, err := rand.Read(load.pool); err != nil {
		panic(err)
	}
	load.samples = make([]int64, 0, 3*samplesAtFirst)
	return load
}

// Room is how many appends may be in flight.
func (load *Load) Room() int { return load.room }

// Payloads are the bytes of the append of this number, its payloads one after the other. No append in flight has the same.
func (load *Load) Payloads(number int) []byte {
	size := load.spec.Payload * load.spec.Batch
	at := number % (len(load.pool) / size) * size
	return load.pool[at : at+size : at+size]
}

// Run offers, waits, writes and reports. send must not wait for the outcome, unless only one may be in flight, and must lead to
// one call of Acked or Failed.
func (load *Load) Run(send func(number int, sentNs int64)) {
	beganNs := NowNs()
	fmt.Println(beganNs)
	untilNs := beganNs + int64(load.spec.Seconds*1e9)
	if load.spec.Rate > 0 {
		load.follow(beganNs, untilNs, send)
	} else {
		load.fill(untilNs, send)
	}
	load.waitForOutcomes()
	load.write()
	load.report()
}

// fill keeps the window full. Latency counts from when the window let the append in.
func (load *Load) fill(untilNs int64, send func(int, int64)) {
	for number := 0; ; number++ {
		load.slots <- struct{}{}
		now := NowNs()
		if now >= untilNs {
			return
		}
		load.pending.Add(1)
		send(number, now)
	}
}

// follow sends what is due, late or not. Latency counts from when the append was due.
func (load *Load) follow(beganNs, untilNs int64, send func(int, int64)) {
	for number := 0; ; number++ {
		dueNs := beganNs + int64(float64(number)/load.spec.Rate*1e9)
		if dueNs >= untilNs {
			return
		}
		time.Sleep(time.Duration(dueNs - NowNs()))
		load.pending.Add(1)
		send(number, dueNs)
	}
}

// Acked writes an append down as acknowledged now.
func (load *Load) Acked(sentNs int64) {
	now := NowNs()
	load.mu.Lock()
	load.samples = append(load.samples, now, sentNs, int64(load.spec.Batch))
	load.mu.Unlock()
	load.settle()
}

// Failed counts an append that was refused, and keeps the first reason.
func (load *Load) Failed(err error) {
	load.mu.Lock()
	load.errors++
	if load.firstError == "" {
		load.firstError = err.Error()
	}
	load.mu.Unlock()
	time.AfterFunc(pauseAfterError, load.settle)
}

func (load *Load) settle() {
	if load.spec.Rate == 0 {
		<-load.slots
	}
	load.pending.Done()
}

func (load *Load) waitForOutcomes() {
	done := make(chan struct{})
	go func() {
		load.pending.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		fmt.Fprintln(os.Stderr, "some appends had no outcome within", patience)
		os.Exit(1)
	}
}

func (load *Load) write() {
	file, err := os.Create(load.spec.Samples)
	if err == nil {
		err = binary.Write(file, binary.LittleEndian, load.samples)
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (load *Load) report() {
	text, err := json.Marshal(map[string]any{"errors": load.errors, "error": load.firstError, "in_flight": load.room})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
