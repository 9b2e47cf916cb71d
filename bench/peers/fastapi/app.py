"""The contract on FastAPI and Pydantic, stores in memory: SEED=n stores; the port is uvicorn's."""

import os
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field

Send = Callable[[dict[str, Any]], Awaitable[None]]

MESSAGES = {
    "missing": "is required",
    "string_too_short": "is required",
    "string_type": "must be a string",
    "string_too_long": "length must be less than or equal to {max_length} characters long",
}


class Payload(BaseModel):
    name: Annotated[str, Field(strict=True, min_length=1, max_length=30)]
    address: Annotated[str, Field(strict=True)] = None  # type: ignore[assignment]  # absent is null, null is not


class Store(BaseModel):
    id: int
    name: str
    address: str | None


class ContractHeaders:
    """Sets the two headers of the contract without giving up FastAPI's direct path to JSON bytes."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        async def with_headers(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    (name, value + b"; charset=utf-8" if value == b"application/json" else value)
                    for name, value in message["headers"]
                ]
                message["headers"].append((b"cache-control", b"no-cache"))
            await send(message)

        await self.app(scope, receive, with_headers)


app = FastAPI(openapi_url=None)
app.add_middleware(ContractHeaders)
stores = [
    Store(id=number, name=f"Store {number:06}", address=f"Street {number:06}")
    for number in range(1, int(os.environ.get("SEED", "3")) + 1)
]


@app.exception_handler(RequestValidationError)
async def bad_request(_: Request, error: RequestValidationError) -> JSONResponse:
    body: dict[str, Any] = {"statusCode": 400, "error": "Bad Request"}
    problems = error.errors()
    if problems[0]["type"] == "json_invalid":
        body["message"] = "Invalid request payload JSON format"
    elif len(problems[0]["loc"]) < 2:
        body["message"] = '"value" must be of type object'
        body["validation"] = {"source": "payload", "keys": []}
    else:
        keys = [problem["loc"][1] for problem in problems]
        texts = [MESSAGES[problem["type"]].format(**problem.get("ctx", {})) for problem in problems]
        body["message"] = ". ".join(f'"{key}" {text}' for key, text in zip(keys, texts, strict=True))
        body["validation"] = {"source": "payload", "keys": keys}
    return JSONResponse(body, 400)


def find(id: str) -> Store | None:
    number = int(id) if id.isdecimal() else 0
    return stores[number - 1] if 1 <= number <= len(stores) else None


def missing(id: str) -> JSONResponse:
    body = {"statusCode": 404, "error": "Not Found", "message": f"Store {id} not found"}
    return JSONResponse(body, 404)


@app.get("/test")
async def test() -> PlainTextResponse:
    return PlainTextResponse("OK")


@app.get("/api/stores")
async def read_all(name: str = "") -> list[Store]:
    return [store for store in stores if store.name == name] if name else stores


@app.get("/api/stores/{id}", response_model=Store)
async def read(id: str) -> Any:
    return find(id) or missing(id)


@app.post("/api/stores")
async def create(payload: Payload) -> Store:
    store = Store(id=len(stores) + 1, name=payload.name, address=payload.address)
    stores.append(store)
    return store


@app.put("/api/stores/{id}", response_model=Store)
async def replace(id: str, payload: Payload) -> Any:
    store = find(id)
    if store is None:
        return missing(id)
    store.name, store.address = payload.name, payload.address
    return store
