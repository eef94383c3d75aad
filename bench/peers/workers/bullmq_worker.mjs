// A worker of BullMQ: `node bullmq_worker.mjs work|publish`. Its records have the form that peers/records.py describes.
import { randomUUID } from 'node:crypto'
import { openSync, writeSync } from 'node:fs'
import { createRequire } from 'node:module'

// The packages are in a folder of their own.
const { Queue, Worker } = createRequire(`${process.env.PEERS_NODE}/`)('bullmq')
const { hostname: host, port } = new URL(process.env.PEERS_URL)
const connection = { host, port: Number(port), maxRetriesPerRequest: null }
const { PEERS_NAME: name, PEERS_WORKER: worker } = process.env
const fast = process.env.PEERS_DETECTION === 'fast'
const beatMs = 250

function publishTasks(queue) {
  const tasks = Array.from({ length: Number(process.env.PEERS_TASKS) }, (_, number) => String(number))
  return queue.addBulk(tasks.map((task) => ({ name: 'forever', data: { task }, opts: { attempts: 1 } })))
}

function work() {
  const file = openSync(process.env.PEERS_RECORDS, 'a')
  const record = (event, task, run) => writeSync(file, `${Date.now()} ${event} ${task} ${worker} ${run}\n`)
  const forever = (job, signal) =>
    new Promise((_, reject) => {
      const run = randomUUID().slice(0, 13)
      record('start', job.data.task, run)
      const beats = setInterval(() => record('beat', job.data.task, run), beatMs)
      signal?.addEventListener('abort', () => {
        clearInterval(beats)
        reject(new Error('the lock was lost'))
      })
    })
  const options = {
    connection,
    concurrency: Number(process.env.PEERS_SLOTS),
    // A task that never ends outlives many failures.
    maxStalledCount: 1_000_000,
    ...(fast ? { lockDuration: 10_000, stalledInterval: 5_000 } : {}),
  }
  const it = fast
    ? new Worker(name, (job, _token, signal) => forever(job, signal), options)
    : new Worker(name, (job) => forever(job), options)
  it.on('error', (error) => console.error(error.message))
  it.on('failed', (job, error) => console.error(`${job?.data.task} failed: ${error.message}`))
  // BullMQ's documentation recommends this for jobs whose lock was lost.
  if (fast) it.on('lockRenewalFailed', (ids) => ids.forEach((id) => it.cancelJob(id, 'the lock was lost')))
  it.waitUntilReady().then(() => record('ready', '-', '-'))
}

if (process.argv[2] === 'publish') {
  const queue = new Queue(name, { connection })
  await publishTasks(queue)
  await queue.close()
} else {
  work()
}
