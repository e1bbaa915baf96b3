import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ADMIN, Service } from "../support/service.ts";

/** Tests of the audit log's HTTP endpoints (list, export, verify) on a running service. */

let service: Service;
/** Token of an administrator's session. */
let token: string;

beforeAll(async () => {
  service = await Service.start({ env: { AUDIT_SIGNING_KEYS: `k1:${randomBytes(32).toString("base64")}` } });
  for (let index = 0; index < 3; index++) await service.signIn(ADMIN);
  await service.call("GET", "/audit/entries", { token: "no-token-at-all" });
  await service.admin("PUT", "/api/settings/compliance-policy", { criticalExpiryDays: 5 });
  token = await service.signIn(ADMIN);
});
afterAll(() => service?.stop());

const get = (path: string, headers: Record<string, string> = {}) => service.call("GET", path, { token, headers });

test("the list filters by event type and actor, and its cursor continues with the next page", async () => {
  const { status, body } = await get("/audit/entries?event_type=user.signedIn&actor=ADMIN&limit=2");
  expect(status).toBe(200);
  expect(body).toMatchObject({ limit: 2, offset: 0 });
  expect(body.items).toHaveLength(2);
  expect(body.items[0]).toMatchObject({ eventType: "user.signedIn", actor: "admin", outcome: "success" });
  expect(body.total).toBeGreaterThanOrEqual(4);
  const next = await get(`/audit/entries?event_type=user.signedIn&actor=ADMIN&limit=2&cursor=${body.nextCursor}`);
  expect(next.body.offset).toBe(2);
  const camelCase = await get("/audit/entries?eventType=user.signedIn&startDate=2020-01-01");
  expect(camelCase.body.items.length).toBe(next.body.total);
});

test("the list finds a text in any member, in every page, and its reads are recorded without the text", async () => {
  const search = async (query: string) => (await get(`/audit/entries?${query}`)).body;
  const byEvent = await search("search=user%20signed%20IN&limit=2");
  expect(byEvent.items.map(({ eventType }: { eventType: string }) => eventType)).toEqual([
    "user.signedIn",
    "user.signedIn",
  ]);
  const next = await search(`search=user%20signed%20IN&limit=1000&cursor=${byEvent.nextCursor}`);
  const all = await search("event_type=user.signedIn&limit=1000");
  expect([...byEvent.items, ...next.items].map(({ id }: { id: string }) => id)).toEqual(
    all.items.map(({ id }: { id: string }) => id),
  );
  for (const text of ["criticalexpiry", "critical%20expiry%20DAYS"]) {
    const { items, total } = await search(`search=${text}&event_type=settings.changed`);
    // The start of the change and its outcome.
    expect(items.map(({ outcome }: { outcome: string }) => outcome)).toEqual(["success", "intent"]);
    expect(total).toBe(2);
  }
  expect(await search("search=none-contains-it&actor=admin")).toMatchObject({ items: [], total: 0, nextCursor: null });
  const byTarget = await search("search=compliance-POLICY");
  expect(byTarget.items[0]).toMatchObject({ eventType: "settings.changed" });
  const [read] = (await search("event_type=audit.listed&search=audit.listed")).items;
  expect(read.target.id).toBe("event_type=audit.listed&search");
  const refused = await get(`/audit/entries?search=other&cursor=${byEvent.nextCursor}`);
  expect([refused.status, refused.body.code]).toEqual([400, "invalidCursor"]);
});

describe("an invalid parameter returns 400:", () => {
  for (const [query, path] of [
    ["search=", "query.search"],
    ["start_date=2026-13-01", "query.start_date"],
    ["start_date=2026-11-21&end_date=2026-11-01", "query.end_date"],
    ["event_type=%27%20or%201%20eq%201", "query.event_type"],
    ["limit=0", "query.limit"],
    ["limit=1001", "query.limit"],
    ["offset=10001", "query.offset"],
    ["cursor=nonsense", "query.cursor"],
    ["actor=", "query.actor"],
    ["who=me", "query.who"],
  ] as const) {
    test(`${query}, and the problem names ${path}`, async () => {
      const { status, body } = await get(`/audit/entries?${query}`);
      expect(status).toBe(400);
      expect(body.errors.map((error: { path: string }) => error.path)).toContain(path);
    });
  }

  test("format=xml", async () => expect((await get("/audit/export?format=xml")).status).toBe(400));
  test("a cursor that verify did not return", async () =>
    expect((await get("/audit/verify?cursor=e30")).status).toBe(400));
});

test("JSON and CSV exports are compressed for clients that accept gzip", async () => {
  const json = await get("/audit/export?format=json", { "Accept-Encoding": "gzip" });
  expect(json.headers.get("content-encoding")).toBe("gzip");
  expect(json.headers.get("content-type")).toBe("application/json");
  expect(json.body.entries.length).toBeGreaterThan(4);
  const csv = await get("/audit/export?format=csv", { "Accept-Encoding": "identity" });
  expect(csv.headers.get("content-encoding")).toBeNull();
  expect(csv.headers.get("content-disposition")).toMatch(/^attachment; filename="audit-.*\.csv"$/);
  expect(csv.text).toContain('"user.signedIn"');
  const csvByPath = await get("/audit/export/csv?event_type=user.signedIn");
  expect([csvByPath.status, csvByPath.headers.get("content-type")]).toEqual([200, csv.headers.get("content-type")]);
  expect(csvByPath.text).toContain('"user.signedIn"');
});

test("both addresses of the PDF export return a PDF", async () => {
  for (const address of ["?format=pdf&", "/pdf?"]) {
    const pdf = await get(`/audit/export${address}start_date=2020-01-01&end_date=2099-12-31`);
    expect(pdf.headers.get("content-type")).toBe("application/pdf");
    expect(pdf.text.startsWith("%PDF-1.7")).toBe(true);
  }
});

test("verify reports an unchanged log as intact and returns the public keys", async () => {
  const { status, body } = await get("/audit/verify");
  expect(status).toBe(200);
  expect(body).toMatchObject({ intact: true, sealing: "configured", findings: [], publicKeys: [{ kid: "k1" }] });
});

test("reading and exporting the log are recorded in it", async () => {
  const listed = await get("/audit/entries?event_type=audit.listed&actor=admin&limit=1000");
  const listEntry = listed.body.items.find((entry: { target: { id: string } }) =>
    entry.target.id.startsWith("actor=admin"),
  );
  expect(listEntry).toMatchObject({ actor: "admin", outcome: "success" });
  const exported = await get("/audit/export?format=csv");
  const { body } = await get("/audit/entries?event_type=audit.exported");
  const exportEntries = body.items.filter(
    ({ requestId }: { requestId: string }) => requestId === exported.headers.get("x-request-id"),
  );
  expect(exportEntries.map(({ outcome }: { outcome: string }) => outcome)).toEqual(["success", "intent"]);
  expect(exportEntries[0].details).toMatchObject({ format: "csv", filter: "all", parts: 1 });
});

test("a call with an invalid token is recorded in the log as refused", async () => {
  expect((await service.call("GET", "/audit/entries")).status).toBe(401);
  const { body } = await get("/audit/entries?event_type=access.refused");
  expect(body.items[0]).toMatchObject({ outcome: "refused", actor: "anonymous", target: { id: "GET /audit/entries" } });
});
