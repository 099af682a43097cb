'use strict'

// The conversation of a Node client of past years with a test.
//
// A command is a line of words, `produce key=value ...` or `consume key=value ...`; its answer is a
// line of JSON, {"ok": ...} or {"error": "...", "code": n}. Records are lines of text in files;
// their form is described in tests/clients/records.py.

const { readFileSync, writeFileSync } = require('fs')
const { createInterface } = require('readline')

const TIMEOUT_MS = 30000
const NULL = '~'

const toBytes = text => (text === NULL ? null : Buffer.from(text, 'base64'))
const toText = bytes => (bytes == null ? NULL : Buffer.from(bytes).toString('base64'))

function parseRecord(line) {
  const [partition, timestamp, key, value] = line.split('\t')
  return {
    partition: Number(partition),
    timestamp: Number(timestamp),
    key: toBytes(key),
    value: toBytes(value),
  }
}

function printRecord({ partition, offset, timestamp, key, value }) {
  return [offset, partition, timestamp, toText(key), toText(value), ''].join('\t') + '\n'
}

// Rejects after a while: these clients wait for ever where something goes wrong.
function within(work) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('not done in time')), TIMEOUT_MS)
  })
  return Promise.race([work, late]).finally(() => clearTimeout(timer))
}

function wordsOf(pairs) {
  return Object.fromEntries(
    pairs.map(pair => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)])
  )
}

async function run(name, words, { produce, consume }) {
  if (name === 'produce') {
    const lines = readFileSync(words.file, 'utf8').split('\n').filter(line => line !== '')
    await within(produce(words, lines.map(parseRecord)))
    return lines.length
  }
  const partitions = words.partitions.split(',').map(Number)
  const ends = words.ends.split(',').map(Number)
  const start = Number(words.start)
  const found = []
  for (const [index, partition] of partitions.entries()) {
    if (ends[index] <= start) continue
    const wanted = { topic: words.topic, partition, start, end: ends[index] }
    found.push(...(await within(consume(words, wanted))))
  }
  writeFileSync(words.file, found.map(printRecord).join(''))
  return found.length
}

exports.answerCommands = async client => {
  for await (const line of createInterface({ input: process.stdin })) {
    const [name, ...pairs] = line.trim().split(' ')
    let answer
    try {
      answer = { ok: await run(name, wordsOf(pairs), client) }
    } catch (error) {
      answer = { error: `${error.name}: ${error.message}`, code: -1 }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}
