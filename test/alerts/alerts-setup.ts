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
import { type AssetRecord, type AssetType, contentOf, fingerprint } from "../../shared/inventory/asset.ts";
import { packExpiries } from "../../shared/inventory/expiries.ts";
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
import { configIn } from "../azure/live-cloud.ts";
import { crashable, type Steps } from "../support/simulated-crash.ts";

const quiet = { debug() {}, info() {}, warn() {}, error() {} };

export const DAY_MS = 86_400_000;
export const START = "2026-11-21T10:00:00.000Z";
export const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
export const caller: Caller = { actor: "admin", requestId: "test" };

export function settableClock(start: string) {
  let at = Date.parse(start);
  return {
    now: () => new Date(at),
    set: (instant: Date | string) => {
      at = new Date(instant).getTime();
    },
    add: (milliseconds: number) => {
      at += milliseconds;
    },
  };
}

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
}

export interface FixtureOptions {
  connectionString: string;
  cloud: Cloud;
  settings?: { enableNotifications: boolean };
  violations?: ViolationSource;
  credentials?: (tables: Tables, clock: Clock) => readonly CredentialSource[];
  entries?: (tables: Tables, clock: Clock) => Pick<Audit, "list">;
  automation?: readonly AutomationSource[];
  /** Changed settings. */
  environment?: Record<string, unknown>;
}

/** The alert module with a movable clock, a queue to drain and instances that can crash. */
export function openFixture({
  connectionString,
  cloud,
  violations,
  credentials,
  entries,
  automation = [],
  environment = {},
  ...options
}: FixtureOptions) {
  const clock = settableClock(START);
  const tables = createTables({ connectionString });
  const messages: Message[] = [];
  const events: AuditEvent[] = [];
  const config = {
    ...configIn(cloud),
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
  const vault = createServiceKeyVault({ config, identity, log: quiet });
  const writer = createInventoryWriter({ tables });

  const queues: Queues = {
    async send(queue, message, { delaySeconds = 0 } = {}) {
      messages.push({ queue, message, visibleAt: clock.now().getTime() + delaySeconds * 1000 });
    },
    checkReachable: async () => {},
  };

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
      ...(entries && { entries: entries(tables, clock) }),
      automation,
      config,
      clock: host.clock,
      randomness: systemRandomness(),
      log: quiet,
    });
  }

  /** The alert module of a host with a clock offset in milliseconds. The module uses the storage clock. */
  function hostOff(milliseconds: number) {
    const off = vi.spyOn(Date, "now").mockReturnValue(Date.now() + milliseconds);
    const storeClock = createStoreClock();
    off.mockRestore();
    const own = createTables({ connectionString }, { clock: storeClock });
    return { tables: own, alerts: instance({ taken: 0 }, { tables: own, clock: storeClock }) };
  }

  /** Handles visible messages until the queue has none. A message whose handler fails stays. */
  async function drain(alerts: Alerts): Promise<void> {
    for (;;) {
      const next = messages.find(({ visibleAt }) => visibleAt <= clock.now().getTime());
      if (!next) return;
      if (next.queue === DELIVERY_QUEUE) await alerts.deliver((next.message as { deliveryId: string }).deliveryId);
      messages.splice(messages.indexOf(next), 1);
    }
  }

  /** Handles all messages, moving the clock to each of them. */
  async function drainAll(alerts: Alerts): Promise<void> {
    while (messages.length > 0) {
      const next = Math.min(...messages.map(({ visibleAt }) => visibleAt));
      if (next > clock.now().getTime()) clock.set(new Date(next));
      await drain(alerts);
    }
  }

  /** Writes the assets of a vault like a scan. */
  async function scanned(vaultName: string, assets: readonly TestAsset[], subscriptionId = SUBSCRIPTION) {
    const known = await writer.readForUpdate(vaultName);
    const changes: AssetChange[] = [];
    const wanted = new Map(assets.map((asset) => [`${asset.type ?? "secret"}!${asset.name}`, asset]));
    const vault: VaultRecord = { ...emptyVault(vaultName, subscriptionId), contents: {}, listings: {} };
    for (const type of ["certificate", "key", "secret"] as const) {
      const before = known.row ? await writer.assetsOf(vaultName, type) : new Map<string, AssetRecord>();
      const after = [...wanted.values()]
        .filter((asset) => (asset.type ?? "secret") === type)
        .map((asset) => recordOf(asset, vault));
      for (const one of after) {
        const old = before.get(one.name);
        if (old?.content !== one.content) changes.push({ type, name: one.name, before: old, after: one });
      }
      for (const [name, old] of before) {
        if (!wanted.has(`${type}!${name}`)) changes.push({ type, name, before: old, after: undefined });
      }
      vault.contents[type] = fingerprint(after.map(({ content }) => content));
      vault[expiriesColumn(type)] = packExpiries(after.map(({ expiresOn }) => expiresOn));
    }
    if (changes.length > 0) await writer.apply(known, vault, changes, "test", async () => async () => {});
  }

  /** A mail rule with a unique recipient, so that its mails can be identified. */
  async function mailRule(change: Partial<NewRule> = {}) {
    const id = crypto.randomUUID().slice(0, 8);
    const address = `team-${id}@acme.example`;
    const { rule } = await instance().rules.create(
      { name: `rule ${id}`, alertType: "expiration", thresholds: [30, 7, 1], recipients: [address], ...change },
      caller,
    );
    return { rule, mails: () => cloud.control.mails().filter(({ to, bcc }) => [...to, ...bcc].includes(address)) };
  }

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
    return { rule, webhookSecret, received: () => cloud.control.sunk(id) };
  }

  return {
    clock,
    tables,
    messages,
    events,
    settings,
    config,
    instance,
    hostOff,
    drain,
    drainAll,
    scanned,
    mailRule,
    webhookRule,
    vault,
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
  const { name, type = "secret", expiresInDays, enabled = true, tags } = asset;
  const record = {
    type,
    name,
    vaultName: vault.name,
    vaultId: vault.id,
    subscriptionId: vault.subscriptionId,
    enabled,
    ...(expiresInDays === undefined
      ? {}
      : { expiresOn: Math.round((Date.parse(START) + expiresInDays * DAY_MS) / 1000) }),
    ...(tags ? { tags } : {}),
    listing: "test",
  };
  return { ...record, firstSeenAt: START, content: contentOf(record) };
}

/** Returns the assets of a mail, as `<vault>/<name>`. */
export const namedIn = (text: string): string[] =>
  [...text.matchAll(/^(?:ACT NOW|URGENT|SOON|NOTICE): (\S+)/gm)].map((match) => match[1]!);
