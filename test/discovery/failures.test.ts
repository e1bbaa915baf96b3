import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Service } from "../support/service.ts";

const A = "11111111-1111-4111-8111-111111111111";
const B = "22222222-2222-4222-8222-222222222222";
const secrets = (count: number) =>
  Array.from({ length: count }, (_, index) => ({
    name: `s-${String(index).padStart(2, "0")}`,
    expiresInDays: 50 + index,
  }));
const names = ["fine", "throttles", "garbage", "foreign", "vanishes", "hangs-up", "walled", "denied", "fails"];
const company: Company = {
  subscriptions: [
    {
      name: "A",
      id: A,
      vaults: names.map((name) => ({ name: `kv-${name}`, secrets: secrets(30), keys: [{ name: "k" }] })),
    },
    { name: "B", id: B, vaults: [{ name: "kv-other", secrets: secrets(2) }] },
  ],
};

let service: Service;
beforeAll(async () => {
  service = await Service.start({
    tableProxy: true,
    company,
    env: { AZURE_SUBSCRIPTION_IDS: `${A},${B}` },
    shortWaits: true,
  });
  expect((await service.scan({ mode: "full" })).status).toBe("completed");
});
afterAll(() => service?.stop());
// Also after a failed test: its faults must not affect the next one.
afterEach(() => service.cloud.control.clearFaults());

const assetIds = async () => (await service.all("/api/assets/discovery/assets")).map((asset) => asset.id);
const results = async (scanId: string) =>
  new Map(
    (await service.all(`/api/assets/discovery/scan/${scanId}/results`)).map((item) => [
      item.vaultName,
      {
        outcome: item.outcome,
        codes: item.failures.map((failure: { list: string; code: string }) => `${failure.list}: ${failure.code}`),
      },
    ]),
  );

describe("a vault that can't be read fails alone, and its stored assets stay", () => {
  test("for access denied, firewall, throttling, invalid JSON, foreign nextLink, reset connections, server errors, and unknown host", async () => {
    const before = await assetIds();
    const { control } = service.cloud;
    control.addFault({ match: { vault: "kv-throttles", operation: "keyvault.*" }, action: { kind: "throttle" } });
    control.addFault({
      match: { vault: "kv-garbage", operation: "keyvault.*" },
      action: { kind: "garbage", as: "html" },
    });
    control.addFault({
      match: { vault: "kv-foreign", operation: "keyvault.listSecrets" },
      action: { kind: "foreignNextLink" },
    });
    control.addFault({ match: { vault: "kv-hangs-up", operation: "keyvault.*" }, action: { kind: "reset" } });
    control.addFault({ match: { vault: "kv-walled", operation: "keyvault.*" }, action: { kind: "firewall" } });
    control.addFault({ match: { vault: "kv-denied", operation: "keyvault.*" }, action: { kind: "deny" } });
    control.addFault({ match: { vault: "kv-fails", operation: "keyvault.*" }, action: { kind: "fail", status: 500 } });
    control.addFault({
      match: { vault: "kv-vanishes", operation: "keyvault.*" },
      action: { kind: "fail", status: 404 },
    });
    const scan = await service.scan({ mode: "full" });
    expect(scan.status).toBe("partial");
    const outcomes = await results(scan.scanId);
    const all = (code: string) => ({
      outcome: "failed",
      codes: ["certificates", "keys", "secrets"].map((list) => `${list}: ${code}`),
    });
    expect(outcomes.get("kv-fine")).toEqual({ outcome: "succeeded", codes: [] });
    expect(outcomes.get("kv-throttles")).toEqual(all("throttled"));
    expect(outcomes.get("kv-garbage")).toEqual(all("badResponse"));
    expect(outcomes.get("kv-hangs-up")).toEqual(all("unreachable"));
    expect(outcomes.get("kv-walled")).toEqual(all("firewall"));
    expect(outcomes.get("kv-denied")).toEqual(all("accessDenied"));
    expect(outcomes.get("kv-vanishes")).toEqual(all("notFound"));
    expect(outcomes.get("kv-fails")?.outcome).toBe("failed");
    expect(outcomes.get("kv-foreign")).toEqual({ outcome: "partial", codes: ["secrets: foreignHost"] });
    expect(control.foreignRequests()).toEqual([]);
    expect(await assetIds()).toEqual(before);
  });

  test("later scans skip the failed vaults for a while, and force retries them", async () => {
    service.cloud.control.resetCounts();
    const delta = await service.scan({ mode: "delta" });
    expect((await results(delta.scanId)).get("kv-denied")).toMatchObject({ outcome: "skipped" });
    expect(service.cloud.control.requests({ vault: "kv-denied" })).toEqual([]);
    const forced = await service.scan({ mode: "force" });
    expect(forced.status).toBe("completed");
    expect((await results(forced.scanId)).get("kv-denied")).toMatchObject({ outcome: "succeeded" });
  });

  test("a throttled request is repeated after Retry-After", async () => {
    service.cloud.control.addFault({
      match: { vault: "kv-fine" },
      action: { kind: "throttle", retryAfterSeconds: 1 },
      times: 3,
    });
    expect((await service.scan({ mode: "delta" })).status).toBe("completed");
  });
});

test("busy storage delays a scan and does not fail it", async () => {
  service.tables.fail(Array(6).fill("ServerBusy"), ({ path }) => path === "Subscriptions()");
  expect((await service.scan({ mode: "delta" })).status).toBe("completed");
});

describe("deletions in the cloud", () => {
  test("one deleted, one changed and one new secret appear in the results", async () => {
    const { control } = service.cloud;
    control.remove("kv-fine", "secrets", "s-00");
    control.putSecret("kv-fine", { name: "s-99", expiresInDays: 2 });
    control.change("kv-fine", "secrets", "s-01", { expiresInDays: 1 } as never);
    const scan = await service.scan({ mode: "delta" });
    expect(scan.progress).toMatchObject({ assetsAdded: 1, assetsUpdated: 1, assetsRemoved: 1 });
    const [fine] = (await service.all(`/api/assets/discovery/scan/${scan.scanId}/results`)).filter(
      (item) => item.vaultName === "kv-fine",
    );
    expect(fine).toMatchObject({
      added: ["kv-fine.secret.s-99"],
      updated: ["kv-fine.secret.s-01"],
      removed: ["kv-fine.secret.s-00"],
    });
    expect((await service.admin("GET", "/api/assets/discovery/assets/kv-fine.secret.s-00")).status).toBe(404);
    expect((await service.admin("GET", "/api/assets/discovery/assets/kv-fine.secret.s-01")).body.status).toBe(
      "critical",
    );
    const critical = (await service.all("/api/assets/discovery/assets?status=critical")).map((asset) => asset.id);
    expect(critical).toEqual(["kv-fine.secret.s-01", "kv-fine.secret.s-99"]);
    const owned = await service.all(`/api/assets/discovery/assets?subscription=${A}&vault=kv-fine&type=secret`);
    expect(owned).toHaveLength(30);
  });

  test("remove a vault that is missing from a complete listing, with its assets", async () => {
    service.cloud.control.removeVault("kv-vanishes");
    const scan = await service.scan({ mode: "delta" });
    expect(scan.progress).toMatchObject({ assetsRemoved: 31 });
    expect((await results(scan.scanId)).get("kv-vanishes")).toEqual({ outcome: "removed", codes: [] });
    expect((await assetIds()).filter((id) => id.startsWith("kv-vanishes"))).toEqual([]);
    expect((await service.all("/api/assets/discovery/vaults")).map((vault) => vault.name)).not.toContain("kv-vanishes");
  });

  test("remove nothing while the subscription can't be listed", async () => {
    const before = await assetIds();
    service.cloud.control.addFault({
      match: { operation: "arm.listVaults", subscription: B },
      action: { kind: "deny" },
    });
    const scan = await service.scan({ mode: "delta" });
    expect(scan.status).toBe("partial");
    expect(
      scan.subscriptionOutcomes.find((one: { subscriptionId: string }) => one.subscriptionId === B).failure.code,
    ).toBe("accessDenied");
    expect(await assetIds()).toEqual(before);
  });
});

describe("concurrent scans", () => {
  test("a second scan of the same subscriptions is 409 with the first one's id; scans of another subscription and force scans run", async () => {
    service.cloud.control.addFault({
      match: { operation: "keyvault.*" },
      action: { kind: "latency", milliseconds: 1000 },
    });
    const start = (body: object) => service.admin("POST", "/api/assets/discovery/scan", body);
    const first = await start({ mode: "full", subscriptions: [A] });
    expect(first.status).toBe(201);
    expect(first.headers.get("location")).toBe(`/api/assets/discovery/scan/${first.body.scanId}/status`);
    const second = await start({ mode: "delta", subscriptions: [A.toUpperCase()] });
    expect(second.status).toBe(409);
    expect(second.body).toMatchObject({ code: "scanRunning", scanId: first.body.scanId });
    expect((await start({ mode: "delta" })).status).toBe(409);
    const other = await start({ mode: "delta", subscriptions: [B] });
    const forced = await start({ mode: "force", subscriptions: [A] });
    expect([other.status, forced.status]).toEqual([201, 201]);
    service.cloud.control.clearFaults();
    for (const scan of [first, other, forced])
      expect((await service.scanEnds(scan.body.scanId)).status).toBe("completed");
  });

  test("a canceled scan starts no further vault and has the status cancelled", async () => {
    service.cloud.control.addFault({
      match: { operation: "keyvault.*" },
      action: { kind: "latency", milliseconds: 1000 },
    });
    await service.admin("PUT", "/api/settings/performance", { discoveryMaxWorkers: 1 });
    const slow = await Service.prototype.admin.call(service, "POST", "/api/assets/discovery/scan", { mode: "force" });
    const { scanId } = slow.body;
    expect((await service.admin("DELETE", `/api/assets/discovery/scan/${scanId}`)).body).toEqual({ deleted: true });
    service.cloud.control.clearFaults();
    const ended = await service.scanEnds(scanId);
    expect(ended.status).toBe("cancelled");
    expect(ended.progress.vaultsDone).toBeLessThan(9);
    expect((await service.admin("DELETE", `/api/assets/discovery/scan/${scanId}`)).status).toBe(409);
    await service.admin("DELETE", "/api/settings/all");
  });

  test("the list has all scans, newest first", async () => {
    const scans = await service.all("/api/assets/discovery/scans");
    const created = scans.map((scan) => scan.createdAt);
    expect(created).toEqual([...created].sort().reverse());
    expect(scans.length).toBeGreaterThanOrEqual(9);
    expect(scans.every((scan) => scan.status !== "running")).toBe(true);
  });
});
