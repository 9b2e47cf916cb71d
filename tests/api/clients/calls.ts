// What a program does with the types that openapi-typescript makes, and openapi-fetch.
import createClient from "openapi-fetch";
import type { components, paths } from "./stores.js";

declare const process: { argv: string[]; exit(status: number): never };
const [service, gateway] = process.argv.slice(2);

function check(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(what);
}

const client = createClient<paths>({ baseUrl: service });
const { data: made } = await client.POST("/api/stores", {
  body: { name: "Harbour" },
  params: { header: { "Idempotency-Key": "one" } },
});
check(made?.id === 1 && made.address === null, "a store is made");
const path = { id: made.id };
const { data: moved } = await client.PATCH("/api/stores/{id}", {
  params: { path },
  body: { address: "20 Quay Road" },
});
check(moved?.address === "20 Quay Road", "one field is changed");
const { error, response } = await client.POST("/api/stores", { body: { name: "" } });
check(response.status === 400 && typeof error === "object", "an empty name is refused");
const outcome: "none" | "unknown" | undefined = error.outcome;
check(outcome === undefined && error.validation?.keys[0] === "name", "and the field is named");
const { data: page } = await client.GET("/api/changes", { params: { query: { limit: 1, order: "asc" } } });
const changes: components["schemas"]["Change"][] = page?.changes ?? [];
check(changes[0]?.store.name === "Harbour", "a page of changes");
const done = await client.POST("/api/imports", {
  params: { query: { match: "id", "dry-run": true } },
  headers: { "content-type": "text/csv" },
  body: "id,name\n,Station\n",
  bodySerializer: (body) => body,
});
check(done.data !== undefined && "created" in done.data && done.data.created === 1, "a dry run");
const stream = await client.GET("/api/changes/stream", { parseAs: "stream" });
const first = await stream.data?.getReader().read();
check(new TextDecoder().decode(first?.value).startsWith("retry: 2000"), "a stream of events");
const behind = createClient<paths>({ baseUrl: gateway });
const { error: html } = await behind.GET("/api/stores");
check(typeof html === "string" && html.includes("<html>"), "a proxy's page of HTML");
process.exit(0);
