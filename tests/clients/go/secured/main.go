// secured sends a record to a closed broker and reads it back, with the library that it is told:
//
//	secured LIBRARY BOOTSTRAP MECHANISM CA USER PASSWORD TOPIC
//
// over TLS, with a mechanism of SASL. PASSWORD is the token of OAUTHBEARER. It prints the value that it
// has read.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	kafkaplain "github.com/segmentio/kafka-go/sasl/plain"
	kafkascram "github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdgscram "github.com/xdg-go/scram"
)

const value = "over TLS"

type login struct {
	bootstrap, mechanism, user, password, topic string
	tls                                         *tls.Config
}

var libraries = map[string]func(context.Context, login) (string, error){
	"franz-go": withFranzGo, "kafka-go": withKafkaGo, "sarama": withSarama,
}

func main() {
	words := os.Args[1:]
	trusted, err := os.ReadFile(words[3])
	ended(err)
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(trusted)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	found, err := libraries[words[0]](ctx, login{
		bootstrap: words[1], mechanism: words[2], user: words[4], password: words[5],
		topic: words[6], tls: &tls.Config{RootCAs: authorities},
	})
	ended(err)
	fmt.Println(found)
}

func ended(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func withFranzGo(ctx context.Context, who login) (string, error) {
	mechanism := plain.Auth{User: who.user, Pass: who.password}.AsMechanism()
	salted := scram.Auth{User: who.user, Pass: who.password}
	switch who.mechanism {
	case "SCRAM-SHA-256":
		mechanism = salted.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		mechanism = salted.AsSha512Mechanism()
	case "OAUTHBEARER":
		mechanism = oauth.Auth{Token: who.password}.AsMechanism()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(who.bootstrap), kgo.DialTLSConfig(who.tls), kgo.SASL(mechanism),
		kgo.ConsumeTopics(who.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return "", err
	}
	defer client.Close()
	sent := &kgo.Record{Topic: who.topic, Value: []byte(value)}
	if err := client.ProduceSync(ctx, sent).FirstErr(); err != nil {
		return "", err
	}
	fetches := client.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		return "", err
	}
	return string(fetches.Records()[0].Value), nil
}

func withKafkaGo(ctx context.Context, who login) (string, error) {
	var mechanism sasl.Mechanism = kafkaplain.Mechanism{Username: who.user, Password: who.password}
	var err error
	switch who.mechanism {
	case "SCRAM-SHA-256":
		mechanism, err = kafkascram.Mechanism(kafkascram.SHA256, who.user, who.password)
	case "SCRAM-SHA-512":
		mechanism, err = kafkascram.Mechanism(kafkascram.SHA512, who.user, who.password)
	}
	if err != nil {
		return "", err
	}
	writer := &kafka.Writer{
		Addr: kafka.TCP(who.bootstrap), Topic: who.topic, RequiredAcks: kafka.RequireAll,
		Transport: &kafka.Transport{TLS: who.tls, SASL: mechanism},
	}
	defer writer.Close()
	if err := writer.WriteMessages(ctx, kafka.Message{Value: []byte(value)}); err != nil {
		return "", err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{who.bootstrap}, Topic: who.topic,
		MaxWait: 100 * time.Millisecond,
		Dialer:  &kafka.Dialer{TLS: who.tls, SASLMechanism: mechanism},
	})
	defer reader.Close()
	message, err := reader.ReadMessage(ctx)
	return string(message.Value), err
}

// scramClient is what sarama leaves to its users.
type scramClient struct {
	*xdgscram.ClientConversation
	hash xdgscram.HashGeneratorFcn
}

func (client *scramClient) Begin(user, password, authorizationID string) error {
	made, err := client.hash.NewClient(user, password, authorizationID)
	if err != nil {
		return err
	}
	client.ClientConversation = made.NewConversation()
	return nil
}

// bearerToken gives sarama the same token whenever it asks.
type bearerToken string

func (token bearerToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(token)}, nil
}

func withSarama(ctx context.Context, who login) (string, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.TLS.Enable, config.Net.TLS.Config = true, who.tls
	config.Net.SASL.Enable, config.Net.SASL.User, config.Net.SASL.Password =
		true, who.user, who.password
	config.Net.SASL.Mechanism = sarama.SASLMechanism(who.mechanism)
	config.Net.SASL.TokenProvider = bearerToken(who.password)
	hashes := map[string]xdgscram.HashGeneratorFcn{
		"SCRAM-SHA-256": xdgscram.SHA256, "SCRAM-SHA-512": xdgscram.SHA512,
	}
	if hash, ok := hashes[who.mechanism]; ok {
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			return &scramClient{hash: hash}
		}
	}
	config.Producer.RequiredAcks, config.Producer.Return.Successes = sarama.WaitForAll, true
	client, err := sarama.NewClient([]string{who.bootstrap}, config)
	if err != nil {
		return "", err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return "", err
	}
	sent := &sarama.ProducerMessage{Topic: who.topic, Value: sarama.StringEncoder(value)}
	if _, _, err := producer.SendMessage(sent); err != nil {
		return "", err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return "", err
	}
	reading, err := consumer.ConsumePartition(who.topic, 0, sarama.OffsetOldest)
	if err != nil {
		return "", err
	}
	select {
	case message := <-reading.Messages():
		return string(message.Value), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
