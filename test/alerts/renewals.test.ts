import { expect, test } from "vitest";
import { itemsIn } from "../../shared/alerts/delivery.ts";
import { createRenewalInformation } from "../../shared/certificates/renewal-information.ts";
import { scanVault } from "../../shared/discovery/scan-vault.ts";
import { Assets } from "../../shared/inventory/asset.ts";
import { nameRange, partitions } from "../../shared/inventory/asset-keys.ts";
import type { Moment } from "../../shared/inventory/asset-status.ts";
import { createAssetQueries } from "../../shared/inventory/query.ts";
import { renewTotals } from "../../shared/inventory/renew-totals.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { SECOND_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { expectedStatus } from "../inventory/write-assets.ts";
import { IS_CAMPAIGN, LONG_MS, SEED } from "../support/sampling.ts";
import { openStorage } from "../support/storage.ts";
import { DAY_MS, openFixture, START, SUBSCRIPTION } from "./alerts-setup.ts";

/**
 * Simulates months of a fleet of certificates that are renewed by each renewer, mostly on time. The clock of the service moves;
 * scans, inventory and alerts are the real ones, with the real SDK on the simulated cloud. The long version, with 200
 * certificates over 400 days, runs with `CAMPAIGN=all`.
 */

const [CERTIFICATES, DAYS, FAILING_SHARE] = IS_CAMPAIGN ? [200, 400, 0.05] : [25, 40, 0.1];
/** The rules are evaluated every three hours. */
const STEP_MS = 3 * 3_600_000;
const CERTIFICATES_PER_VAULT = 10;
const LIFETIMES_DAYS = [6, 47, 90, 200, 398];
const RENEWERS = ["keyVaultPolicy", "acmebot", "certManager", "observed"] as const;

interface SimulatedCertificate {
  name: string;
  vault: string;
  /** In milliseconds, like all times here. */
  lifetime: number;
  renewer: (typeof RENEWERS)[number];
  expiresAt: number;
  /** When the next version is created: by the renewer, or by a person after the renewer failed. */
  renewAt: number;
  /** When the renewal is late, if the renewer fails this time. */
  lateAt: number | undefined;
  /** Whether the renewer failed, for the last five renewals. */
  failures: boolean[];
}

const NO_ASSETS = { healthy: 0, warning: 0, critical: 0, expired: 0 };

/** A version of a certificate whose renewal failed. */
interface FailedRenewal {
  name: string;
  expiresAt: number;
}

/** Returns numbers from 0 to 1 that depend on the seed (mulberry32). */
function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let value = Math.imul(state ^ (state >>> 15), 1 | state);
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
    return ((value ^ (value >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * Returns the period in which a renewer creates the next version, and when the service must call the renewal late. The period of an
 * observed renewer is chosen here. The other periods follow from the policy (67 % of the lifetime) and from the defaults of Acmebot
 * and cert-manager: the last 30 days, or the last third of a short lifetime.
 */
function windowOf({ renewer, lifetime, expiresAt }: SimulatedCertificate): {
  start: number;
  end: number;
  late: number;
} {
  const from = expiresAt - lifetime;
  if (renewer === "observed")
    return { start: from + 0.6 * lifetime, end: from + 0.66 * lifetime, late: from + 0.78 * lifetime };
  if (renewer === "keyVaultPolicy") {
    const start = from + 0.67 * lifetime;
    const end = start + Math.min(3 * DAY_MS, (expiresAt - start) / 4);
    return { start, end, late: end };
  }
  const windowStartsBeforeExpiry = Math.min(30 * DAY_MS, lifetime / 3);
  const end = expiresAt - 0.75 * windowStartsBeforeExpiry;
  // The service may learn from the gaps between earlier versions that the renewer renews later than its default.
  return {
    start: expiresAt - windowStartsBeforeExpiry,
    end,
    late: Math.min(end + 0.1 * lifetime, (end + expiresAt) / 2),
  };
}

test(`every late renewal of ${CERTIFICATES} certificates in ${DAYS} days is alerted before expiry, and nothing else`, {
  timeout: LONG_MS,
}, async () => {
  const azurite = await openStorage(["renewals"]);
  const vaultNames = Array.from(
    { length: Math.ceil(CERTIFICATES / CERTIFICATES_PER_VAULT) },
    (_, index) => `kv-fleet-${index}`,
  );
  const { cloud, config } = await startTestCloud({
    company: {
      subscriptions: [
        { name: "fleet", id: SUBSCRIPTION, vaults: vaultNames.map((name) => ({ name, resourceGroup: "rg-app" })) },
      ],
    },
  });
  const fixture = openFixture({ connectionString: azurite.connectionString("renewals"), cloud });
  const { clock, tables } = fixture;
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const services = { config, identity: createIdentity(config), log };
  const resourceManager = createResourceManager(services);
  const scanning = {
    writer: createInventoryWriter({ tables, clock }),
    keyVaults: createKeyVaults(services),
    resourceManager,
    clock,
    ownerTag: "owner",
    detailRefreshDays: 7,
    renewalInformation: createRenewalInformation({ config: { ARI_DIRECTORIES: [] }, clock }),
    log,
    // The compliance results are not compared here.
    prepareChange: async () => async () => {},
  };
  const queries = createAssetQueries({ tables, ownerTag: "owner", licensed: async () => true });
  const moment = (): Moment => ({ now: clock.now().getTime(), criticalDays: 7, warningDays: 30 });
  const random = randomNumbers(SEED);
  const descriptions = new Map<string, Awaited<ReturnType<typeof resourceManager.vault>>>();
  for (const name of vaultNames) {
    const id = `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg-app/providers/Microsoft.KeyVault/vaults/${name}`;
    descriptions.set(name, await resourceManager.vault(id));
  }

  /** Scans a vault, as the service does after an event of the vault. */
  async function scan(name: string): Promise<void> {
    const resource = descriptions.get(name)!;
    const outcome = await scanVault(
      { name, subscriptionId: SUBSCRIPTION, action: "scan", resource, listedAt: clock.now().toISOString() },
      { mode: "delta", workerId: `test/${clock.now().getTime()}`, signal: AbortSignal.timeout(60_000) },
      scanning,
    );
    expect(outcome.failures).toEqual([]);
  }

  /** Creates a version of a certificate in the cloud. */
  function createVersion(certificate: SimulatedCertificate, from: number): void {
    // Versions that are created in the same second of the cloud would have the same ID.
    cloud.control.moveClock(SECOND_MS);
    const days = (time: number) => (time - Date.parse(cloud.control.now())) / DAY_MS;
    const { renewer, lifetime, name } = certificate;
    const policy = { action: "AutoRenew" as const, percentage: 67 };
    cloud.control.putCertificate(certificate.vault, {
      name,
      createdDaysAgo: -days(from),
      activeInDays: days(from),
      expiresInDays: days(from + lifetime),
      issuer: renewer === "keyVaultPolicy" ? "DigiCert" : "Unknown",
      renewal: renewer === "keyVaultPolicy" ? policy : { action: "EmailContacts", percentage: 80 },
      ...(renewer === "acmebot" && { tags: { Issuer: "Acmebot", Endpoint: "acme-v02.api.letsencrypt.org" } }),
      ...(renewer === "certManager" && { tags: { "managed-by": "cert-manager" } }),
    });
    certificate.expiresAt = from + lifetime;
  }

  const failedRenewals: FailedRenewal[] = [];
  /** Versions after mostly failed renewals. Without tags or a policy, the service finds no renewer for them. */
  const withoutRenewer: FailedRenewal[] = [];
  /** Plans the next version of a certificate. */
  function planRenewal(certificate: SimulatedCertificate, mayFail = true): void {
    const { start, end, late } = windowOf(certificate);
    const fails = mayFail && random() < FAILING_SHARE;
    if (certificate.renewer === "observed" && certificate.failures.filter(Boolean).length > 2)
      withoutRenewer.push({ name: certificate.name, expiresAt: certificate.expiresAt });
    certificate.failures = [...certificate.failures, fails].slice(-5);
    certificate.lateAt = fails ? end : undefined;
    // A person renews after the alert, shortly before the expiry.
    certificate.renewAt = fails
      ? late + 0.8 * (certificate.expiresAt - late)
      : start + (0.05 + 0.85 * random()) * (end - start);
    if (fails) failedRenewals.push({ name: certificate.name, expiresAt: certificate.expiresAt });
  }

  const startMs = Date.parse(START);
  const fleet = Array.from({ length: CERTIFICATES }, (_, index): SimulatedCertificate => {
    const lifetime = LIFETIMES_DAYS[index % LIFETIMES_DAYS.length]! * DAY_MS;
    const renewer = RENEWERS[Math.floor(index / LIFETIMES_DAYS.length) % RENEWERS.length]!;
    const vault = vaultNames[Math.floor(index / CERTIFICATES_PER_VAULT)]!;
    return {
      name: `www-${index}`,
      vault,
      lifetime,
      renewer,
      expiresAt: 0,
      renewAt: 0,
      lateAt: undefined,
      failures: [],
    };
  });
  for (const certificate of fleet) {
    // No renewer renews before 60 % of the lifetime: each renewal of these versions is still to come.
    const from = startMs - random() * 0.55 * certificate.lifetime;
    // An observed renewer has renewed the certificate twice, after 62 % and 64 % of a lifetime.
    const earlier = certificate.renewer === "observed" ? [1.26, 0.64] : [];
    for (const lifetimes of earlier) createVersion(certificate, from - lifetimes * certificate.lifetime);
    createVersion(certificate, from);
    planRenewal(certificate, false);
  }
  // Secrets that no one renews.
  for (const [index, vault] of vaultNames.entries())
    cloud.control.putSecret(vault, {
      name: "password",
      expiresInDays: (startMs - Date.parse(cloud.control.now())) / DAY_MS + 5 + ((index * 37) % (DAYS + 20)),
    });
  for (const name of vaultNames) await scan(name);

  const rules = {
    expiration: await fixture.webhookRule({ thresholds: [30, 7, 1], filters: { type: "certificate" } }),
    lateRenewal: await fixture.webhookRule({ alertType: "lateRenewal" }),
  };
  const figures = { renewals: 0, statusChecks: 0, wrongStatuses: 0, lateAndNotHealthy: 0, secretChecks: 0 };
  for (let now = startMs + STEP_MS; now <= startMs + DAYS * DAY_MS; now += STEP_MS) {
    const due = fleet.filter(({ renewAt }) => renewAt <= now).sort((a, b) => a.renewAt - b.renewAt);
    for (const certificate of due) {
      clock.set(new Date(certificate.renewAt));
      createVersion(certificate, certificate.renewAt);
      planRenewal(certificate);
      figures.renewals++;
      await scan(certificate.vault);
    }
    clock.set(new Date(now));
    const instance = fixture.instance();
    await instance.evaluate();
    await fixture.handleAllMessages(instance);
    clock.set(new Date(now));
    const isDayStart = (now - startMs) % DAY_MS === 0;
    if (isDayStart) await renewTotals(tables, moment());
    const page = { limit: 1000, offset: 0, cursor: undefined };
    const notHealthy = new Set<string>();
    for (const status of ["warning", "critical", "expired"] as const) {
      const { items, total } = await queries.list({ type: "certificate", status }, page, moment());
      expect(items).toHaveLength(total!);
      for (const { asset } of items) notHealthy.add(asset.name);
    }
    for (const { name, lateAt, expiresAt } of fleet) {
      if (withoutRenewer.some((one) => one.name === name && one.expiresAt === expiresAt)) continue;
      figures.statusChecks++;
      const isLate = lateAt !== undefined && lateAt <= now;
      if (notHealthy.has(name) && !isLate) figures.wrongStatuses++;
      if (notHealthy.has(name) && isLate) figures.lateAndNotHealthy++;
    }
    if (!isDayStart) continue;
    // An independent count of all rows, for the totals and for the secrets.
    const counts = { certificate: { ...NO_ASSETS }, key: { ...NO_ASSETS }, secret: { ...NO_ASSETS } };
    for await (const rows of tables.pages(Assets, nameRange(partitions.all)))
      for (const row of rows) {
        counts[row.type][expectedStatus(row, moment())]++;
        if (row.type === "secret") figures.secretChecks++;
      }
    expect((await queries.figures(moment())).assets).toEqual(counts);
  }

  /** Returns the notifications of a rule, as name and expiry, with their times. */
  async function alertsOf(ruleId: string) {
    const { history } = fixture.instance();
    const { items } = await history.list({ ruleId }, { limit: 1000, offset: 0, cursor: undefined });
    const deliveries = await Promise.all(items.map(({ deliveryId }) => history.get(deliveryId)));
    return deliveries.flatMap((delivery) =>
      itemsIn(delivery!).flatMap((item) =>
        item.kind === "asset"
          ? [{ name: item.name, expiresAt: item.expiresOn * 1000, at: Date.parse(delivery!.createdAt) }]
          : [],
      ),
    );
  }
  const isAbout = (one: FailedRenewal, other: FailedRenewal) =>
    one.name === other.name && Math.abs(one.expiresAt - other.expiresAt) <= 2000;
  const end = startMs + DAYS * DAY_MS;
  const late = await alertsOf(rules.lateRenewal.rule.ruleId);
  const expiring = await alertsOf(rules.expiration.rule.ruleId);
  const expiredAfterFailure = failedRenewals.filter(({ expiresAt }) => expiresAt <= end);
  const missed = (alerts: typeof late) =>
    expiredAfterFailure.filter((one) => !alerts.some((alert) => isAbout(one, alert) && alert.at < one.expiresAt));
  const expectedAlerts = [...failedRenewals, ...withoutRenewer];
  const unfounded = [...late, ...expiring].filter((alert) => !expectedAlerts.some((one) => isAbout(one, alert)));
  process.stdout.write(
    `${CERTIFICATES} certificates, ${DAYS} days: ${figures.renewals} renewals, ${expiredAfterFailure.length} broken; alerted before expiry: ` +
      `${expiredAfterFailure.length - missed(late).length} as late, ${expiredAfterFailure.length - missed(expiring).length} as expiring; other alerts: ` +
      `${unfounded.length}; versions after three failures of five, which are left out: ${withoutRenewer.length}; share of life of properly renewed certificates that are not healthy: ` +
      `${((100 * figures.wrongStatuses) / figures.statusChecks).toFixed(2)} % of ${figures.statusChecks} statuses; ` +
      `${figures.secretChecks} statuses of secrets by days\n`,
  );
  expect(expiredAfterFailure.length).toBeGreaterThan(0);
  expect({ late: missed(late), expiring: missed(expiring), unfounded }).toEqual({
    late: [],
    expiring: [],
    unfounded: [],
  });
  expect(figures.wrongStatuses).toBe(0);
  expect(figures.lateAndNotHealthy).toBeGreaterThan(0);
  expect(figures.secretChecks).toBeGreaterThan(0);
  await cloud.stop();
  await azurite.stop();
});
