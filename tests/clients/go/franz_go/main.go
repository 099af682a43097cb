// franz-go does what a test says.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"triglot/clients/commands"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() { commands.Run(produce, consume) }

func produce(words commands.Words, records []commands.Record) error {
	ctx, cancel := context.WithTimeout(context.Background(), commands.Timeout)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(words["bootstrap"]),
		kgo.ProducerBatchCompression(codecs[words["codec"]]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		// Formats 0 and 1 have no place for producer ids.
		kgo.DisableIdempotentWrite(),
		kgo.MaxProduceRequestsInflightPerBroker(1),
		kgo.ProducerLinger(5*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	var sent []*kgo.Record
	for _, record := range records {
		var headers []kgo.RecordHeader
		for _, header := range record.Headers {
			headers = append(headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		sent = append(sent, &kgo.Record{
			Topic: words["topic"], Partition: record.Partition, Key: record.Key,
			Value: record.Value, Headers: headers, Timestamp: time.UnixMilli(record.TimestampMs),
		})
	}
	return client.ProduceSync(ctx, sent...).FirstErr()
}

func consume(words commands.Words, found func(commands.Record)) error {
	ctx, cancel := context.WithTimeout(context.Background(), commands.Timeout)
	defer cancel()
	ends, starts := words.Ends(), map[int32]kgo.Offset{}
	for partition := range ends {
		starts[partition] = kgo.NewOffset().At(words.Start())
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(words["bootstrap"]),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{words["topic"]: starts}),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for len(ends) > 0 {
		fetches := client.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			return fmt.Errorf("%v; not read: %v", failed.Err, ends)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			var headers []commands.Header
			for _, header := range record.Headers {
				headers = append(headers, commands.Header{Name: header.Key, Value: header.Value})
			}
			timestampMs := int64(-1)
			if !record.Timestamp.IsZero() {
				timestampMs = record.Timestamp.UnixMilli()
			}
			found(commands.Record{
				Offset: record.Offset, Partition: record.Partition, Key: record.Key,
				Value: record.Value, Headers: headers, TimestampMs: timestampMs,
			})
			if record.Offset+1 >= ends[record.Partition] {
				delete(ends, record.Partition)
			}
		})
	}
	return nil
}
