import { expect, test } from "vitest";
import * as z from "zod";
import { type Endpoint, endpointFor } from "../../shared/platform/http/endpoint.ts";
import { content, created, deleted, ok, type Reply } from "../../shared/platform/http/reply.ts";

const endpoint = endpointFor<object>();
const base = {
  name: "thing",
  method: "GET",
  route: "thing",
  summary: "Get a thing",
  tag: "Things",
  access: "open",
  tier: "core",
} as const;
const Thing = z.object({ name: z.string(), state: z.enum(["on", "off"]), parts: z.array(z.string()).optional() });
const File = { description: "A file.", mediaType: "text/csv" };

/** An unused `@ts-expect-error` is a compiler error, so the type check fails if one of these declarations is accepted. */
const declarations: Endpoint<object>[] = [
  endpoint({ ...base, responds: { 200: Thing }, handle: async () => ok({ name: "a", state: "on" }) }),
  endpoint({
    ...base,
    responds: { 200: Thing, 201: Thing },
    handle: async () => created({ name: "a", state: "on" }, "/"),
  }),
  endpoint({
    ...base,
    responds: { 200: { json: Thing, or: ["text/csv"] } },
    query: z.strictObject({ csv: z.boolean().optional() }),
    handle: async ({ query }) => (query.csv ? content("text/csv", "") : ok({ name: "a", state: "off", parts: ["b"] })),
  }),
  // @ts-expect-error: `pong` is no member of Thing.
  endpoint({ ...base, responds: { 200: Thing }, handle: async () => ok({ pong: "yes" }) }),
  // @ts-expect-error: `state` is missing.
  endpoint({ ...base, responds: { 200: Thing }, handle: async () => ok({ name: "a" }) }),
  // @ts-expect-error: `state` has another value.
  endpoint({ ...base, responds: { 200: Thing }, handle: async () => ok({ name: "a", state: "open" }) }),
  // @ts-expect-error: the reply of a deletion is no Thing.
  endpoint({ ...base, responds: { 200: Thing }, handle: async () => deleted() }),
  // @ts-expect-error: only a file is declared.
  endpoint({ ...base, responds: { 200: File }, handle: async () => ok({ name: "a" }) }),
  // @ts-expect-error: the JSON of the two media types is a Thing.
  endpoint({ ...base, responds: { 200: { json: Thing, or: ["text/csv"] } }, handle: async () => ok({ name: "a" }) }),
];

test("an endpoint keeps its handler and its declared responses", async () => {
  const [first] = declarations;
  expect(first?.responds[200]).toBe(Thing);
  const reply: Reply = await first!.handle({} as never);
  expect(reply).toEqual({ status: 200, json: { name: "a", state: "on" } });
});
