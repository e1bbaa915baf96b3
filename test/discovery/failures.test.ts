// Scans of a simulated company over HTTP while vaults, subscriptions or storage fail, and scans that run at the same time. A scan of
// mode "delta" skips vaults that could not be read a short time ago. One of mode "force" does not, and can run beside another scan.
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Service } from "../support/service.ts";

const FIRST_SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
const SECOND_SUBSCRIPTION = "22222222-2222-4222-8222-222222222222";
const secrets = (count: number) =>
  Array.from({ length: count }, (_, index) => ({
    name: `s-${String(index).padStart(2, "0")}`,
    expiresInDays: 50 + index,
  }));
/** Names of vaults without their prefix. Each but `fine` tells the failure that a test simulates for the vault. */
const names = ["fine", "throttles", "garbage", "foreign", "vanishes", "hangs-up", "walled", "denied", "fails"];
const company: Company = {
  subscriptions: [
    {
      name: "A",
      id: FIRST_SUBSCRIPTION,
      vaults: names.map((name) => ({ name: `kv-${name}`, secrets: secrets(30), keys: [{ name: "k" }] })),
    },
    { name: "B", id: SECOND_SUBSCRIPTION, vaults: [{ name: "kv-other", secrets: secrets(2) }] },
  ],
};

let service: Service;
beforeAll(async () => {
  service = await Service.start({
    tableProxy: true,
    company,
    env: { AZURE_SUBSCRIPTION_IDS: `${FIRST_SUBSCRIPTION},${SECOND_SUBSCRIPTION}` },
    shortWaits: true,
  });
  expect((await service.scan({ mode: "full" })).status).toBe("completed");
});
afterAll(() => service?.stop());
// Faults of a failed test must not affect the next one.
afterEach(() => service.cloud.control.clearFaults());

const assetIds = async () => (await service.listAll("/api/assets/discovery/assets")).map((asset) => asset.id);
const outcomesByVault = async (scanId: string) =>
  new Map(
    (await service.listAll(`/api/assets/discovery/scan/${scanId}/results`)).map((item) => [
      item.vaultName,
      {
        outcome: item.outcome,
        codes: item.failures.map((failure: { list: string; code: string }) => `${failure.list}: ${failure.code}`),
      },
    ]),
  );

describe("a vault that can't be read fails alone, and its stored assets stay", () => {
  test("after any kind of failure", async () => {
    const assetsBefore = await assetIds();
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
    const outcomes = await outcomesByVault(scan.scanId);
    const allListsFailed = (code: string) => ({
      outcome: "failed",
      codes: ["certificates", "keys", "secrets"].map((list) => `${list}: ${code}`),
    });
    expect(outcomes.get("kv-fine")).toEqual({ outcome: "succeeded", codes: [] });
    expect(outcomes.get("kv-throttles")).toEqual(allListsFailed("throttled"));
    expect(outcomes.get("kv-garbage")).toEqual(allListsFailed("badResponse"));
    expect(outcomes.get("kv-hangs-up")).toEqual(allListsFailed("unreachable"));
    expect(outcomes.get("kv-walled")).toEqual(allListsFailed("firewall"));
    expect(outcomes.get("kv-denied")).toEqual(allListsFailed("accessDenied"));
    expect(outcomes.get("kv-vanishes")).toEqual(allListsFailed("notFound"));
    expect(outcomes.get("kv-fails")?.outcome).toBe("failed");
    expect(outcomes.get("kv-foreign")).toEqual({ outcome: "partial", codes: ["secrets: foreignHost"] });
    expect(control.foreignRequests()).toEqual([]);
    expect(await assetIds()).toEqual(assetsBefore);
  });

  test("and is skipped by the next delta scan, but not by a force scan", async () => {
    service.cloud.control.resetCounts();
    const delta = await service.scan({ mode: "delta" });
    expect((await outcomesByVault(delta.scanId)).get("kv-denied")).toMatchObject({ outcome: "skipped" });
    expect(service.cloud.control.requests({ vault: "kv-denied" })).toEqual([]);
    const forced = await service.scan({ mode: "force" });
    expect(forced.status).toBe("completed");
    expect((await outcomesByVault(forced.scanId)).get("kv-denied")).toMatchObject({ outcome: "succeeded" });
  });

  test("unless its throttled requests succeed after Retry-After", async () => {
    service.cloud.control.addFault({
      match: { vault: "kv-fine" },
      action: { kind: "throttle", retryAfterSeconds: 1 },
      times: 3,
    });
    expect((await service.scan({ mode: "delta" })).status).toBe("completed");
  });
});

test("a scan completes although storage is busy for several requests", async () => {
  service.tables.fail(Array(6).fill("ServerBusy"), ({ path }) => path === "Subscriptions()");
  expect((await service.scan({ mode: "delta" })).status).toBe("completed");
});

describe("changes in the cloud", () => {
  test("a deleted, a changed and a new secret appear in the scan's results", async () => {
    const { control } = service.cloud;
    control.remove("kv-fine", "secrets", "s-00");
    control.putSecret("kv-fine", { name: "s-99", expiresInDays: 2 });
    control.change("kv-fine", "secrets", "s-01", { expiresInDays: 1 } as never);
    const scan = await service.scan({ mode: "delta" });
    expect(scan.progress).toMatchObject({ assetsAdded: 1, assetsUpdated: 1, assetsRemoved: 1 });
    const [result] = (await service.listAll(`/api/assets/discovery/scan/${scan.scanId}/results`)).filter(
      (item) => item.vaultName === "kv-fine",
    );
    expect(result).toMatchObject({
      added: ["kv-fine.secret.s-99"],
      updated: ["kv-fine.secret.s-01"],
      removed: ["kv-fine.secret.s-00"],
    });
    expect((await service.admin("GET", "/api/assets/discovery/assets/kv-fine.secret.s-00")).status).toBe(404);
    expect((await service.admin("GET", "/api/assets/discovery/assets/kv-fine.secret.s-01")).body.status).toBe(
      "critical",
    );
    const critical = (await service.listAll("/api/assets/discovery/assets?status=critical")).map((asset) => asset.id);
    expect(critical).toEqual(["kv-fine.secret.s-01", "kv-fine.secret.s-99"]);
    const secretsOfVault = await service.listAll(
      `/api/assets/discovery/assets?subscription=${FIRST_SUBSCRIPTION}&vault=kv-fine&type=secret`,
    );
    expect(secretsOfVault).toHaveLength(30);
  });

  test("a vault that is missing from a complete listing is removed with its assets", async () => {
    service.cloud.control.removeVault("kv-vanishes");
    const scan = await service.scan({ mode: "delta" });
    // The vault has 30 secrets and one key.
    expect(scan.progress).toMatchObject({ assetsRemoved: 31 });
    expect((await outcomesByVault(scan.scanId)).get("kv-vanishes")).toEqual({ outcome: "removed", codes: [] });
    expect((await assetIds()).filter((id) => id.startsWith("kv-vanishes"))).toEqual([]);
    expect((await service.listAll("/api/assets/discovery/vaults")).map((vault) => vault.name)).not.toContain(
      "kv-vanishes",
    );
  });

  test("nothing is removed while the subscription can't be listed", async () => {
    const assetsBefore = await assetIds();
    service.cloud.control.addFault({
      match: { operation: "arm.listVaults", subscription: SECOND_SUBSCRIPTION },
      action: { kind: "deny" },
    });
    const scan = await service.scan({ mode: "delta" });
    expect(scan.status).toBe("partial");
    expect(
      scan.subscriptionOutcomes.find(
        (outcome: { subscriptionId: string }) => outcome.subscriptionId === SECOND_SUBSCRIPTION,
      ).failure.code,
    ).toBe("accessDenied");
    expect(await assetIds()).toEqual(assetsBefore);
  });
});

describe("concurrent scans", () => {
  test("a second scan of the same subscription is rejected with 409, unless its mode is force", async () => {
    // Slow reads, so that the first scan is still running when the others are started.
    service.cloud.control.addFault({
      match: { operation: "keyvault.*" },
      action: { kind: "latency", milliseconds: 1000 },
    });
    const start = (body: object) => service.admin("POST", "/api/assets/discovery/scan", body);
    const first = await start({ mode: "full", subscriptions: [FIRST_SUBSCRIPTION] });
    expect(first.status).toBe(201);
    expect(first.headers.get("location")).toBe(`/api/assets/discovery/scan/${first.body.scanId}/status`);
    const second = await start({ mode: "delta", subscriptions: [FIRST_SUBSCRIPTION.toUpperCase()] });
    expect(second.status).toBe(409);
    expect(second.body).toMatchObject({ code: "scanRunning", scanId: first.body.scanId });
    expect((await start({ mode: "delta" })).status).toBe(409);
    const other = await start({ mode: "delta", subscriptions: [SECOND_SUBSCRIPTION] });
    const forced = await start({ mode: "force", subscriptions: [FIRST_SUBSCRIPTION] });
    expect([other.status, forced.status]).toEqual([201, 201]);
    service.cloud.control.clearFaults();
    for (const scan of [first, other, forced])
      expect((await service.waitForScan(scan.body.scanId)).status).toBe("completed");
  });

  test("a canceled scan ends with the status cancelled", async () => {
    // Slow reads by one worker, so that the scan can't end before it is canceled.
    service.cloud.control.addFault({
      match: { operation: "keyvault.*" },
      action: { kind: "latency", milliseconds: 1000 },
    });
    await service.admin("PUT", "/api/settings/performance", { discoveryMaxWorkers: 1 });
    const started = await service.admin("POST", "/api/assets/discovery/scan", { mode: "force" });
    const { scanId } = started.body;
    expect((await service.admin("DELETE", `/api/assets/discovery/scan/${scanId}`)).body).toEqual({ deleted: true });
    service.cloud.control.clearFaults();
    const endedScan = await service.waitForScan(scanId);
    expect(endedScan.status).toBe("cancelled");
    // Nine vaults are left.
    expect(endedScan.progress.vaultsDone).toBeLessThan(9);
    expect((await service.admin("DELETE", `/api/assets/discovery/scan/${scanId}`)).status).toBe(409);
    await service.admin("DELETE", "/api/settings/all");
  });

  test("the list contains ended scans, newest first", async () => {
    const scans = await service.listAll("/api/assets/discovery/scans");
    const created = scans.map((scan) => scan.createdAt);
    expect(created).toEqual([...created].sort().reverse());
    expect(scans.length).toBeGreaterThanOrEqual(9);
    expect(scans.every((scan) => scan.status !== "running")).toBe(true);
  });
});
