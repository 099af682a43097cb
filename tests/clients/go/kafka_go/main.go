// kafka-go does what a test says.
package main

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go"

	"triglot/clients/commands"
)

var codecs = map[string]kafka.Compression{
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

func main() { commands.Run(produce, consume) }

func produce(words commands.Words, records []commands.Record) error {
	ctx, cancel := context.WithTimeout(context.Background(), commands.Timeout)
	defer cancel()
	// One of its own: the shared one remembers for seconds which topics there were.
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	writer := &kafka.Writer{
		Addr:      kafka.TCP(words["bootstrap"]),
		Transport: transport,
		Topic:     words["topic"],
		Balancer: kafka.BalancerFunc(func(message kafka.Message, _ ...int) int {
			return message.WriterData.(int)
		}),
		RequiredAcks: kafka.RequireAll,
		Compression:  codecs[words["codec"]],
		BatchTimeout: 5 * time.Millisecond,
	}
	defer writer.Close()
	var sent []kafka.Message
	for _, record := range records {
		var headers []kafka.Header
		for _, header := range record.Headers {
			headers = append(headers, kafka.Header{Key: header.Name, Value: header.Value})
		}
		sent = append(sent, kafka.Message{
			Key: record.Key, Value: record.Value, Headers: headers,
			Time: time.UnixMilli(record.TimestampMs), WriterData: int(record.Partition),
		})
	}
	return writer.WriteMessages(ctx, sent...)
}

func consume(words commands.Words, found func(commands.Record)) error {
	ctx, cancel := context.WithTimeout(context.Background(), commands.Timeout)
	defer cancel()
	for partition, end := range words.Ends() {
		if err := read(ctx, words, int(partition), end, found); err != nil {
			return err
		}
	}
	return nil
}

func read(
	ctx context.Context, words commands.Words, partition int, end int64,
	found func(commands.Record),
) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{words["bootstrap"]}, Topic: words["topic"], Partition: partition,
		MaxWait: 100 * time.Millisecond,
	})
	defer reader.Close()
	if err := reader.SetOffset(words.Start()); err != nil {
		return err
	}
	for next := words.Start(); next < end; {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return err
		}
		var headers []commands.Header
		for _, header := range message.Headers {
			headers = append(headers, commands.Header{Name: header.Key, Value: header.Value})
		}
		timestampMs := int64(-1)
		if !message.Time.IsZero() {
			timestampMs = message.Time.UnixMilli()
		}
		found(commands.Record{
			Offset: message.Offset, Partition: int32(partition), Key: message.Key,
			Value: message.Value, Headers: headers, TimestampMs: timestampMs,
		})
		next = message.Offset + 1
	}
	return nil
}
