// One link of a chain of transactions with franz-go: what comes in one topic is written to another,
// exactly once, each value to the partition of the same number.
//
// Arguments: address, group, transactional id, topic to read, topic to write. It runs until it is
// killed: where the end of a transaction fails for good, it begins anew with another session, as if
// it had been started again.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// What was killed is missed soon.
	sessionTimeout    = 6 * time.Second
	heartbeatInterval = time.Second
	// A successor ends what was left open only when it has something to write itself.
	transactionTimeout = 10 * time.Second
	pause              = 200 * time.Millisecond
	// So few that many transactions are made.
	recordsInTransaction = 40
)

func main() {
	for {
		err := link(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5])
		fmt.Fprintln(os.Stderr, "begins anew:", err)
		time.Sleep(pause)
	}
}

func link(bootstrap, group, transactionalID, source, target string) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(heartbeatInterval),
		kgo.TransactionalID(transactionalID),
		kgo.TransactionTimeout(transactionTimeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	fmt.Println("started")
	ctx := context.Background()
	for {
		fetches := session.PollRecords(ctx, recordsInTransaction)
		for _, failed := range fetches.Errors() {
			// The client tries again.
			fmt.Fprintln(os.Stderr, "not read:", failed.Err)
		}
		if err := session.Begin(); err != nil {
			return fmt.Errorf("not begun: %w", err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			// A record that is not written makes End abort; then it is read again.
			session.Produce(ctx, &kgo.Record{
				Topic: target, Partition: record.Partition, Key: record.Key, Value: record.Value,
			}, nil)
		})
		if _, err := session.End(ctx, kgo.TryCommit); err != nil {
			return fmt.Errorf("not ended: %w", err)
		}
	}
}
