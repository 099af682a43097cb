//! rskafka does what a test says.

use chrono::DateTime;
use commands::{run, Outcome, Record, Words, TIMEOUT};
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record;
use std::future::Future;

fn main() {
    run(
        |words, records| within(produce(words, records)),
        |words| within(consume(words)),
    )
}

fn within<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, work).await? })
}

async fn partition(words: &Words, number: i32) -> Outcome<PartitionClient> {
    let client = ClientBuilder::new(vec![words.get("bootstrap").into()]).build().await?;
    let unknown = UnknownTopicHandling::Error;
    Ok(client.partition_client(words.get("topic"), number, unknown).await?)
}

async fn produce(words: &Words, records: Vec<Record>) -> Outcome<()> {
    let client = partition(words, records[0].partition).await?;
    let codec = match words.get("codec") {
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::NoCompression,
    };
    let sent = records.into_iter().map(|record| record::Record {
        key: record.key,
        value: record.value,
        headers: Default::default(),
        timestamp: DateTime::from_timestamp_millis(record.timestamp_ms).unwrap_or_default(),
    });
    client.produce(sent.collect(), codec).await?;
    Ok(())
}

async fn consume(words: &Words) -> Outcome<Vec<Record>> {
    let mut found = Vec::new();
    for (number, end) in words.ends()? {
        let client = partition(words, number).await?;
        let mut next = words.start()?;
        while next < end {
            let (records, _) = client.fetch_records(next, 1..1 << 20, 100).await?;
            for one in records {
                found.push(Record {
                    offset: one.offset,
                    partition: number,
                    timestamp_ms: one.record.timestamp.timestamp_millis(),
                    key: one.record.key,
                    value: one.record.value,
                    headers: Vec::new(),
                });
                next = one.offset + 1;
            }
        }
    }
    Ok(found)
}
