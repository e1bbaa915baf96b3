import { expect, test } from "vitest";
import * as z from "zod";
import { type Endpoint, endpointFor } from "../../shared/platform/http/endpoint.ts";
import { content, created, deleted, ok, type Reply } from "../../shared/platform/http/reply.ts";

/*
 * The type check is the test: an endpoint whose handler returns other JSON than its `responds` declares must not compile. Each
 * `@ts-expect-error` below is a compiler error itself if the line after it compiles.
 */

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
  // @ts-expect-error: `deleted` replies `{ deleted: true }`, which is no Thing.
  endpoint({ ...base, responds: { 200: Thing }, handle: async () => deleted() }),
  // @ts-expect-error: the declared response is a file, not JSON.
  endpoint({ ...base, responds: { 200: File }, handle: async () => ok({ name: "a" }) }),
  // @ts-expect-error: `state` is missing, also where a CSV file is the alternative.
  endpoint({ ...base, responds: { 200: { json: Thing, or: ["text/csv"] } }, handle: async () => ok({ name: "a" }) }),
];

// The only check at run time.
test("a declared endpoint contains its handler and its responses", async () => {
  const [first] = declarations;
  expect(first?.responds[200]).toBe(Thing);
  const reply: Reply = await first!.handle({} as never);
  expect(reply).toEqual({ status: 200, json: { name: "a", state: "on" } });
});
