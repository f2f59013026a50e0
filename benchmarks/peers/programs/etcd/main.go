// etcdload writes to an etcd cluster of three members.
//
//	etcdload first  -urls A,B,C   waits for the cluster, puts once, prints the monotonic time in ns
//	etcdload leader -urls A,B,C   waits until all members are in step, prints which of the urls leads, from 1 on
//	etcdload probe  -urls A,B,C   one put at a time, "sent acknowledged" in monotonic ns a line
//	etcdload load   -urls A,B,C   see package offer; above one payload an append, it is a transaction of puts
package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"peers/offer"
)

const (
	// Connections: one alone is a bottleneck of the client.
	clientsMax = 16
	// Puts at once: etcd refuses more while 5,000 are committed and not applied.
	putsMax = 4_000
	waitMax = 10 * time.Second
)

var urls = flag.String("urls", "", "of the three members, by node")

func main() {
	offer.Client{First: first, Leader: leader, Probe: probe, Load: load}.Run()
}

func connect(endpoints ...string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 20 * time.Second})
	offer.Die(err)
	return client
}

func put(client *clientv3.Client, key string, value string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := client.Put(ctx, key, value)
	return err
}

func first() {
	client := connect(strings.Split(*urls, ",")...)
	for put(client, "first", string(make([]byte, 1024)), 500*time.Millisecond) != nil {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println(offer.NowNs())
}

// leader waits until every member has applied what the furthest one has at the first look.
func leader() int {
	endpoints := strings.Split(*urls, ",")
	client := connect(endpoints...)
	var wanted uint64
	for {
		leads, applied, seen := 0, ^uint64(0), uint64(0)
		for at, endpoint := range endpoints {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			status, err := client.Status(ctx, endpoint)
			cancel()
			if err != nil {
				applied = 0
				continue
			}
			if status.Leader == status.Header.MemberId {
				leads = at + 1
			}
			applied, seen = min(applied, status.RaftAppliedIndex), max(seen, status.RaftIndex)
		}
		if wanted == 0 {
			wanted = seen
		}
		if leads > 0 && wanted > 0 && applied >= wanted {
			return leads
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func probe() {
	client := connect(strings.Split(*urls, ",")...)
	payload := string(make([]byte, 1024))
	offer.Probe(5*time.Millisecond, func(int) error { return put(client, "probe", payload, 300*time.Millisecond) })
}

// load talks to the leader: the shortest way. A key is written again after as many appends as may be in flight.
func load(spec offer.Spec) {
	endpoint := strings.Split(*urls, ",")[leader()-1]
	work := offer.New(spec, putsMax)
	clients := make([]*clientv3.Client, min(work.Room(), clientsMax))
	for at := range clients {
		clients[at] = connect(endpoint)
		offer.Die(put(clients[at], "first", "x", waitMax))
	}
	work.Run(func(number int, sentNs int64) {
		one := func() {
			if err := write(clients[number%len(clients)], number%work.Room(), work.Payloads(number), spec.Payload); err != nil {
				work.Failed(err)
			} else {
				work.Acked(sentNs)
			}
		}
		if work.Room() == 1 && spec.Rate == 0 {
			one()
		} else {
			go one()
		}
	})
}

// write puts one payload, or several at once in a transaction, each under a key of its own.
func write(client *clientv3.Client, slot int, payloads []byte, size int) error {
	if len(payloads) == size {
		return put(client, fmt.Sprintf("%06d", slot), string(payloads), waitMax)
	}
	puts := make([]clientv3.Op, 0, len(payloads)/size)
	for at := 0; at < len(payloads); at += size {
		puts = append(puts, clientv3.OpPut(fmt.Sprintf("%06d-%06d", slot, at/size), string(payloads[at:at+size])))
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	defer cancel()
	_, err := client.Txn(ctx).Then(puts...).Commit()
	return err
}
