import { afterAll, beforeAll, expect, test } from "vitest";
import { ADMIN, Service } from "../support/service.ts";

// Tests of answers with a version: `ETag`, `If-None-Match` and 304, and the headers that tell caches what they may keep.

let service: Service;
let token: string;
beforeAll(async () => {
  service = await Service.start({ company: "small" });
  token = await service.signIn(ADMIN);
});
afterAll(() => service?.stop());

const get = (path: string, headers: Record<string, string> = {}, method = "GET") =>
  service.call(method, path, { token, headers: { "Accept-Encoding": "identity", ...headers } });

const RULE = { name: "versions", alertType: "expiration", deliveryMethod: "email", recipients: ["a@acme.example"] };

test("a resource that has not changed is answered with 304, and after a change with the new one", async () => {
  const { body: rule } = await service.admin("POST", "/alerts/rules", RULE);
  const path = `/alerts/rules/${rule.id}`;
  const first = await get(path);
  const etag = first.headers.get("etag")!;
  expect(etag).toMatch(/^"[^"]+"$/);
  for (const sent of [etag, `W/${etag}`, `"other", ${etag}`, "*"]) {
    const current = await get(path, { "If-None-Match": sent });
    expect([current.status, current.text, current.headers.get("etag")], sent).toEqual([304, "", etag]);
    expect(current.headers.get("content-type"), sent).toBeNull();
    expect(current.headers.get("x-request-id")).toBeTruthy();
    const head = await get(path, { "If-None-Match": sent }, "HEAD");
    expect([head.status, head.headers.get("etag")], sent).toEqual([304, etag]);
  }
  expect((await get(path, {}, "HEAD")).headers.get("etag")).toBe(etag);
  expect((await get(path, { "If-None-Match": '"other"' })).status).toBe(200);
  // The ETag of the answer, and that of the resource in its body, allow a change.
  const change = (ifMatch: string, name: string) =>
    service.call("PUT", path, { token, body: { ...RULE, name }, headers: { "If-Match": ifMatch } });
  const changed = await change(etag, "renamed");
  expect(changed.status, changed.text).toBe(200);
  expect((await change(etag, "renamed again")).status).toBe(412);
  expect((await change(changed.body.etag, "renamed again")).status).toBe(200);
  const after = await get(path, { "If-None-Match": etag });
  expect([after.status, after.body.name]).toEqual([200, "renamed again"]);
  expect(after.headers.get("etag")).not.toBe(etag);
});

test("an answer that depends on the caller may be cached by the caller only, and must be revalidated", async () => {
  const { headers } = await get("/api/settings/all");
  expect(headers.get("cache-control")).toBe("private, no-cache");
  expect(headers.get("vary")).toBe("Accept-Encoding, Authorization, Cookie");
  const anonymous = await service.call("GET", "/api/settings/all", { headers: { "If-None-Match": "*" } });
  expect([anonymous.status, anonymous.headers.get("etag")]).toEqual([401, null]);
  expect(anonymous.headers.get("cache-control")).toBe("no-store");
});

test("each content coding has its own strong version, and either confirms the answer", async () => {
  const plain = await get("/openapi.json");
  const zipped = await get("/openapi.json", { "Accept-Encoding": "gzip" });
  const [plainTag, zippedTag] = [plain.headers.get("etag")!, zipped.headers.get("etag")!];
  expect([plainTag, zippedTag]).toEqual([expect.stringMatching(/^"[\w-]{11}"$/), plainTag.replace(/"$/, '-gzip"')]);
  expect(plain.headers.get("cache-control")).toBe("public, no-cache");
  for (const tag of [plainTag, zippedTag]) {
    const current = await get("/openapi.json", { "If-None-Match": tag, "Accept-Encoding": "gzip" });
    expect([current.status, current.text, current.headers.get("etag")]).toEqual([304, "", tag]);
    expect(current.headers.get("content-encoding")).toBeNull();
  }
  const settings = await get("/api/settings/all", { "Accept-Encoding": "gzip" });
  expect(settings.headers.get("etag")).toMatch(/-gzip"$/);
  const head = await get("/api/settings/all", { "Accept-Encoding": "gzip" }, "HEAD");
  expect(head.headers.get("etag")).toBe(settings.headers.get("etag"));
});

test("the version changes with members that are not stored with the resource", async () => {
  // The license tier is part of this answer, but of no stored setting. Whether the other host has another tier depends on the
  // test's own license.
  const { url } = await service.addHost({ LICENSE_KEY: "no license" });
  const [here, there] = [await get("/api/settings/all"), await get(`${url}/api/settings/all`)];
  const tags = [here, there].map(({ headers }) => headers.get("etag")!);
  if (here.body.licenseTier !== there.body.licenseTier) expect(tags[0]).not.toBe(tags[1]);
  else expect(tags[0]).toBe(tags[1]);
});

test("every answer with a version is described with it, and no other has one", async () => {
  const { body: document } = await get("/openapi.json");
  const gets = Object.entries<Record<string, never>>(document.paths).flatMap(([path, { get: operation }]) =>
    operation === undefined
      ? []
      : [{ path, operation: operation as { parameters?: { name: string }[]; responses: object } }],
  );
  const versioned = gets.filter(({ operation }) => "304" in operation.responses);
  expect(versioned.length).toBeGreaterThan(10);
  for (const { path, operation } of gets) {
    const isVersioned = "304" in operation.responses;
    const names = (operation.parameters ?? []).map(({ name }) => name);
    expect(names.includes("If-None-Match"), path).toBe(isVersioned);
    // versioned-resources.test.ts reads those.
    if (path.includes("{")) continue;
    const answer = await get(path, { "If-None-Match": "*" });
    if (answer.status !== 200 && answer.status !== 304) continue;
    expect(answer.status, path).toBe(isVersioned ? 304 : 200);
    if (!isVersioned)
      expect([answer.headers.get("etag"), answer.headers.get("cache-control")], path).toEqual([null, "no-store"]);
  }
});
