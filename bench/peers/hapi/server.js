// The contract on hapi and joi, stores in memory: PORT, SEED=n stores, GENERIC=1 for undetailed errors.
import Hapi from '@hapi/hapi'
import Joi from 'joi'

const seed = Number(process.env.SEED ?? 3)
const stores = Array.from({ length: seed }, (_, index) => {
  const number = String(index + 1).padStart(6, '0')
  return { id: index + 1, name: `Store ${number}`, address: `Street ${number}` }
})

// ids are 1..n without gaps, so the position is the quickest way to a store
const find = (id) => stores[Number.parseInt(id, 10) - 1]

const payload = Joi.object({
  name: Joi.string().max(30).required().messages({
    'string.empty': '"name" is required',
    'string.max': '"name" length must be less than or equal to 30 characters long'
  }),
  address: Joi.string().allow('')
}).label('value')

const validate = {
  payload,
  options: { abortEarly: false, stripUnknown: true, convert: false },
  failAction: process.env.GENERIC === '1' ? 'error' : (request, h, error) => { throw error }
}

const server = Hapi.server({ host: '127.0.0.1', port: Number(process.env.PORT) })

server.route([
  {
    method: 'GET',
    path: '/test',
    handler: (request, h) => h.response('OK').type('text/plain')
  },
  {
    method: 'GET',
    path: '/api/stores',
    handler: ({ query: { name } }) => name ? stores.filter((store) => store.name === name) : stores
  },
  {
    // No such store: hapi answers a handler that produces no value with the contract's 500.
    method: 'GET',
    path: '/api/stores/{id}',
    handler: ({ params }) => find(params.id)
  },
  {
    method: 'POST',
    path: '/api/stores',
    options: { validate },
    handler: ({ payload: { name, address = null } }) => {
      const store = { id: stores.length + 1, name, address }
      stores.push(store)
      return store
    }
  },
  {
    method: 'PUT',
    path: '/api/stores/{id}',
    options: { validate },
    handler: ({ params, payload: { name, address = null } }) => {
      const store = find(params.id)
      return store && Object.assign(store, { name, address })
    }
  }
])

await server.start()
