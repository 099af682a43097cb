//! The crate "kafka" does what a test says.

use commands::{run, Bytes, Outcome, Record, Words, TIMEOUT};
use kafka::client::{Compression, FetchPartition, KafkaClient, ProduceMessage, RequiredAcks};
use std::time::Instant;

/// As much as it sends in one request.
const RECORDS_PER_REQUEST: usize = 100;

fn main() {
    run(produce, consume)
}

fn client(words: &Words) -> Outcome<KafkaClient> {
    let mut client = KafkaClient::new(vec![words.get("bootstrap").into()]);
    client.load_metadata(&[words.get("topic")])?;
    Ok(client)
}

fn produce(words: &Words, records: Vec<Record>) -> Outcome<()> {
    let mut client = client(words)?;
    client.set_compression(match words.get("codec") {
        "gzip" => Compression::GZIP,
        "snappy" => Compression::SNAPPY,
        _ => Compression::NONE,
    });
    for part in records.chunks(RECORDS_PER_REQUEST) {
        let messages = part.iter().map(|record| {
            let (key, value) = (record.key.as_deref(), record.value.as_deref());
            ProduceMessage::new(words.get("topic"), record.partition, key, value)
        });
        for confirm in client.produce_messages(RequiredAcks::All, TIMEOUT, messages)? {
            for partition in confirm.partition_confirms {
                partition.offset.map_err(|code| format!("{code:?}"))?;
            }
        }
    }
    Ok(())
}

fn consume(words: &Words) -> Outcome<Vec<Record>> {
    let mut client = client(words)?;
    client.set_fetch_max_bytes_per_partition(1 << 20);
    let mut found = Vec::new();
    let deadline = Instant::now() + TIMEOUT;
    for (partition, end) in words.ends()? {
        let mut next = words.start()?;
        while next < end {
            if Instant::now() > deadline {
                return Err(format!("partition {partition} read up to {next} of {end}").into());
            }
            let wanted = FetchPartition::new(words.get("topic"), partition, next);
            for response in client.fetch_messages_for_partition(&wanted)? {
                for topic in response.topics() {
                    for part in topic.partitions() {
                        let data = part.data().map_err(|error| error.to_string())?;
                        for message in data.messages() {
                            if message.offset < next {
                                continue;
                            }
                            found.push(Record {
                                offset: message.offset,
                                partition,
                                timestamp_ms: -1,
                                key: known(message.key),
                                value: known(message.value),
                                headers: Vec::new(),
                            });
                            next = message.offset + 1;
                        }
                    }
                }
            }
        }
    }
    Ok(found)
}

/// It shows null as empty.
fn known(data: &[u8]) -> Bytes {
    (!data.is_empty()).then(|| data.to_vec())
}
