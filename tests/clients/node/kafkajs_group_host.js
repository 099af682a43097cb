'use strict'

// Members of consumer groups in kafkajs.
//
// Commands and events are those of tests/clients/python/group_host.py.

const { createInterface } = require('readline')
const { Kafka, logLevel } = require('kafkajs')

// Longer than a fetch and the reading of what it brought.
const DRAIN_MS = 700

const RESTART_MS = 300

const members = {}

const print = fields => process.stdout.write(JSON.stringify(fields) + '\n')

function event(member, name, facts) {
  // JSON has no integers of this size in JavaScript; the text has them.
  const at = process.hrtime.bigint().toString()
  process.stdout.write(`{"at": ${at}, ${JSON.stringify({ member, event: name, ...facts }).slice(1)}\n`)
}

function client(words) {
  const retry = { retries: 100, initialRetryTime: 100, maxRetryTime: 500 }
  return new Kafka({ brokers: [words.bootstrap], logLevel: logLevel.NOTHING, retry })
}

class Member {
  constructor(words) {
    this.name = words.member
    this.topic = words.topic
    this.words = words
    this.owned = []
    // Partition -> where its next record is.
    this.last = new Map()
    this.open()
  }

  open() {
    const { words } = this
    this.joins = this.fetchedIn = 0
    this.consumer = client(words).consumer({
      groupId: words.group,
      sessionTimeout: Number(words.session_ms),
      heartbeatInterval: Number(words.heartbeat_ms),
      // A member that another took the place of is waited for so long.
      rebalanceTimeout: 10000,
      maxWaitTimeInMs: 200,
      retry: { retries: 100, initialRetryTime: 100, maxRetryTime: 500 },
    })
    this.consumer.on(this.consumer.events.REBALANCING, () => this.give())
    this.consumer.on(this.consumer.events.FETCH, () => (this.fetchedIn = this.joins))
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.give()
      this.joins += 1
      this.owned = payload.memberAssignment[this.topic] ?? []
      event(this.name, 'gained', { partitions: this.owned })
    })
    this.consumer.on(this.consumer.events.CRASH, ({ payload }) => {
      // Of some errors, as that of a member which the group forgot, its users must take care.
      if (payload.restart) return
      event(this.name, 'crashed', { why: `${payload.error.name}: ${payload.error.message}` })
      this.give()
      this.open()
      setTimeout(() => this.run(), RESTART_MS)
    })
  }

  async run() {
    try {
      await this.consumer.connect()
      await this.consumer.subscribe({ topics: [this.topic], fromBeginning: true })
      await this.consumer.run({
        autoCommit: false,
        eachBatchAutoResolve: false,
        eachBatch: work => this.read(work),
      })
    } catch (error) {
      this.fail(error)
    }
  }

  async read({ batch, resolveOffset, isRunning, isStale }) {
    // Where a batch fails, kafkajs joins again and yet goes on with those that came with it.
    if (!isRunning() || isStale() || this.fetchedIn !== this.joins) return
    const { partition, messages } = batch
    event(this.name, 'read', {
      partition,
      offset: Number(messages[0].offset),
      values: messages.map(({ value }) => value.toString()),
    })
    const next = Number(messages[messages.length - 1].offset) + 1
    this.last.set(partition, next)
    await this.commit(new Map([[partition, next]]))
    resolveOffset(messages[messages.length - 1].offset)
  }

  // Raises what kafkajs raises: from the reading of a batch it is the library's to deal with.
  async commit(wanted) {
    const { topic } = this
    const offsets = Object.fromEntries(wanted)
    const positions = [...wanted].map(([partition, offset]) => ({ topic, partition, offset: `${offset}` }))
    try {
      await this.consumer.commitOffsets(positions)
    } catch (error) {
      event(this.name, 'refused', { offsets, why: `${error.name}: ${error.message}` })
      throw error
    }
    event(this.name, 'committed', { offsets })
  }

  async order(name) {
    const topics = [{ topic: this.topic }]
    if (name === 'hold') {
      // What was fetched is worked off first: kafkajs would do it also after it joined again.
      this.consumer.pause(topics)
      await new Promise(resolve => setTimeout(resolve, DRAIN_MS))
      this.held = new Map(this.last)
      event(this.name, 'held', { offsets: Object.fromEntries(this.held) })
    } else if (name === 'commit') {
      await this.commit(this.held).catch(() => {})
    } else if (name === 'go') {
      this.consumer.resume(topics)
    } else {
      await this.leave()
    }
  }

  async leave() {
    try {
      await this.consumer.disconnect()
      event(this.name, 'left', {})
    } catch (error) {
      this.fail(error)
    }
  }

  give() {
    if (this.owned.length > 0) event(this.name, 'gave', { partitions: this.owned })
    this.owned = []
    this.last.clear()
  }

  fail(error) {
    event(this.name, 'failed', { why: `${error.name}: ${error.message}` })
  }
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

const COMMANDS = {
  join: words => {
    members[words.member] = new Member(words)
    members[words.member].run()
  },
  put: words =>
    withAdmin(words, admin => {
      const partitions = words.offsets.split(',').map(pair => {
        const [partition, offset] = pair.split(':')
        return { partition: Number(partition), offset }
      })
      return admin.setOffsets({ groupId: words.group, topic: words.topic, partitions })
    }),
  get: words =>
    withAdmin(words, async admin => {
      const found = await admin.fetchOffsets({ groupId: words.group, topics: [words.topic] })
      const wanted = words.partitions.split(',').map(Number)
      return found[0].partitions
        .filter(({ partition }) => wanted.includes(partition))
        .map(({ partition, offset, metadata }) => [partition, Number(offset), metadata ?? ''])
    }),
}

async function run(line) {
  const [name, ...pairs] = line.trim().split(' ')
  const words = Object.fromEntries(
    pairs.map(pair => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)])
  )
  try {
    if (COMMANDS[name]) return { ok: (await COMMANDS[name](words)) ?? null }
    // Not waited for: its events tell.
    members[words.member].order(name)
    return { ok: null }
  } catch (error) {
    return { error: `${error.name}: ${error.message}` }
  }
}

async function main() {
  for await (const line of createInterface({ input: process.stdin })) print(await run(line))
  process.exit(0)
}

main()
