import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { seriesIn } from "../metrics/exposition.ts";
import { Service } from "../support/service.ts";

// Tests of the scope (the subscriptions that the service watches) and its effects on lists, counts, scans and alerts. The tests
// build on each other. With the setting `watchAll`, the scope is every subscription that the identity can read, otherwise only
// those that were added or configured. Assets out of scope stay listed, but are not counted.

const [ALPHA, BETA, GAMMA] = ["a", "b", "c"].map((digit) => `${digit}1111111-1111-4111-8111-111111111111`) as [
  string,
  string,
  string,
];
const company: Company = {
  subscriptions: [
    {
      name: "sub-alpha",
      id: ALPHA,
      vaults: [
        {
          name: "kv-alpha",
          secrets: [
            { name: "gone", expiresInDays: -3.5, tags: { owner: "ada@acme.example" } },
            { name: "soon", expiresInDays: 5.5, tags: { owner: "ada@acme.example" } },
            { name: "late", expiresInDays: 400.5 },
          ],
          keys: [{ name: "sign", expiresInDays: 20.5 }],
        },
      ],
    },
    {
      name: "sub-beta",
      id: BETA,
      vaults: [
        {
          name: "kv-beta",
          secrets: [{ name: "lost", expiresInDays: -1.5 }, { name: "never" }],
          certificates: [{ name: "www", expiresInDays: 2.5, issuer: "DigiCert" }],
        },
      ],
    },
    { name: "sub-gamma", id: GAMMA, denied: true },
  ],
};

let service: Service;
beforeAll(async () => {
  service = await Service.start({ company });
});
afterAll(() => service?.stop());

const get = async (path: string) => {
  const { status, body, text } = await service.admin("GET", path);
  expect(status, text).toBe(200);
  return body;
};
const subscription = async (id: string) => get(`/subscriptions/${id}`);
const assets = (query = "") => service.listAll(`/api/assets/discovery/assets?sort=name&${query}`);
const idsOf = async (query = "") => (await assets(query)).map(({ id }) => id).sort();
const setWatchAll = (watchAll: boolean, query = "") =>
  service.admin("PUT", `/api/settings/features${query}`, { watchAll });
const scopeChange = (answer: { body: { key: string; scopeChange?: object }[] }) =>
  answer.body.find(({ key }) => key === "watchAll")!.scopeChange;
const mailTexts = () => service.cloud.control.mails().map((mail) => JSON.stringify(mail));
const evaluateAlerts = async () => {
  const response = await fetch(`${service.url}/__host/timers/evaluateAlerts`, { method: "POST" });
  expect(await response.json()).toMatchObject({ succeeded: true });
};

const ALPHA_ASSET_IDS = ["kv-alpha.key.sign", "kv-alpha.secret.gone", "kv-alpha.secret.late", "kv-alpha.secret.soon"];
const BETA_ASSET_IDS = ["kv-beta.certificate.www", "kv-beta.secret.lost", "kv-beta.secret.never"];
const ALL_ASSET_IDS = [...ALPHA_ASSET_IDS, ...BETA_ASSET_IDS];

/** Returns the counts of the summary, and expects those of the metrics, the asset list and the violations to agree. */
async function countEverywhere() {
  const [summary, score, violations, metrics] = await Promise.all([
    get("/api/assets/summary"),
    get("/compliance/score"),
    service.listAll("/compliance/violations"),
    service.admin("GET", "/metrics"),
  ]);
  const series = Object.entries(seriesIn(metrics.text));
  const inMetrics = series.filter(([name]) => name.startsWith("lifecycle_assets{"));
  expect(inMetrics.reduce((sum, [, value]) => sum + value, 0)).toBe(summary.assets);
  expect((await idsOf("counted=true")).length).toBe(summary.assets);
  expect(violations).toHaveLength(score.failed);
  expect(seriesIn(metrics.text).lifecycle_vaults).toBe(summary.vaults.total);
  return {
    assets: summary.assets,
    vaults: summary.vaults.largest.map(({ name }: { name: string }) => name),
    outOfScope: summary.outOfScope,
    violated: [...new Set(violations.map(({ vaultName }) => vaultName))].sort(),
  };
}

describe("the scope", () => {
  test("all subscriptions are listed with their counts and failures after the first scan", async () => {
    expect((await service.scan({ mode: "full" })).status).toBe("partial");
    const { items } = await get("/subscriptions");
    expect(items).toMatchObject([
      { name: "sub-alpha", source: "discovered", watched: true, counts: { vaults: 1, assets: 4 }, lastFailure: null },
      { name: "sub-beta", source: "discovered", watched: true, counts: { vaults: 1, assets: 3 } },
      {
        name: "sub-gamma",
        counts: { vaults: 0 },
        lastScan: { status: "partial" },
        lastFailure: {
          code: "accessDenied",
          remedy: expect.stringContaining("the custom role Credential Lifecycle Inventory Reader on the subscription"),
        },
      },
    ]);
    expect((await assets()).map((asset) => asset.subscriptionName)).toEqual(
      expect.arrayContaining(["sub-alpha", "sub-beta"]),
    );
    const { vaults } = await countEverywhere();
    expect(vaults).toEqual(["kv-alpha", "kv-beta"]);
  });

  test("adding the first subscription does not narrow the scope", async () => {
    const added = await service.admin("POST", "/subscriptions", { subscriptionId: ALPHA, name: "Alpha" });
    expect([added.status, added.body.name, added.body.watching]).toEqual([
      201,
      "Alpha",
      { watchAll: true, subscriptions: 3, message: expect.stringContaining("narrows nothing") },
    ]);
    expect((await service.scan({ mode: "delta" })).progress.vaultsTotal).toBe(2);
    expect((await get("/api/assets/discovery/vaults")).items).toMatchObject([
      { name: "kv-alpha", subscriptionName: "Alpha", outOfScope: false, outOfScopeSince: null },
      { name: "kv-beta", subscriptionName: "sub-beta" },
    ]);
  });

  test("turning watchAll off removes other subscriptions from the scope and from all counts", async () => {
    const countsBefore = await countEverywhere();
    expect(countsBefore).toMatchObject({ assets: 7, outOfScope: { vaults: 0, assets: 0 } });
    expect(countsBefore.violated).toContain("kv-beta");
    const preview = scopeChange(await setWatchAll(false, "?preview=true"));
    expect(preview).toEqual({
      leaves: {
        subscriptions: 1,
        vaults: 1,
        assets: 3,
        largest: [{ subscriptionId: BETA, name: "sub-beta", vaults: 1, assets: 3 }],
      },
      returns: { subscriptions: 0, vaults: 0, assets: 0, largest: [] },
      warning: expect.stringContaining("out of scope"),
    });
    expect(await countEverywhere()).toEqual(countsBefore);
    const changedAfter = Date.now();
    expect(scopeChange(await setWatchAll(false))).toEqual(preview);

    expect(await countEverywhere()).toEqual({
      assets: 4,
      vaults: ["kv-alpha"],
      outOfScope: { vaults: 1, assets: 3 },
      violated: ["kv-alpha"],
    });
    const { outOfScopeSince } = await subscription(BETA);
    expect(Date.parse(outOfScopeSince)).toBeGreaterThan(changedAfter - 2000);
    expect(await get("/api/assets/discovery/assets/kv-beta.secret.lost")).toMatchObject({
      outOfScope: true,
      outOfScopeSince,
      notCounted: "outOfScope",
    });
    expect(await idsOf()).toEqual(ALL_ASSET_IDS);
    expect(await idsOf("outOfScope=true")).toEqual(BETA_ASSET_IDS);
    expect(await idsOf("outOfScope=false")).toEqual(ALPHA_ASSET_IDS);
    expect((await get("/api/assets/discovery/vaults?outOfScope=true")).items).toMatchObject([
      { name: "kv-beta", outOfScope: true, outOfScopeSince },
    ]);
    expect((await get("/api/assets/discovery/vaults?outOfScope=false")).total).toBe(1);
    const entries = await service.listAll("/audit/entries?event_type=scope.changed");
    expect(entries[0]).toMatchObject({ outcome: "success", details: { leaves: { subscriptions: [BETA], assets: 3 } } });
  });

  test("scans skip a subscription out of scope", async () => {
    const scan = await service.scan({ mode: "full" });
    expect([scan.status, scan.progress.vaultsTotal, scan.subscriptionOutcomes]).toEqual([
      "completed",
      1,
      [{ subscriptionId: ALPHA, name: "sub-alpha", vaults: 1, failure: null }],
    ]);
    const rejected = await service.admin("POST", "/api/assets/discovery/scan", { mode: "full", subscriptions: [BETA] });
    expect([rejected.status, rejected.body.errors[0].path]).toEqual([400, "body.subscriptions"]);
    expect(await idsOf("outOfScope=true")).toEqual(BETA_ASSET_IDS);
  });

  test("alerts about a subscription are sent once it returns to the scope", async () => {
    const rule = { name: "Expired", alertType: "expired", recipients: ["team@acme.example"] };
    expect((await service.admin("POST", "/alerts/rules", rule)).status).toBe(201);
    await evaluateAlerts();
    await expect.poll(() => mailTexts().length, { timeout: 150_000 }).toBe(1);
    expect(mailTexts()[0]).toContain("kv-alpha");
    expect(mailTexts()[0]).not.toContain("kv-beta");

    const expectedChange = { leaves: { vaults: 0 }, returns: { subscriptions: 1, assets: 3 }, warning: null };
    const reset = (path: string) => service.admin("DELETE", `/api/settings/${path}`);
    const countsOutOfScope = await countEverywhere();
    expect((await reset("features/watchAll?preview=true")).body).toMatchObject({
      deleted: false,
      setting: { value: true, source: "default", scopeChange: expectedChange },
    });
    expect((await reset("all?preview=true")).body).toMatchObject({ keys: ["watchAll"], scopeChange: expectedChange });
    expect(await countEverywhere()).toEqual(countsOutOfScope);
    expect((await reset("features/watchAll")).body).toMatchObject({
      deleted: true,
      setting: { scopeChange: expectedChange },
    });
    expect((await reset("features/watchAll?preview=true")).status).toBe(404);
    expect(await countEverywhere()).toMatchObject({ assets: 7, outOfScope: { vaults: 0, assets: 0 } });
    expect(await idsOf("outOfScope=true")).toEqual([]);
    await evaluateAlerts();
    await expect.poll(() => mailTexts().length, { timeout: 150_000 }).toBe(2);
    expect(mailTexts()[1]).toContain("kv-beta");
    expect(mailTexts()[1]).not.toContain("kv-alpha");
  });

  test("a removed subscription leaves the scope if watchAll is off, and its inventory is deleted with forget=true", async () => {
    const removed = await service.admin("DELETE", `/subscriptions/${ALPHA}`);
    expect(removed.body).toMatchObject({ inventory: { outcome: "kept" }, warning: null, watching: { watchAll: true } });
    expect(await subscription(ALPHA)).toMatchObject({ name: "sub-alpha", source: "discovered", watched: true });
    for (const [subscriptionId, name] of [
      [ALPHA, "Alpha"],
      [BETA, "Beta"],
    ])
      expect((await service.admin("POST", "/subscriptions", { subscriptionId, name })).status).toBe(201);
    await setWatchAll(false);
    const removedWithoutForget = await service.admin("DELETE", `/subscriptions/${BETA}`);
    expect(removedWithoutForget.body).toMatchObject({
      inventory: { outcome: "outOfScope", vaults: 1, assets: 3 },
      warning: expect.stringContaining("outOfScopeRetentionDays"),
    });
    expect(await idsOf("outOfScope=true")).toEqual(BETA_ASSET_IDS);
    expect((await service.admin("DELETE", `/subscriptions/${BETA}`)).status).toBe(409);
    const removedWithForget = await service.admin("DELETE", `/subscriptions/${BETA}?forget=true`);
    expect(removedWithForget.body).toMatchObject({ inventory: { outcome: "removed", vaults: 1, assets: 3 } });
    expect(await idsOf()).toEqual(ALPHA_ASSET_IDS);
    expect((await subscription(BETA)).counts).toMatchObject({ vaults: 0, assets: 0 });
  });
});

describe("the inventory in numbers, its changes and versions", () => {
  test("the summary's counts equal those of the asset list for each filter", async () => {
    for (const filter of [
      "",
      "type=secret",
      `subscription=${ALPHA}`,
      "source=keyVault",
      `type=key&subscription=${ALPHA}`,
    ]) {
      const summary = await get(`/api/assets/summary?${filter}`);
      const list = await assets(`counted=true&${filter}`);
      expect(summary.assets).toBe(list.length);
      for (const status of ["healthy", "warning", "critical", "expired"])
        expect([status, summary.byStatus[status]]).toEqual([
          status,
          list.filter((asset) => asset.status === status).length,
        ]);
      const ids = ({ items }: { items: { id: string }[] }) => items.map(({ id }) => id);
      const requestedAt = new Date().toISOString();
      expect(summary.endsNext.map(({ id }: { id: string }) => id)).toEqual(
        ids(await get(`/api/assets/discovery/assets?counted=true&limit=10&expiresAfter=${requestedAt}&${filter}`)),
      );
    }
    const { owners, subscriptions } = await get("/api/assets/summary");
    expect(owners).toMatchObject({ largest: [{ owner: "ada@acme.example", assets: 2 }], none: 2, notCounted: 0 });
    expect(subscriptions.largest).toMatchObject([{ subscriptionId: ALPHA, name: "Alpha", vaults: 1, assets: 4 }]);
  });

  test("the changes that a scan found are listed and counted", async () => {
    const since = new Date().toISOString();
    service.cloud.control.putSecret("kv-alpha", { name: "new", expiresInDays: 50.5 });
    service.cloud.control.putSecret("kv-alpha", { name: "late", expiresInDays: 300.5 });
    expect((await service.scan({ mode: "delta" })).status).toBe("completed");
    const items = await service.listAll(`/api/assets/discovery/changes?since=${since}`);
    expect(items.map(({ change, assetId }) => `${change} ${assetId}`).sort()).toEqual([
      "added kv-alpha.secret.new",
      "updated kv-alpha.secret.late",
    ]);
    expect(items.find(({ change }) => change === "updated").members).toContain("expiresOn");
    expect((await get(`/api/assets/summary?since=${since}`)).changes).toEqual({
      since,
      added: 1,
      updated: 1,
      removed: 0,
      complete: true,
    });
    const removals = await service.listAll("/api/assets/discovery/changes?change=removed");
    expect(removals.map(({ assetId }) => assetId).sort()).toEqual(BETA_ASSET_IDS);
  });

  test("an asset's versions are read from its vault without their values", async () => {
    const versions = "/api/assets/discovery/assets/kv-alpha.secret.late/versions";
    const { body, text } = await service.admin("GET", versions);
    expect(body).toMatchObject({ assetId: "kv-alpha.secret.late", complete: true });
    expect(body.versions).toHaveLength(2);
    expect(Date.parse(body.versions[0].createdOn)).toBeGreaterThanOrEqual(Date.parse(body.versions[1].createdOn));
    expect(text).not.toContain("value");
    expect((await get("/api/assets/discovery/assets/kv-alpha.key.sign/versions")).versions).toHaveLength(1);
    expect((await service.admin("GET", versions.replace("late", "none"))).status).toBe(404);
    expect((await service.admin("GET", versions.replace("kv-alpha", "kv-none"))).status).toBe(404);
    service.cloud.control.addFault({ match: { vault: "kv-alpha" }, action: { kind: "deny" } });
    const denied = await service.admin("GET", versions);
    service.cloud.control.clearFaults();
    expect([denied.status, denied.body.code]).toEqual([503, "unavailable"]);
    expect(denied.body.detail).toContain("Key Vault Reader");
  });

  test("a vault that the last scan could not read is counted in `vaultsUnreadable` of its subscription", async () => {
    const unreadableVaults = async () => {
      const { vaultsUnreadable, vaultsWithFailures } = (await subscription(ALPHA)).counts;
      expect(vaultsWithFailures).toBe(vaultsUnreadable);
      return vaultsUnreadable;
    };
    service.cloud.control.addFault({ match: { vault: "kv-alpha" }, action: { kind: "deny" } });
    expect((await service.scan({ mode: "full" })).status).toBe("failed");
    service.cloud.control.clearFaults();
    expect(await unreadableVaults()).toBe(1);
    expect((await service.scan({ mode: "force" })).status).toBe("completed");
    expect(await unreadableVaults()).toBe(0);
  });

  test.each([
    ["/api/assets/discovery/assets?expiresAfter=2026-11-22&expiresBefore=2026-11-22", "query.expiresBefore"],
    ["/api/assets/discovery/assets?counted=true&outOfScope=true", "query.outOfScope"],
    ["/api/assets/discovery/changes?since=2026-11-23&until=2026-11-21", "query.until"],
    ["/audit/entries?start_date=2026-11-23&end_date=2026-11-21", "query.end_date"],
    ["/alerts/history?start_date=2026-11-23&end_date=2026-11-21", "query.end_date"],
  ])("contradictory filters are rejected with the name of the parameter: %s", async (path, parameter) => {
    const { status, body } = await service.admin("GET", path);
    expect([status, body.errors?.[0].path]).toEqual([400, parameter]);
  });
});
