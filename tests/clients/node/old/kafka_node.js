'use strict'

// kafka-node does what a test says.

const kafka = require('kafka-node')
const { answerCommands } = require('./program')

const CODECS = { none: 0, gzip: 1 }

// It shows no times, and writes the present one if it is told none.
const payload = (words, { partition, key, value }) => ({
  topic: words.topic,
  partition,
  timestamp: -1,
  key,
  messages: [value],
  attributes: CODECS[words.codec],
})

async function produce(words, records) {
  const client = new kafka.KafkaClient({ kafkaHost: words.bootstrap })
  try {
    const producer = new kafka.Producer(client, { requireAcks: -1 })
    await new Promise((resolve, reject) => producer.on('ready', resolve).on('error', reject))
    for (const record of records) {
      await new Promise((resolve, reject) =>
        producer.send([payload(words, record)], error => (error ? reject(error) : resolve()))
      )
    }
  } finally {
    await new Promise(resolve => client.close(resolve))
  }
}

async function consume(words, { topic, partition, start, end }) {
  const client = new kafka.KafkaClient({ kafkaHost: words.bootstrap })
  try {
    return await new Promise((resolve, reject) => {
      const found = []
      const options = {
        autoCommit: false,
        fromOffset: true,
        encoding: 'buffer',
        keyEncoding: 'buffer',
        fetchMaxWaitMs: 100,
      }
      const consumer = new kafka.Consumer(client, [{ topic, partition, offset: start }], options)
      consumer.on('error', reject)
      consumer.on('message', ({ offset, key, value }) => {
        if (offset < start || offset >= end) return
        found.push({ partition, offset, timestamp: -1, key, value })
        if (offset + 1 === end) resolve(found)
      })
    })
  } finally {
    await new Promise(resolve => client.close(resolve))
  }
}

answerCommands({ produce, consume })
