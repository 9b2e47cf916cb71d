// What the services on Fastify share: the contract's schemas, with compiled validation and serialisation, and its errors.
import Fastify from 'fastify'

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
export const list = { schema: { response: { 200: { type: 'array', items: store } } } }
export const one = { schema: { response: { 200: store } } }
export const write = { schema: { body, response: { 200: store } } }

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

export function missing (reply, id) {
  return reply.code(404).send({ statusCode: 404, error: 'Not Found', message: `Store ${id} not found` })
}

/** The number in a path, or 0, which no store has. */
export function idOf (request) {
  const id = Number.parseInt(request.params.id, 10)
  return Number.isSafeInteger(id) ? id : 0
}

export const app = Fastify({
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

app.get('/test', (request, reply) => {
  reply.type('text/plain; charset=utf-8').send('OK')
})

export const listen = () => app.listen({ host: '127.0.0.1', port: Number(process.env.PORT) })
