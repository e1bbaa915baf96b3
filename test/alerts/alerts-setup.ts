import type { Cloud } from "simulated-cloud/cloud.ts";
import { vi } from "vitest";
import {
  type Alerts,
  type AutomationSource,
  type CredentialSource,
  createAlerts,
  type ViolationSource,
} from "../../shared/alerts/alerts.ts";
import type { NewRule } from "../../shared/alerts/api.ts";
import { DELIVERY_QUEUE } from "../../shared/alerts/delivery.ts";

import type { Audit, AuditEvent } from "../../shared/audit/audit.ts";
import { type AssetRecord, type AssetType, contentHash, fingerprint } from "../../shared/inventory/asset.ts";
import { packExpiries } from "../../shared/inventory/expiries.ts";
import { packPlanned } from "../../shared/inventory/planned-certificates.ts";
import { expiriesColumn, type VaultRecord } from "../../shared/inventory/vault.ts";
import { type AssetChange, createInventoryWriter } from "../../shared/inventory/write.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createMailSender } from "../../shared/platform/azure/mail.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import type { Caller } from "../../shared/platform/http/endpoint.ts";
import { type Clock, systemRandomness } from "../../shared/platform/runtime.ts";
import { createStoreClock } from "../../shared/platform/storage/clock.ts";
import type { Queues } from "../../shared/platform/storage/queues.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { configFor } from "../azure/live-cloud.ts";
import { crashable, type Steps } from "../support/simulated-crash.ts";

/**
 * Set-up of the tests of alerts: the alert module on an emulated storage account and a simulated cloud, which records mails and
 * webhooks. The test moves the clock and handles the queue's messages.
 */

const quietLog = { debug() {}, info() {}, warn() {}, error() {} };

export const DAY_MS = 86_400_000;
/** The time at which a fixture's clock starts, a Saturday. */
export const START = "2026-11-21T10:00:00.000Z";
export const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
/** The administrator whose calls create and change rules. */
export const caller: Caller = { actor: "admin", requestId: "test" };

/** Creates a clock that stands still until the test moves it. */
export function settableClock(start: string) {
  let currentMs = Date.parse(start);
  return {
    now: () => new Date(currentMs),
    set: (instant: Date | string) => {
      currentMs = new Date(instant).getTime();
    },
    add: (milliseconds: number) => {
      currentMs += milliseconds;
    },
  };
}

/** A message of the test's queue. It is invisible until `visibleAt` (milliseconds since 1970). */
interface Message {
  queue: string;
  message: unknown;
  visibleAt: number;
}

export interface TestAsset {
  name: string;
  type?: AssetType;
  /** Days from START. */
  expiresInDays?: number;
  enabled?: boolean;
  tags?: Record<string, string>;
  /** For a certificate that Acmebot renews: when its window ends, in days from START. */
  windowEndsInDays?: number;
}

export interface FixtureOptions {
  connectionString: string;
  cloud: Cloud;
  settings?: { enableNotifications: boolean };
  /** Source of compliance violations. */
  violations?: ViolationSource;
  /** Creates the sources of the service's own credentials, such as API tokens. */
  credentials?: (tables: Tables, clock: Clock) => readonly CredentialSource[];
  /** Creates the audit log in which the module finds break-glass sign-ins. */
  createAuditLog?: (tables: Tables, clock: Clock) => Pick<Audit, "list">;
  /** Sources of events of rotations and syncs. */
  automation?: readonly AutomationSource[];
  /** Environment variables that differ from the defaults. */
  environment?: Record<string, unknown>;
}

/** Creates the alert module with a settable clock and a queue in memory. Its instances can crash at a given step. */
export function openFixture({
  connectionString,
  cloud,
  violations,
  credentials,
  createAuditLog,
  automation = [],
  environment = {},
  ...options
}: FixtureOptions) {
  const clock = settableClock(START);
  const tables = createTables({ connectionString });
  const messages: Message[] = [];
  const events: AuditEvent[] = [];
  const config = {
    ...configFor(cloud),
    ALLOW_PRIVATE_WEBHOOK_ADDRESSES: true,
    PUBLIC_BASE_URL: "https://lifecycle.example",
    // Without rate limits, so that other tests don't have to move the clock between mails.
    MAIL_PER_MINUTE: 0,
    MAIL_PER_HOUR: 0,
    ...environment,
  };
  const settings = { enableNotifications: true, defaultThresholdDays: 30, ...options.settings };
  const identity = createIdentity(config);
  const mail = createMailSender({ config, identity });
  const vault = createServiceKeyVault({ config, identity, log: quietLog });
  const writer = createInventoryWriter({ tables });

  const queues: Queues = {
    async send(queue, message, { delaySeconds = 0 } = {}) {
      messages.push({ queue, message, visibleAt: clock.now().getTime() + delaySeconds * 1000 });
    },
    checkReachable: async () => {},
  };

  /** Creates an instance of the module. `steps` counts its writes and selects one at which the instance crashes. */
  function instance(steps: Steps = { taken: 0 }, host: { tables: Tables; clock: Clock } = { tables, clock }): Alerts {
    const isWrite = (name: string) => name !== "pages" && name !== "get";
    return createAlerts({
      tables: crashable<Tables>(host.tables, steps, isWrite),
      queues: crashable(queues, steps),
      audit: crashable({ append: async (event: AuditEvent) => void events.push(event) }, steps),
      settings: { values: async () => settings as never },
      mail: mail && crashable(mail, steps),
      licensed: async () => true,
      vault,
      violations,
      ...(credentials && { credentials: credentials(tables, clock) }),
      ...(createAuditLog && { entries: createAuditLog(tables, clock) }),
      automation,
      config,
      clock: host.clock,
      randomness: systemRandomness(),
      log: quietLog,
    });
  }

  /** Creates an instance on a host whose own clock is wrong by `offsetMs`. The instance uses the storage service's clock. */
  function createHostWithClockOffset(offsetMs: number) {
    const wrongClock = vi.spyOn(Date, "now").mockReturnValue(Date.now() + offsetMs);
    const storeClock = createStoreClock();
    wrongClock.mockRestore();
    const hostTables = createTables({ connectionString }, { clock: storeClock });
    return { tables: hostTables, alerts: instance({ taken: 0 }, { tables: hostTables, clock: storeClock }) };
  }

  /** Handles visible messages until the queue has none. A message whose handler fails stays in the queue. */
  async function handleVisibleMessages(alerts: Alerts): Promise<void> {
    for (;;) {
      const next = messages.find(({ visibleAt }) => visibleAt <= clock.now().getTime());
      if (!next) return;
      if (next.queue === DELIVERY_QUEUE) await alerts.deliver((next.message as { deliveryId: string }).deliveryId);
      messages.splice(messages.indexOf(next), 1);
    }
  }

  /** Handles all messages of the queue, and moves the clock to the time at which each becomes visible. */
  async function handleAllMessages(alerts: Alerts): Promise<void> {
    while (messages.length > 0) {
      const next = Math.min(...messages.map(({ visibleAt }) => visibleAt));
      if (next > clock.now().getTime()) clock.set(new Date(next));
      await handleVisibleMessages(alerts);
    }
  }

  /** Writes the assets of a vault to the inventory, as a scan of the vault would. Assets that are not given are removed. */
  async function writeAssets(vaultName: string, assets: readonly TestAsset[], subscriptionId = SUBSCRIPTION) {
    const stored = await writer.readForUpdate(vaultName);
    const changes: AssetChange[] = [];
    const given = new Map(assets.map((asset) => [`${asset.type ?? "secret"}!${asset.name}`, asset]));
    const vault: VaultRecord = { ...emptyVault(vaultName, subscriptionId), contents: {}, listings: {} };
    for (const type of ["certificate", "key", "secret"] as const) {
      const before = stored.row ? await writer.assetsOf(vaultName, type) : new Map<string, AssetRecord>();
      const after = [...given.values()]
        .filter((asset) => (asset.type ?? "secret") === type)
        .map((asset) => recordOf(asset, vault));
      for (const asset of after) {
        const old = before.get(asset.name);
        const isSameWindow = old?.renewal?.windowEnd === asset.renewal?.windowEnd;
        if (old?.content !== asset.content || !isSameWindow)
          changes.push({ type, name: asset.name, before: old, after: asset });
      }
      for (const [name, old] of before) {
        if (!given.has(`${type}!${name}`)) changes.push({ type, name, before: old, after: undefined });
      }
      vault.contents[type] = fingerprint(after.map(({ content }) => content));
      vault[expiriesColumn(type)] = packExpiries(after.map(({ expiresOn }) => expiresOn));
      if (type === "certificate") vault.certificateRenewals = packPlanned(after);
    }
    // `test` identifies this writer. The callbacks would write data that other modules derive from the assets.
    if (changes.length > 0) await writer.apply(stored, vault, changes, "test", async () => async () => {});
  }

  /** Creates a rule that sends mails. Without `recipients` it has a unique one, by which `mails` finds its mails. */
  async function mailRule(change: Partial<NewRule> = {}) {
    const id = crypto.randomUUID().slice(0, 8);
    const address = `team-${id}@acme.example`;
    const { rule } = await instance().rules.create(
      { name: `rule ${id}`, alertType: "expiration", thresholds: [30, 7, 1], recipients: [address], ...change },
      caller,
    );
    return { rule, mails: () => cloud.control.mails().filter(({ to, bcc }) => [...to, ...bcc].includes(address)) };
  }

  /** Creates a rule that posts to a webhook of its own in the simulated cloud. `received` returns the requests so far. */
  async function webhookRule(change: Partial<NewRule> = {}) {
    const id = crypto.randomUUID().slice(0, 8);
    const { rule, webhookSecret } = await instance().rules.create(
      {
        name: `rule ${id}`,
        alertType: "expiration",
        thresholds: [30, 7, 1],
        deliveryMethod: "webhook",
        webhookUrl: cloud.controlUrl.replace("/control", `/sink/${id}`),
        ...change,
      },
      caller,
    );
    return { rule, webhookSecret, received: () => cloud.control.sinkRequests(id) };
  }

  return {
    clock,
    tables,
    messages,
    events,
    settings,
    config,
    instance,
    createHostWithClockOffset,
    handleVisibleMessages,
    handleAllMessages,
    writeAssets,
    mailRule,
    webhookRule,
    vault,
    connectionString,
  };
}

export type Fixture = ReturnType<typeof openFixture>;

const emptyVault = (name: string, subscriptionId: string): VaultRecord => ({
  name,
  subscriptionId,
  vaultUri: `https://${name}.vault.localhost`,
  location: "westeurope",
  id: `/subscriptions/${subscriptionId}/resourceGroups/rg-app/providers/Microsoft.KeyVault/vaults/${name}`,
  resourceGroup: "rg-app",
  tenantId: SUBSCRIPTION,
  sku: "standard",
  softDelete: true,
  purgeProtection: true,
  rbacAuthorization: true,
  publicNetworkAccess: "Enabled",
  networkDefaultAction: "Allow",
  privateEndpoints: 0,
  firstSeenAt: START,
  listedAt: {},
  failures: {},
  failedScans: 0,
  listings: {},
  contents: {},
  pending: false,
});

function recordOf(asset: TestAsset, vault: VaultRecord): AssetRecord {
  const { name, type = "secret", expiresInDays, enabled = true, tags, windowEndsInDays } = asset;
  const secondsAt = (days: number) => Math.round((Date.parse(START) + days * DAY_MS) / 1000);
  const record = {
    type,
    name,
    vaultName: vault.name,
    vaultId: vault.id,
    subscriptionId: vault.subscriptionId,
    enabled,
    ...(expiresInDays === undefined ? {} : { expiresOn: secondsAt(expiresInDays) }),
    ...(tags ? { tags } : {}),
    listing: "test",
  };
  const windowEnd = windowEndsInDays === undefined ? undefined : secondsAt(windowEndsInDays);
  return {
    ...record,
    ...(windowEnd !== undefined && {
      renewal: { renewedBy: "acmebot", source: "tags", windowStart: windowEnd, windowEnd, attentionAt: windowEnd + 1 },
    }),
    firstSeenAt: START,
    content: contentHash(record),
  };
}

/**
 * Returns the assets and violations that a mail lists, as `<vault>/<name>`, without resolved ones. Each has a line such as
 * `WITHIN 7 DAYS: kv-a/one expires in 3 days`.
 */
export const assetNamesIn = (text: string): string[] =>
  [
    ...text.matchAll(
      /^(?:EXPIRED|WITHIN \d+ (?:HOURS|DAYS)|LATER|RENEWAL IS LATE|ACT NOW|URGENT|WARNING|NOTICE): (\S+)/gm,
    ),
  ].map((match) => match[1]!);
