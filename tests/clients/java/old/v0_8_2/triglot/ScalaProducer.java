package triglot;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import kafka.javaapi.producer.Producer;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/** The producer of Kafka 0.7 to 0.10, written in Scala; it was the only one before 0.8.2. */
final class ScalaProducer {
    private static final int MESSAGES_IN_A_SET = 40;

    private ScalaProducer() {}

    static Object produce(Command command) throws Exception {
        Properties properties = new Properties();
        properties.put("metadata.broker.list", command.text("bootstrap"));
        properties.put("producer.type", "sync");
        properties.put("request.required.acks", "-1");
        properties.put("compression.codec", command.text("codec"));
        properties.put("serializer.class", "kafka.serializer.DefaultEncoder");
        properties.put("partitioner.class", ByNumber.class.getName());
        properties.put("message.send.max.retries", "0");
        List<KeyedMessage<byte[], byte[]>> messages = new ArrayList<>();
        for (Line line : Line.read(Path.of(command.text("file")))) {
            messages.add(new KeyedMessage<>(
                command.text("topic"), line.key, line.partition, line.value));
        }
        Producer<byte[], byte[]> producer = new Producer<>(new ProducerConfig(properties));
        try {
            for (int from = 0; from < messages.size(); from += MESSAGES_IN_A_SET) {
                int to = Math.min(messages.size(), from + MESSAGES_IN_A_SET);
                producer.send(messages.subList(from, to));
            }
        } finally {
            producer.close();
        }
        return messages.size();
    }
}
