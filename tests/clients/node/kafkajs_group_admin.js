'use strict'

// What an administrator does to a group without members: node kafkajs_group_admin.js BOOTSTRAP
// TOPIC GROUP. Lists and describes it, moves an offset, and deletes the group.

const { Kafka, logLevel } = require('kafkajs')

async function main(bootstrap, topic, groupId) {
  const admin = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING }).admin()
  await admin.connect()
  await admin.listGroups()
  await admin.describeGroups([groupId])
  await admin.fetchOffsets({ groupId, topics: [topic] })
  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 1, offset: '1' }] })
  await admin.deleteGroups([groupId])
  await admin.disconnect()
}

main(...process.argv.slice(2)).catch(error => {
  process.stderr.write(`${error.stack}\n`)
  process.exitCode = 1
})
