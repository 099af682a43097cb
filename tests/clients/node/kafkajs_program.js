'use strict'

// Makes kafkajs do what a test says.
//
// A command is a line of words, `name key=value ...`, on standard input; its answer is one line of
// JSON on standard output, {"ok": ...} or {"error": "...", "code": n}.
// Records are lines of text in files;
// their form is described in tests/clients/records.py.

const { readFileSync, writeFileSync } = require('fs')
const { createInterface } = require('readline')
const kafkajs = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const { createLogger } = require('kafkajs/src/loggers')
const createSocketFactory = require('kafkajs/src/network/socketFactory')
const lz4 = require('lz4js')
const xxh32 = require('lz4js/xxh32')
const snappy = require('kafkajs-snappy')
const { ZstdCodec } = require('zstd-codec')

const { CompressionTypes, CompressionCodecs, ConfigResourceTypes } = kafkajs

const NULL = '~'
const TIMEOUT_MS = 30000

// Records in one request: several batches per partition come of 10,000 records.
const RECORDS_PER_SEND = 500

const DECOMPRESSED_MAX_BYTES = 16 * 1024 * 1024

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

// kafkajs brings gzip only; its users plug the others in like this.
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => independent(Buffer.from(lz4.compress(encoder.buffer))),
  decompress: async buffer => decompressedFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from((await zstd()).compress(encoder.buffer)),
  decompress: async buffer => Buffer.from((await zstd()).decompress(buffer)),
})

// lz4js never says that blocks are independent, and Kafka's Java code refuses those that are not.
// Here there is one block only (it holds 4 MB), so it may be said; the header's checksum follows.
function independent(frame) {
  const [flags, checksum] = [4, 6]
  frame[flags] |= 0x20
  frame[checksum] = xxh32.hash(0, frame, flags, checksum - flags) >> 8
  return frame
}

// lz4js looks for the checksum of a block before the block; it stands after it. So the frame is
// walked here, and lz4js opens the blocks.
function decompressedFrame(frame) {
  const has = flag => (frame[4] & flag) !== 0
  const [blockChecksum, contentSize] = [has(0x10), has(0x08)]
  const content = Buffer.alloc(DECOMPRESSED_MAX_BYTES)
  let end = 0
  let position = contentSize ? 15 : 7
  for (;;) {
    const word = frame.readUInt32LE(position)
    position += 4
    if (word === 0) return content.subarray(0, end)
    const size = word & 0x7fffffff
    if (size !== word) end += frame.copy(content, end, position, position + size)
    else end = lz4.decompressBlock(frame, content, position, size, end)
    position += size + (blockChecksum ? 4 : 0)
  }
}

// The streaming form: most producers do not write the size of the content, the simple form needs it.
const zstd = () => new Promise(resolve => ZstdCodec.run(codec => resolve(new codec.Streaming())))

const toBytes = text => (text === NULL ? null : Buffer.from(text, 'base64'))
const toText = bytes => (bytes === null ? NULL : Buffer.from(bytes).toString('base64'))

function parseRecord(line) {
  const [partition, timestamp, key, value, headerText] = line.split('\t')
  const headers = {}
  for (const header of headerText ? headerText.split(',') : []) {
    const [name, data] = header.split(':')
    const values = (headers[toBytes(name).toString()] ||= [])
    values.push(toBytes(data))
  }
  return { partition: Number(partition), timestamp, key: toBytes(key), value: toBytes(value), headers }
}

function printRecord(partition, { offset, timestamp, key, value, headers }) {
  const headerText = Object.entries(headers ?? {}).flatMap(([name, values]) =>
    (Array.isArray(values) ? values : [values]).map(
      data => `${toText(Buffer.from(name))}:${toText(data)}`
    )
  )
  return [offset, partition, timestamp ?? -1, toText(key), toText(value), headerText.join(',')].join('\t')
}

function client(words) {
  const retry = { retries: 2 }
  return new kafkajs.Kafka({ brokers: [words.bootstrap], logLevel: kafkajs.logLevel.ERROR, retry })
}

async function withAdmin(words, work) {
  const admin = client(words).admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

async function produce(words) {
  const idempotent = words.idempotent === 'true'
  const producer = client(words).producer({ idempotent, maxInFlightRequests: 1 })
  await producer.connect()
  try {
    const lines = readFileSync(words.file, 'utf8').split('\n').filter(line => line !== '')
    for (let first = 0; first < lines.length; first += RECORDS_PER_SEND) {
      const messages = lines.slice(first, first + RECORDS_PER_SEND).map(parseRecord)
      await producer.send({ topic: words.topic, compression: CODECS[words.codec], acks: -1, messages })
    }
    return lines.length
  } finally {
    await producer.disconnect()
  }
}

async function beginTransactions(words) {
  const producer = client(words).producer({
    transactionalId: words.id,
    idempotent: true,
    maxInFlightRequests: 1,
  })
  await producer.connect()
  try {
    await producer.transaction()
    return null
  } finally {
    await producer.disconnect()
  }
}

// A kafkajs consumer cannot do without a group. Its insides can: this is the fetch of its consumer
// (same request, same decoder), aimed at offsets of our choice.
async function consume(words) {
  const { topic } = words
  const logger = createLogger({ level: kafkajs.logLevel.ERROR, logCreator: () => () => {} })
  const cluster = new Cluster({
    logger,
    socketFactory: createSocketFactory(),
    brokers: [words.bootstrap],
    clientId: 'kafkajs',
    connectionTimeout: 1000,
    enforceRequestTimeout: true,
    metadataMaxAge: 300000,
    isolationLevel: 0,
    retry: { retries: 2 },
  })
  const ends = await withAdmin(words, admin => admin.fetchTopicOffsets(topic))
  const lines = []
  await cluster.connect()
  try {
    await cluster.addTargetTopic(topic)
    for (const { partitionId, leader } of cluster.findTopicPartitionMetadata(topic)) {
      if (words.partitions && !words.partitions.split(',').includes(`${partitionId}`)) continue
      const broker = await cluster.findBroker({ nodeId: leader })
      const { low, high } = ends.find(end => end.partition === partitionId)
      let offset = BigInt(low)
      const deadline = Date.now() + TIMEOUT_MS
      while (offset < BigInt(high)) {
        if (Date.now() > deadline) throw new Error(`partition ${partitionId} ends at ${offset}`)
        const partitions = [
          { partition: partitionId, fetchOffset: offset.toString(), maxBytes: 1048576 },
        ]
        const answer = await broker.fetch({ maxWaitTime: 500, topics: [{ topic, partitions }] })
        const { messages } = answer.responses[0].partitions[0]
        for (const message of messages.filter(({ offset: found }) => BigInt(found) >= offset)) {
          lines.push(printRecord(partitionId, message))
        }
        if (messages.length > 0) offset = BigInt(messages[messages.length - 1].offset) + 1n
      }
    }
  } finally {
    await cluster.disconnect()
  }
  writeFileSync(words.file, lines.map(line => line + '\n').join(''))
  return lines.length
}

function under(words, prefix) {
  return Object.entries(words)
    .filter(([key]) => key.startsWith(prefix))
    .map(([key, value]) => ({ name: key.slice(prefix.length), value }))
}

const COMMANDS = {
  produce,
  consume,
  'begin-transactions': beginTransactions,
  'create-topic': words =>
    withAdmin(words, admin => {
      const topic = {
        topic: words.topic,
        numPartitions: Number(words.partitions),
        configEntries: under(words, 'config.'),
      }
      return admin.createTopics({ topics: [topic], waitForLeaders: true })
    }),
  'list-topics': words => withAdmin(words, admin => admin.listTopics()),
  'describe-topic': words =>
    withAdmin(words, async admin => {
      const found = await admin.fetchTopicMetadata({ topics: [words.topic] })
      const partitions = found.topics[0].partitions.map(({ partitionId, leader }) => ({
        partition: partitionId,
        leader,
      }))
      return { id: null, partitions }
    }),
  'describe-configs': words =>
    withAdmin(words, async admin => {
      const resources = [{ type: ConfigResourceTypes.TOPIC, name: words.topic }]
      const found = await admin.describeConfigs({ resources, includeSynonyms: false })
      const { configEntries } = found.resources[0]
      return Object.fromEntries(
        configEntries.map(({ configName, configValue }) => [configName, { value: configValue }])
      )
    }),
  'alter-configs': words =>
    withAdmin(words, async admin => {
      const configEntries = under(words, 'set.')
      const resources = [{ type: ConfigResourceTypes.TOPIC, name: words.topic, configEntries }]
      await admin.alterConfigs({ resources, validateOnly: false })
      return null
    }),
  'create-partitions': words =>
    withAdmin(words, admin => {
      const wanted = { topic: words.topic, count: Number(words.partitions) }
      return admin.createPartitions({ topicPartitions: [wanted] })
    }),
  'list-offsets': words =>
    withAdmin(words, async admin => {
      const ofPartition = ({ partition }) => partition === Number(words.partition)
      const { low, high } = (await admin.fetchTopicOffsets(words.topic)).find(ofPartition)
      if (words.at === 'earliest') return { offset: Number(low) }
      if (words.at === 'latest') return { offset: Number(high) }
      const found = await admin.fetchTopicOffsetsByTimestamp(words.topic, Number(words.at))
      // Where no record is as late, kafkajs gives the end in place of nothing.
      const { offset } = found.find(ofPartition)
      return { offset: offset === high ? -1 : Number(offset) }
    }),
  'delete-records': words =>
    withAdmin(words, async admin => {
      const partitions = [{ partition: Number(words.partition), offset: words.before }]
      // Without this kafkajs does not know the leader, and says so.
      await admin.fetchTopicOffsets(words.topic)
      await admin.deleteTopicRecords({ topic: words.topic, partitions })
      return null
    }),
  'delete-topic': words =>
    withAdmin(words, async admin => {
      await admin.deleteTopics({ topics: [words.topic], timeout: TIMEOUT_MS })
      return null
    }),
  'describe-cluster': words =>
    withAdmin(words, async admin => {
      const found = await admin.describeCluster()
      return { id: found.clusterId, nodes: found.brokers.map(({ host, port }) => `${host}:${port}`) }
    }),
}

function innerError({ errors, partitions, cause }) {
  return errors?.[0] ?? partitions?.[0]?.error ?? cause
}

async function answer(line) {
  const [name, ...pairs] = line.trim().split(' ')
  const words = Object.fromEntries(
    pairs.map(pair => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)])
  )
  try {
    return { ok: (await COMMANDS[name](words)) ?? null }
  } catch (error) {
    // Errors of several topics, and those that were met again and again, are wrapped.
    let cause = error
    for (let inner = error; inner; inner = innerError(inner)) cause = inner
    return { error: `${cause.name}: ${cause.message}`, code: cause.code ?? -1 }
  }
}

async function main() {
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(line)) + '\n')
  }
}

main()
