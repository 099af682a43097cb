//! The conversation of a client in Rust with a test.
//!
//! A command is a line of words, `produce key=value ...` or `consume key=value ...`; its answer is
//! a line of JSON, `{"ok": ...}` or `{"error": "...", "code": n}`. Records are lines of text in
//! files; their form is described in tests/clients/records.py.

use base64::{prelude::BASE64_STANDARD, Engine};
use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::{stdin, BufRead};
use std::time::Duration;

/// For one command. A client that has not done its work by then never will.
pub const TIMEOUT: Duration = Duration::from_secs(30);

pub type Outcome<T> = Result<T, Box<dyn Error>>;

pub type Bytes = Option<Vec<u8>>;

/// `None` is null, and a time of -1 is none.
pub struct Record {
    pub offset: i64,
    pub partition: i32,
    pub timestamp_ms: i64,
    pub key: Bytes,
    pub value: Bytes,
    pub headers: Vec<(String, Bytes)>,
}

/// The key=value pairs of a command.
pub struct Words(HashMap<String, String>);

impl Words {
    pub fn get(&self, key: &str) -> &str {
        &self.0[key]
    }

    /// Partitions to be read, and the end of each.
    pub fn ends(&self) -> Outcome<Vec<(i32, i64)>> {
        let ends = self.get("ends").split(',');
        let pairs = self.get("partitions").split(',').zip(ends);
        pairs
            .map(|(partition, end)| Ok((partition.parse()?, end.parse()?)))
            .collect()
    }

    /// The offset from which all of them are read.
    pub fn start(&self) -> Outcome<i64> {
        Ok(self.get("start").parse()?)
    }
}

/// Takes commands from standard input until it ends.
pub fn run(
    produce: impl Fn(&Words, Vec<Record>) -> Outcome<()>,
    consume: impl Fn(&Words) -> Outcome<Vec<Record>>,
) {
    for line in stdin().lock().lines().map_while(Result::ok) {
        let mut parts = line.split_whitespace();
        let name = parts.next().unwrap_or_default();
        let pairs = parts.filter_map(|pair| pair.split_once('='));
        let words = Words(pairs.map(|(k, v)| (k.into(), v.into())).collect());
        let answer = match name {
            "produce" => produced(&words, &produce),
            _ => consumed(&words, &consume),
        };
        match answer {
            Ok(count) => println!("{{\"ok\": {count}}}"),
            Err(error) => {
                let text = error.to_string().replace(['"', '\\', '\n'], " ");
                println!("{{\"error\": \"{text}\", \"code\": -1}}");
            }
        }
    }
}

fn produced(
    words: &Words,
    produce: &impl Fn(&Words, Vec<Record>) -> Outcome<()>,
) -> Outcome<usize> {
    let text = fs::read_to_string(words.get("file"))?;
    let records = text.lines().map(parse).collect::<Outcome<Vec<_>>>()?;
    let count = records.len();
    produce(words, records)?;
    Ok(count)
}

fn consumed(
    words: &Words,
    consume: &impl Fn(&Words) -> Outcome<Vec<Record>>,
) -> Outcome<usize> {
    let records = consume(words)?;
    let lines: String = records.iter().map(print).collect();
    fs::write(words.get("file"), lines)?;
    Ok(records.len())
}

fn parse(line: &str) -> Outcome<Record> {
    let fields: Vec<&str> = line.split('\t').collect();
    let mut headers = Vec::new();
    for (name, data) in fields[4].split(',').filter_map(|header| header.split_once(':')) {
        headers.push((String::from_utf8(BASE64_STANDARD.decode(name)?)?, bytes(data)?));
    }
    Ok(Record {
        offset: -1,
        partition: fields[0].parse()?,
        timestamp_ms: fields[1].parse()?,
        key: bytes(fields[2])?,
        value: bytes(fields[3])?,
        headers,
    })
}

fn print(record: &Record) -> String {
    let pairs = record.headers.iter();
    let headers: Vec<String> = pairs
        .map(|(name, data)| format!("{}:{}", BASE64_STANDARD.encode(name), text(data)))
        .collect();
    format!(
        "{}\t{}\t{}\t{}\t{}\t{}\n",
        record.offset,
        record.partition,
        record.timestamp_ms,
        text(&record.key),
        text(&record.value),
        headers.join(",")
    )
}

fn bytes(text: &str) -> Outcome<Bytes> {
    Ok(match text {
        "~" => None,
        _ => Some(BASE64_STANDARD.decode(text)?),
    })
}

fn text(data: &Bytes) -> String {
    data.as_ref().map_or("~".into(), |data| BASE64_STANDARD.encode(data))
}
