// Stores in memory: PORT, SEED=n stores.
import { app, idOf, list, listen, missing, one, write } from './app.js'

const seed = Number(process.env.SEED ?? 3)
const stores = Array.from({ length: seed }, (_, index) => {
  const number = String(index + 1).padStart(6, '0')
  return { id: index + 1, name: `Store ${number}`, address: `Street ${number}` }
})

const find = (request) => stores[idOf(request) - 1]

app.get('/api/stores', list, (request, reply) => {
  const { name } = request.query
  reply.send(name ? stores.filter((found) => found.name === name) : stores)
})

app.get('/api/stores/:id', one, (request, reply) => {
  const found = find(request)
  found ? reply.send(found) : missing(reply, request.params.id)
})

app.post('/api/stores', write, (request, reply) => {
  const { name, address = null } = request.body
  const created = { id: stores.length + 1, name, address }
  stores.push(created)
  reply.send(created)
})

app.put('/api/stores/:id', write, (request, reply) => {
  const found = find(request)
  if (!found) return missing(reply, request.params.id)
  const { name, address = null } = request.body
  reply.send(Object.assign(found, { name, address }))
})

await listen()
