'use strict'

// no-kafka does what a test says.

const kafka = require('no-kafka')
const { answerCommands } = require('./program')

const CODECS = {
  none: kafka.COMPRESSION_NONE,
  gzip: kafka.COMPRESSION_GZIP,
  snappy: kafka.COMPRESSION_SNAPPY,
}

const options = words => ({
  connectionString: words.bootstrap,
  asyncCompression: false,
  logger: { logLevel: 2, logFunction: console.error },
})

async function produce(words, records) {
  const producer = new kafka.Producer({ ...options(words), requiredAcks: -1, codec: CODECS[words.codec] })
  await producer.init()
  try {
    const messages = records.map(({ partition, key, value }) => ({
      topic: words.topic,
      partition,
      message: { key, value },
    }))
    for (const { error } of await producer.send(messages)) if (error) throw error
  } finally {
    await producer.end()
  }
}

async function consume(words, { topic, partition, start, end }) {
  const consumer = new kafka.SimpleConsumer({ ...options(words), idleTimeout: 10, maxWaitTime: 100 })
  await consumer.init()
  const found = []
  try {
    await new Promise((resolve, reject) =>
      consumer
        .subscribe(topic, partition, { offset: start }, messages => {
          for (const { offset, message } of messages) {
            if (offset < start || offset >= end) continue
            found.push({ partition, offset, timestamp: -1, key: message.key, value: message.value })
          }
          if (found.length && found[found.length - 1].offset + 1 === end) resolve()
        })
        .catch(reject)
    )
    return found
  } finally {
    await consumer.end()
  }
}

answerCommands({ produce, consume })
