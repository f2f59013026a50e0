// natsload appends to a JetStream stream of three replicas.
//
//	natsload first  -urls A,B,C   waits for the cluster, makes the stream, appends once, prints the monotonic time in ns
//	natsload leader -urls A,B,C   waits until all replicas are in step, prints which of the urls leads, from 1 on
//	natsload probe  -urls A,B,C   one append at a time, "sent acknowledged" in monotonic ns a line
//	natsload load   -urls A,B,C   see package offer; above one payload an append, it is an atomic batch
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"peers/offer"
)

const (
	stream   = "peers"
	subject  = "peers.x"
	replicas = 3
	// A server takes 50 unfinished atomic batches of a stream; 8 to 45 at once were equally fast (2026-11-23).
	atomicBatchesMax = 16
	// A stream drops what comes while 100,000 messages wait.
	messagesMax = 50_000
	waitMax     = 10 * time.Second
)

var (
	urls      = flag.String("urls", "", "of the three servers, by node")
	withMsgId = flag.Bool("msgid", false, "give each message an id, by which the server drops repeated ones")
)

func main() {
	offer.Client{First: first, Leader: leader, Probe: probe, Load: load}.Run()
}

func connect(options ...jetstream.JetStreamOpt) jetstream.JetStream {
	connection, err := nats.Connect(*urls, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.Timeout(500*time.Millisecond))
	offer.Die(err)
	js, err := jetstream.New(connection, options...)
	offer.Die(err)
	return js
}

// within calls with half a second of time.
func within(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	return call(ctx)
}

func first() {
	js := connect()
	config := jetstream.StreamConfig{
		Name: stream, Subjects: []string{"peers.>"}, Storage: jetstream.FileStorage, Replicas: replicas, AllowAtomicPublish: true,
	}
	for within(func(ctx context.Context) error { _, err := js.CreateStream(ctx, config); return err }) != nil {
		time.Sleep(20 * time.Millisecond)
	}
	payload := make([]byte, 1024)
	for within(func(ctx context.Context) error { _, err := js.Publish(ctx, subject, payload); return err }) != nil {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println(offer.NowNs())
}

// leader is the number of the server that leads the stream; servers are named n1, n2 and n3.
func leader() int {
	js := connect()
	for {
		var cluster *jetstream.ClusterInfo
		err := within(func(ctx context.Context) error {
			found, err := js.Stream(ctx, stream)
			if err == nil {
				cluster = found.CachedInfo().Cluster
			}
			return err
		})
		if err == nil && cluster != nil && cluster.Leader != "" && areInStep(cluster.Replicas) {
			node, err := strconv.Atoi(strings.TrimPrefix(cluster.Leader, "n"))
			offer.Die(err)
			return node
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func areInStep(followers []*jetstream.PeerInfo) bool {
	for _, each := range followers {
		if !each.Current || each.Offline {
			return false
		}
	}
	return len(followers) == replicas-1
}

func probe() {
	js := connect()
	payload, run := make([]byte, 1024), time.Now().UnixNano()
	offer.Probe(5*time.Millisecond, func(number int) error {
		// The id makes an append that is tried again the same append.
		id := jetstream.WithMsgID(fmt.Sprintf("%x-%d", run, number))
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, err := js.Publish(ctx, subject, payload, id, jetstream.WithRetryAttempts(0))
		return err
	})
}

// --- load ---

// load talks to the server that leads the stream: the shortest way.
func load(spec offer.Spec) {
	*urls = strings.Split(*urls, ",")[leader()-1]
	if spec.Batch > 1 {
		loadAtomic(spec)
	} else {
		loadSingles(spec)
	}
}

// loadSingles keeps when a message was sent in its first eight bytes, where its acknowledgement finds it.
func loadSingles(spec offer.Spec) {
	work := offer.New(spec, messagesMax)
	js := connect(
		jetstream.WithPublishAsyncMaxPending(1<<20),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, message *nats.Msg, _ *jetstream.PubAck) {
			work.Acked(int64(binary.LittleEndian.Uint64(message.Data)))
		}),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { work.Failed(err) }),
	)
	run := time.Now().UnixNano()
	work.Run(func(number int, sentNs int64) {
		data := work.Payloads(number)
		binary.LittleEndian.PutUint64(data, uint64(sentNs))
		message := &nats.Msg{Subject: subject, Data: data}
		if *withMsgId {
			message.Header = nats.Header{"Nats-Msg-Id": {fmt.Sprintf("%x-%d", run, number)}}
		}
		if work.Room() == 1 && spec.Rate == 0 {
			if _, err := js.PublishMsg(context.Background(), message); err != nil {
				work.Failed(err)
			} else {
				work.Acked(sentNs)
			}
		} else if _, err := js.PublishMsgAsync(message); err != nil {
			work.Failed(err)
		}
	})
}

func loadAtomic(spec offer.Spec) {
	work := offer.New(spec, atomicBatchesMax)
	connection := connect().Conn()
	run := time.Now().UnixNano()
	work.Run(func(number int, sentNs int64) {
		go func() {
			id := fmt.Sprintf("%x-%d", run, number)
			if err := publishAtomically(connection, id, work.Payloads(number), spec.Payload); err != nil {
				work.Failed(err)
			} else {
				work.Acked(sentNs)
			}
		}()
	})
}

// publishAtomically sends all payloads; the last message commits, and only it is answered.
func publishAtomically(connection *nats.Conn, id string, payloads []byte, size int) error {
	last := len(payloads) / size
	for sequence := 1; ; sequence++ {
		data := payloads[(sequence-1)*size : sequence*size]
		header := nats.Header{"Nats-Batch-Id": {id}, "Nats-Batch-Sequence": {strconv.Itoa(sequence)}}
		message := &nats.Msg{Subject: subject, Data: data, Header: header}
		if sequence < last {
			if err := connection.PublishMsg(message); err != nil {
				return err
			}
			continue
		}
		header["Nats-Batch-Commit"] = []string{"1"}
		reply, err := connection.RequestMsg(message, waitMax)
		if err == nil && bytes.Contains(reply.Data, []byte(`"error"`)) {
			err = fmt.Errorf("%s", reply.Data)
		}
		return err
	}
}
