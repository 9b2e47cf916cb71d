// The contract on Fastify with its own schemas, stores in memory: PORT, SEED=n stores.
import Fastify from 'fastify'

const seed = Number(process.env.SEED ?? 3)
const stores = Array.from({ length: seed }, (_, index) => {
  const number = String(index + 1).padStart(6, '0')
  return { id: index + 1, name: `Store ${number}`, address: `Street ${number}` }
})

const find = (id) => stores[Number.parseInt(id, 10) - 1]

const store = {
  type: 'object',
  required: ['id', 'name', 'address'],
  properties: {
    id: { type: 'integer' },
    name: { type: 'string' },
    address: { type: 'string', nullable: true }
  }
}
const body = {
  type: 'object',
  required: ['name'],
  additionalProperties: false,
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 30 },
    address: { type: 'string' }
  }
}
const list = { schema: { response: { 200: { type: 'array', items: store } } } }
const one = { schema: { response: { 200: store } } }
const write = { schema: { body, response: { 200: store } } }

const messages = {
  required: () => 'is required',
  minLength: () => 'is required',
  type: ({ type }) => `must be a ${type}`,
  maxLength: ({ limit }) => `length must be less than or equal to ${limit} characters long`
}

function describe (problems) {
  const keys = []
  const texts = problems.map(({ keyword, params, instancePath }) => {
    const key = params.missingProperty ?? instancePath.slice(1)
    if (!key) return '"value" must be of type object'
    keys.push(key)
    return `"${key}" ${messages[keyword](params)}`
  })
  return { message: texts.join('. '), validation: { source: 'payload', keys } }
}

const bad = (reply, details) => reply.code(400).send({ statusCode: 400, error: 'Bad Request', ...details })

const app = Fastify({
  ajv: { customOptions: { coerceTypes: false, allErrors: true } },
  serializerOpts: { largeArrayMechanism: 'json-stringify' }
})

app.addHook('onRequest', (request, reply, done) => {
  reply.header('cache-control', 'no-cache')
  done()
})

app.setErrorHandler((error, request, reply) => {
  if (error.validation) return bad(reply, describe(error.validation))
  if (error.statusCode === 400) return bad(reply, { message: 'Invalid request payload JSON format' })
  return reply.code(500).send({
    statusCode: 500,
    error: 'Internal Server Error',
    message: 'An internal server error occurred'
  })
})

function missing (reply, id) {
  return reply.code(404).send({ statusCode: 404, error: 'Not Found', message: `Store ${id} not found` })
}

app.get('/test', (request, reply) => {
  reply.type('text/plain; charset=utf-8').send('OK')
})

app.get('/api/stores', list, (request, reply) => {
  const { name } = request.query
  reply.send(name ? stores.filter((found) => found.name === name) : stores)
})

app.get('/api/stores/:id', one, (request, reply) => {
  const found = find(request.params.id)
  found ? reply.send(found) : missing(reply, request.params.id)
})

app.post('/api/stores', write, (request, reply) => {
  const { name, address = null } = request.body
  const created = { id: stores.length + 1, name, address }
  stores.push(created)
  reply.send(created)
})

app.put('/api/stores/:id', write, (request, reply) => {
  const found = find(request.params.id)
  if (!found) return missing(reply, request.params.id)
  const { name, address = null } = request.body
  reply.send(Object.assign(found, { name, address }))
})

await app.listen({ host: '127.0.0.1', port: Number(process.env.PORT) })
