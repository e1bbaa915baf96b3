import { randomUUID } from "node:crypto";
import { QueueClient } from "@azure/storage-queue";
import type { AuditEvent } from "../../shared/audit/audit.ts";
import type { Check, Context } from "../../shared/compliance/check.ts";
import { CHECKS } from "../../shared/compliance/checks/all.ts";
import { type Compliance, createCompliance } from "../../shared/compliance/compliance.ts";
import { EvaluateMessage, QUEUE } from "../../shared/compliance/compliance-rows.ts";
import type { AssetUse, Reference } from "../../shared/compliance/references.ts";
import {
  ASSET_TYPES,
  type AssetRecord,
  assetId,
  type Credential,
  contentOf,
  sourceOf,
} from "../../shared/inventory/asset.ts";
import { packExpiries } from "../../shared/inventory/expiries.ts";
import { expiriesColumn, type VaultRecord } from "../../shared/inventory/vault.ts";
import { type AssetChange, createInventoryWriter } from "../../shared/inventory/write.ts";
import type { Caller } from "../../shared/platform/http/endpoint.ts";
import type { PageRequest } from "../../shared/platform/http/paging.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createQueues } from "../../shared/platform/storage/queues.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { DEFINITIONS, SETTING_KEYS, type SettingValues } from "../../shared/settings/definitions.ts";

export const START = Date.parse("2026-11-21T10:00:00.000Z");
export const DAY = 86_400;
/** Returns unix seconds, a number of days after START. */
export const inDays = (days: number): number => START / 1000 + days * DAY;
export const SUBSCRIPTION = "11111111-1111-1111-1111-111111111111";
export const caller: Caller = { actor: "admin", requestId: "request-1" };
export const context: Context = { now: START, criticalDays: 7, warningDays: 30 };

/** A vault that passes every check. */
export const vault = (name: string, change: Partial<VaultRecord> = {}): VaultRecord => ({
  name,
  id: `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg/providers/Microsoft.KeyVault/vaults/${name}`,
  vaultUri: `https://${name}.vault.azure.net/`,
  location: "westeurope",
  subscriptionId: SUBSCRIPTION,
  resourceGroup: "rg",
  tenantId: "22222222-2222-2222-2222-222222222222",
  sku: "standard",
  softDelete: true,
  softDeleteRetentionDays: 90,
  purgeProtection: true,
  rbacAuthorization: true,
  publicNetworkAccess: "Disabled",
  networkDefaultAction: "Deny",
  privateEndpoints: 1,
  diagnostics: [{ name: "audit", auditEvents: true }],
  firstSeenAt: new Date(START).toISOString(),
  listedAt: {},
  failures: {},
  failedScans: 0,
  listings: {},
  contents: {},
  pending: false,
  ...change,
});

const GOOD: Record<AssetRecord["type"], Partial<AssetRecord>> = {
  secret: { contentType: "password" },
  key: {
    keyType: "RSA",
    keySize: 3072,
    rotationPolicy: { lifetimeActions: [{ action: "Rotate", timeAfterCreate: "P90D" }] },
  },
  certificate: {
    keyType: "RSA",
    keySize: 3072,
    issuer: "CN=DigiCert TLS RSA SHA256 2020 CA1, O=DigiCert Inc, C=US",
    validityMonths: 12,
    autoRenew: true,
  },
};

/** An application's credential without further data. */
export const credential = (change: Partial<Credential> = {}): Credential => ({
  tenantId: "22222222-2222-2222-2222-222222222222",
  appId: "33333333-3333-3333-3333-333333333333",
  applicationName: "Payments",
  keyId: "44444444-4444-4444-4444-444444444444",
  of: "application",
  owners: ["ada@acme.example"],
  secretsUntil: [inDays(90)],
  certificatesUntil: [],
  federated: false,
  ...change,
});

/** An asset that passes every check that applies, 90 days before its expiry. */
export function asset(
  vaultName: string,
  type: AssetRecord["type"],
  name: string,
  change: Partial<AssetRecord> = {},
): AssetRecord {
  const record = {
    type,
    name,
    vaultName,
    vaultId: `/vaults/${vaultName}`,
    subscriptionId: SUBSCRIPTION,
    enabled: true,
    createdOn: inDays(-100),
    updatedOn: inDays(-100),
    expiresOn: inDays(90),
    ...GOOD[type],
    ...change,
    listing: "",
  };
  const content = contentOf(record);
  return { ...record, firstSeenAt: new Date(START).toISOString(), listing: content, content };
}

export interface Fixture {
  compliance: Compliance;
  clock: { now(): Date; at: number };
  settings: SettingValues;
  events: AuditEvent[];
  /** Delays of messages in seconds. They are delivered without delay. */
  delays: number[];
  /** Replaces the vault's assets, as a scan does. `twice` reports the changes twice. */
  scan(vault: VaultRecord, assets: AssetRecord[], options?: { twice?: boolean }): Promise<void>;
  leave(vaultName: string): Promise<void>;
  /** The store itself. */
  tables: Tables;
  /** Handles the queue's messages until none is left, and returns them. */
  drain(): Promise<EvaluateMessage[]>;
}

/** `measured` is the connection of compliance's own tables, to count its requests. */
export function openFixture(
  connectionString: string,
  measured = connectionString,
  references: (vaultName: string) => Promise<(AssetUse | Reference)[]> = async () => [],
): Fixture {
  const tables = createTables({ connectionString });
  const clock = { at: START, now: () => new Date(clock.at) };
  const settings = Object.fromEntries(
    SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]),
  ) as unknown as SettingValues;
  const events: AuditEvent[] = [];
  const delays: number[] = [];
  const queues = createQueues({ connectionString });
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const compliance = createCompliance({
    tables: createTables({ connectionString: measured }),
    licensed: async () => true,
    queues: {
      ...queues,
      send: async (queue, message, options) => {
        delays.push(options?.delaySeconds ?? 0);
        await queues.send(queue, message);
      },
    },
    references,
    settings: { values: async () => ({ ...settings }) },
    audit: { append: async (event: AuditEvent) => void events.push(event) } as never,
    clock,
    randomness: systemRandomness(),
    log,
  });
  const writer = createInventoryWriter({ tables });
  const inbox = new QueueClient(connectionString, QUEUE);

  return {
    compliance,
    tables,
    clock,
    settings,
    events,
    delays,

    async scan(wanted, assets, { twice = false } = {}) {
      const known = await writer.readForUpdate(wanted.name);
      const changes: AssetChange[] = [];
      for (const type of ASSET_TYPES) {
        const left = known.row ? await writer.assetsOf(wanted.name, type) : new Map<string, AssetRecord>();
        for (const after of assets.filter((one) => one.type === type)) {
          const before = left.get(after.name.toLowerCase());
          left.delete(after.name.toLowerCase());
          if (before?.content !== after.content) changes.push({ type, name: after.name, before, after });
        }
        for (const before of left.values()) changes.push({ type, name: before.name, before, after: undefined });
      }
      const at = clock.now().toISOString();
      const record: VaultRecord = { ...wanted, listedAt: { secret: at, key: at, certificate: at } };
      for (const type of ASSET_TYPES) {
        record[expiriesColumn(type)] = packExpiries(
          assets.filter((one) => one.type === type).map((one) => one.expiresOn),
        );
      }
      const vaultBefore = known.row;
      if (changes.length === 0 && vaultBefore && facts(vaultBefore) === facts(record)) {
        return await writer.writeVaultOnly(known, record);
      }
      await writer.apply(known, record, changes, `test/${randomUUID()}`, async () => {
        const write = await compliance.prepareChange({ vault: record, vaultBefore, vaultGone: false });
        return async (...reported) => {
          for (let time = 0; time < (twice ? 2 : 1); time++) await write(...reported);
        };
      });
    },

    async leave(vaultName) {
      const known = await writer.readForUpdate(vaultName);
      if (!known.row) return;
      const left = { vault: known.row, vaultBefore: known.row, vaultGone: true };
      await writer.forget(known, `test/${randomUUID()}`, () => compliance.prepareChange(left));
    },

    async drain() {
      const handled: EvaluateMessage[] = [];
      await inbox.createIfNotExists();
      for (;;) {
        const { receivedMessageItems } = await inbox.receiveMessages({ numberOfMessages: 32, visibilityTimeout: 60 });
        if (receivedMessageItems.length === 0) return handled;
        for (const { messageText, messageId, popReceipt } of receivedMessageItems) {
          const message = EvaluateMessage.parse(JSON.parse(Buffer.from(messageText, "base64").toString()));
          await compliance.handle(message);
          handled.push(message);
          await inbox.deleteMessage(messageId, popReceipt);
        }
      }
    },
  };
}

const facts = ({ listedAt: _l, ...rest }: VaultRecord): string => {
  const { rbacAuthorization, softDelete, purgeProtection, publicNetworkAccess, privateEndpoints, diagnostics } = rest;
  return JSON.stringify([
    rbacAuthorization,
    softDelete,
    purgeProtection,
    publicNetworkAccess,
    privateEndpoints,
    diagnostics,
  ]);
};

/** One expected pair of check and resource, computed from the resources alone. */
export interface Pair {
  check: Check;
  resourceId: string;
  result: "pass" | "fail";
}

export function pairsOf(estate: Iterable<{ vault: VaultRecord; assets: AssetRecord[] }>, at: Context): Pair[] {
  const pairs: Pair[] = [];
  for (const { vault: of, assets } of estate) {
    for (const check of CHECKS) {
      if (check.resourceType === "vault") {
        const { result } = check.evaluate(of);
        if (result !== "notApplicable") pairs.push({ check, resourceId: of.name.toLowerCase(), result });
        continue;
      }
      const source = sourceOf(check);
      for (const one of assets.filter((asset) => asset.type === check.resourceType && sourceOf(asset) === source)) {
        const { result } = check.evaluate({ asset: one, vaultUsesRbac: of.rbacAuthorization }, at);
        if (result !== "notApplicable") pairs.push({ check, resourceId: assetId(one), result });
      }
    }
  }
  return pairs;
}

export const firstPage = (limit = 100, offset = 0): PageRequest => ({ limit, offset, cursor: undefined });

/** Returns every violation, read page by page. */
export async function walk(
  compliance: Compliance,
  filter: Parameters<Compliance["violations"]>[0] = {},
  limit = 100,
): Promise<Awaited<ReturnType<Compliance["violations"]>>["items"]> {
  const items = [];
  let cursor: string | undefined;
  do {
    const page = await compliance.violations(filter, { limit, offset: 0, cursor });
    items.push(...page.items);
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
  return items;
}

export const checkIds = (violations: { checkId: string }[]): string[] => violations.map(({ checkId }) => checkId);
