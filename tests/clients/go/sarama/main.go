// sarama does what a test says.
package main

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"triglot/clients/commands"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func main() { commands.Run(produce, consume) }

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	return config
}

func encoder(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func produce(words commands.Words, records []commands.Record) error {
	config := config()
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Compression = codecs[words["codec"]]
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer([]string{words["bootstrap"]}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	var sent []*sarama.ProducerMessage
	for _, record := range records {
		var headers []sarama.RecordHeader
		for _, header := range record.Headers {
			headers = append(headers,
				sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		sent = append(sent, &sarama.ProducerMessage{
			Topic: words["topic"], Partition: record.Partition, Key: encoder(record.Key),
			Value: encoder(record.Value), Headers: headers,
			Timestamp: time.UnixMilli(record.TimestampMs),
		})
	}
	return producer.SendMessages(sent)
}

func consume(words commands.Words, found func(commands.Record)) error {
	config := config()
	config.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumer([]string{words["bootstrap"]}, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	deadline := time.After(commands.Timeout)
	for partition, end := range words.Ends() {
		reading, err := consumer.ConsumePartition(words["topic"], partition, words.Start())
		if err != nil {
			return err
		}
		for next := words.Start(); next < end; {
			select {
			case message := <-reading.Messages():
				found(asRecord(message))
				next = message.Offset + 1
			case failed := <-reading.Errors():
				return failed
			case <-deadline:
				return fmt.Errorf("partition %d read up to %d of %d", partition, next, end)
			}
		}
		if err := reading.Close(); err != nil {
			return err
		}
	}
	return nil
}

func asRecord(message *sarama.ConsumerMessage) commands.Record {
	var headers []commands.Header
	for _, header := range message.Headers {
		headers = append(headers, commands.Header{Name: string(header.Key), Value: header.Value})
	}
	timestampMs := int64(-1)
	if !message.Timestamp.IsZero() {
		timestampMs = message.Timestamp.UnixMilli()
	}
	return commands.Record{
		Offset: message.Offset, Partition: message.Partition, Key: message.Key,
		Value: message.Value, Headers: headers, TimestampMs: timestampMs,
	}
}
