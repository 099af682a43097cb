"""One record there and back. Needs a broker on 127.0.0.1:9092 (`make run`) and kafka-python."""

from kafka import KafkaConsumer, KafkaProducer

producer = KafkaProducer(bootstrap_servers="127.0.0.1:9092")
producer.send("hi", b"hello from kafka-python").get(timeout=10)
consumer = KafkaConsumer(
    "hi", group_id="readers", bootstrap_servers="127.0.0.1:9092", auto_offset_reset="earliest"
)
record = next(consumer)
print(record.offset, record.value)
consumer.commit()  # the next run goes on behind this record
consumer.close()
