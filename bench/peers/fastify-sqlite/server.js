// Stores in a file of SQLite, each write on the disk before its response: PORT, DATABASE=file, SEED=n stores.
import Database from 'better-sqlite3'
import { app, idOf, list, listen, missing, one, write } from '../fastify/app.js'

const db = new Database(process.env.DATABASE)
db.pragma('journal_mode = WAL')
db.pragma('synchronous = FULL')
db.exec(`
  CREATE TABLE IF NOT EXISTS stores (id INTEGER PRIMARY KEY, name TEXT NOT NULL, address TEXT) STRICT;
  CREATE INDEX IF NOT EXISTS stores_by_name ON stores (name);
`)
if (!db.prepare('SELECT 1 FROM stores').get()) {
  db.prepare(`
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
    INSERT INTO stores SELECT n, format('Store %06d', n), format('Street %06d', n) FROM numbers
  `).run(Number(process.env.SEED ?? 3))
  db.pragma('wal_checkpoint(TRUNCATE)')
  db.pragma('optimize')
}

const all = db.prepare('SELECT id, name, address FROM stores ORDER BY id')
const named = db.prepare('SELECT id, name, address FROM stores WHERE name = ? ORDER BY id')
const find = db.prepare('SELECT id, name, address FROM stores WHERE id = ?')
const create = db.prepare('INSERT INTO stores (name, address) VALUES (?, ?)')
const replace = db.prepare('UPDATE stores SET name = ?, address = ? WHERE id = ?')

app.get('/api/stores', list, (request, reply) => {
  const { name } = request.query
  reply.send(name ? named.all(name) : all.all())
})

app.get('/api/stores/:id', one, (request, reply) => {
  const found = find.get(idOf(request))
  found ? reply.send(found) : missing(reply, request.params.id)
})

app.post('/api/stores', write, (request, reply) => {
  const { name, address = null } = request.body
  const id = create.run(name, address).lastInsertRowid // the greatest so far plus one
  reply.send({ id, name, address })
})

app.put('/api/stores/:id', write, (request, reply) => {
  const { name, address = null } = request.body
  const id = idOf(request)
  replace.run(name, address, id).changes ? reply.send({ id, name, address }) : missing(reply, request.params.id)
})

await listen()
