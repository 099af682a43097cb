'use strict'

// Sends a record to a closed broker and reads it back, over TLS with a mechanism of SASL:
//
//   kafkajs_secured.js BOOTSTRAP MECHANISM CA USER PASSWORD TOPIC
//
// PASSWORD is the token of OAUTHBEARER. Prints the value that it has read.

const { readFileSync } = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const VALUE = 'over TLS'

async function main([bootstrap, mechanism, ca, username, password, topic]) {
  const kafka = new Kafka({
    brokers: [bootstrap],
    ssl: { ca: [readFileSync(ca)] },
    sasl: {
      mechanism: mechanism.toLowerCase(),
      username,
      password,
      oauthBearerProvider: async () => ({ value: password }),
    },
    logLevel: logLevel.NOTHING,
  })
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value: VALUE }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const found = await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) })
  })
  await consumer.disconnect()
  console.log(found)
}

main(process.argv.slice(2)).catch(error => {
  console.error(error.message)
  process.exit(1)
})
