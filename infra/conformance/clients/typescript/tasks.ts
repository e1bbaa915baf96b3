/** The ten tasks of every generated client, in TypeScript. Prints one line for each task; the part `clients` compares the lines. */
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.d.ts";

type Asset = components["schemas"]["Asset"];

const { SERVICE = "", CLIENT_USERNAME = "", CLIENT_PASSWORD = "" } = process.env;
const anonymous = createClient<paths>({ baseUrl: SERVICE });

// 1. Sign in.
const signedIn = await anonymous.POST("/auth/login", {
  body: { username: CLIENT_USERNAME, password: CLIENT_PASSWORD },
});
assert(signedIn.data && "access_token" in signedIn.data);
const api = createClient<paths>({
  baseUrl: SERVICE,
  headers: { Authorization: `Bearer ${signedIn.data.access_token}` },
});
const me = await api.GET("/auth/me");
console.log("sign in:", me.data?.username, me.data?.role);

// 2. Read a list page by page.
const assets: Asset[] = [];
let cursor: string | null = null;
let pages = 0;
do {
  const page: { data?: components["schemas"]["AssetList"] } = await api.GET("/api/assets/discovery/assets", {
    params: { query: { limit: 2, ...(cursor !== null && { cursor }) } },
  });
  assert(page.data);
  assert.equal(page.data.limit, 2);
  assets.push(...page.data.items);
  cursor = page.data.nextCursor;
  pages++;
} while (cursor !== null);
console.log("read a list by pages:", assets.length, "assets,", pages, "pages");

// 3. Filter a list by an enumeration, a boolean and an order.
const filtered = await api.GET("/api/assets/discovery/assets", {
  params: { query: { type: "secret", enabled: true, outOfScope: false, sort: "name" } },
});
assert(filtered.data);
assert(filtered.data.items.every(({ type, enabled }) => type === "secret" && enabled));
console.log("filter a list:", filtered.data.items.length, "enabled secrets");

// 4. Read one resource, and a trend of a number of days.
const { data: asset } = await api.GET("/api/assets/discovery/assets/{asset_id}", {
  params: { path: { asset_id: assets[0]!.id } },
});
const { data: score } = await api.GET("/compliance/score", { params: { query: { history: 30 } } });
assert(score?.history);
console.log("read one asset and the score:", asset?.id, asset?.status, score.history.length);

// 5. Create.
const created = await api.POST("/alerts/rules", {
  body: {
    name: "Conformance TypeScript",
    alertType: "expiration",
    thresholdDays: 30,
    recipients: ["a@b.example"],
    enabled: false,
  },
});
assert(created.data);
const rule = { rule_id: created.data.id };
console.log("create a rule:", created.response.status, created.data.name, created.data.enabled);

// 6. Change with an ETag, and again with the outdated one.
const change = (thresholdDays: number) =>
  api.PUT("/alerts/rules/{rule_id}", {
    params: { path: rule, header: { "If-Match": created.data.etag } },
    body: { thresholdDays },
  });
const changed = await change(14);
const outdated = await change(7);
console.log("change it with an ETag:", changed.data?.thresholdDays, outdated.response.status, outdated.error?.code);

// 7. Delete.
const deleted = await api.DELETE("/alerts/rules/{rule_id}", {
  params: { path: rule, header: { "If-Match": changed.data?.etag ?? "" } },
});
const gone = await api.GET("/alerts/rules/{rule_id}", { params: { path: rule } });
console.log("delete it:", deleted.data?.deleted, gone.response.status, gone.error?.code);

// 8. Dry run: the change is previewed, and the setting stays.
const preview = await api.PUT("/api/settings/logging", {
  params: { query: { preview: true } },
  body: { logLevel: "ERROR" },
});
const logging = await api.GET("/api/settings/logging");
assert(logging.data && logging.data.length > 0);
assert.deepEqual(preview.data, logging.data);
console.log("preview a change:", preview.response.status, logging.response.status);

// 9. Export files.
const csv = await api.GET("/api/assets/discovery/export/csv", { parseAs: "text" });
const pdf = await api.GET("/compliance/violations/pdf", { parseAs: "arrayBuffer" });
assert(pdf.data && pdf.data.byteLength > 2000);
console.log("export files:", csv.data?.trim().split("\r\n").length, Buffer.from(pdf.data).toString("latin1", 0, 4));

// 10. Errors are problem documents.
const unknown = await api.GET("/api/assets/discovery/assets/{asset_id}", {
  params: { path: { asset_id: "kv-none.secret.none" } },
});
const invalid = await api.GET("/api/assets/discovery/assets", { params: { query: { limit: 0 } } });
console.log("handle errors:", unknown.error?.code, invalid.error?.code, invalid.error?.errors?.[0]?.path);
