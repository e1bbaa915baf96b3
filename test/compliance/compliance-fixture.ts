/**
 * Runs the compliance module against emulated storage, with a clock that the test sets. `scan` writes vaults and their assets as
 * a real scan does. `expectedResults` computes independently what the module must report.
 */
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
  contentHash,
  sourceOf,
} from "../../shared/inventory/asset.ts";
import { packExpiries } from "../../shared/inventory/expiries.ts";
import { packPlanned } from "../../shared/inventory/planned-certificates.ts";
import { expiriesColumn, type VaultRecord } from "../../shared/inventory/vault.ts";
import { type AssetChange, createInventoryWriter } from "../../shared/inventory/write.ts";
import type { Caller } from "../../shared/platform/http/endpoint.ts";
import type { PageRequest } from "../../shared/platform/http/paging.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createQueues } from "../../shared/platform/storage/queues.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { DEFINITIONS, SETTING_KEYS, type SettingValues } from "../../shared/settings/definitions.ts";

/** Time at which every fixture's clock starts: Unix milliseconds. */
export const START = Date.parse("2026-11-21T10:00:00.000Z");
export const DAY_SECONDS = 86_400;
/** Returns Unix seconds, a number of days after `START`. Negative numbers of days lie before it. */
export const inDays = (days: number): number => START / 1000 + days * DAY_SECONDS;
export const SUBSCRIPTION = "11111111-1111-1111-1111-111111111111";
export const caller: Caller = { actor: "admin", requestId: "request-1" };
/** The other input of checks, besides the resource: the time, and the policy's thresholds. */
export const context: Context = { now: START, criticalDays: 7, warningDays: 30 };

/** Returns a vault that passes every check, with changes. */
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

/** Properties with which an asset of each type passes the checks of its type. */
const COMPLIANT_PROPERTIES: Record<AssetRecord["type"], Partial<AssetRecord>> = {
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

/** Returns a client secret of an application, valid for 90 more days, with changes. */
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

/** Returns an asset that passes every check that applies, 90 days before its expiry, with changes. */
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
    ...COMPLIANT_PROPERTIES[type],
    ...change,
    // In the service, `listing` is the hash of the asset's entry in the vault's list. Here it gets the same value as `content`,
    // the hash of the whole record. It is empty while that hash is computed.
    listing: "",
  };
  const content = contentHash(record);
  return { ...record, firstSeenAt: new Date(START).toISOString(), listing: content, content };
}

export interface Fixture {
  compliance: Compliance;
  clock: { now(): Date; nowMs: number };
  settings: SettingValues;
  events: AuditEvent[];
  /** The delay of each message that was sent, in seconds. The fixture delivers messages without delay. */
  delays: number[];
  /** Replaces the vault's assets, as a scan does. `twice` reports the changes twice. */
  scan(vault: VaultRecord, assets: AssetRecord[], options?: { twice?: boolean }): Promise<void>;
  /** Removes the vault from the inventory, as a scan does that no longer finds it. */
  removeVault(vaultName: string): Promise<void>;
  /** The tables that the module uses, for direct reads and writes. */
  tables: Tables;
  /** Handles the queue's messages until none is left, and returns them. */
  drain(): Promise<EvaluateMessage[]>;
}

/**
 * Opens the fixture on a storage account.
 *
 * @param complianceConnectionString - connection of the compliance module's own tables, to count its requests with a proxy.
 * @param references - returns what dependency discovery knows of a vault's assets. By default nothing.
 */
export function openFixture(
  connectionString: string,
  complianceConnectionString = connectionString,
  references: (vaultName: string) => Promise<(AssetUse | Reference)[]> = async () => [],
): Fixture {
  const tables = createTables({ connectionString });
  const clock = { nowMs: START, now: () => new Date(clock.nowMs) };
  const settings = Object.fromEntries(
    SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]),
  ) as unknown as SettingValues;
  const events: AuditEvent[] = [];
  const delays: number[] = [];
  const queues = createQueues({ connectionString });
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const compliance = createCompliance({
    tables: createTables({ connectionString: complianceConnectionString }),
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

    async scan(scannedVault, assets, { twice = false } = {}) {
      const stored = await writer.readForUpdate(scannedVault.name);
      const changes: AssetChange[] = [];
      for (const type of ASSET_TYPES) {
        const storedAssets = stored.row
          ? await writer.assetsOf(scannedVault.name, type)
          : new Map<string, AssetRecord>();
        for (const after of assets.filter((one) => one.type === type)) {
          const before = storedAssets.get(after.name.toLowerCase());
          storedAssets.delete(after.name.toLowerCase());
          if (before?.content !== after.content) changes.push({ type, name: after.name, before, after });
        }
        for (const before of storedAssets.values()) changes.push({ type, name: before.name, before, after: undefined });
      }
      const listedAt = clock.now().toISOString();
      const record: VaultRecord = {
        ...scannedVault,
        listedAt: { secret: listedAt, key: listedAt, certificate: listedAt },
      };
      for (const type of ASSET_TYPES) {
        record[expiriesColumn(type)] = packExpiries(
          assets.filter((one) => one.type === type).map((one) => one.expiresOn),
        );
      }
      record.certificateRenewals = packPlanned(assets);
      const vaultBefore = stored.row;
      if (changes.length === 0 && vaultBefore && checkedProperties(vaultBefore) === checkedProperties(record)) {
        return await writer.writeVaultOnly(stored, record);
      }
      // The fourth argument names this writer. The last one returns the function that writes the results of the changed assets.
      await writer.apply(stored, record, changes, `test/${randomUUID()}`, async () => {
        const write = await compliance.prepareChange({ vault: record, vaultBefore, vaultGone: false });
        return async (...change) => {
          for (let delivery = 0; delivery < (twice ? 2 : 1); delivery++) await write(...change);
        };
      });
    },

    async removeVault(vaultName) {
      const stored = await writer.readForUpdate(vaultName);
      if (!stored.row) return;
      const removal = { vault: stored.row, vaultBefore: stored.row, vaultGone: true };
      await writer.forget(stored, `test/${randomUUID()}`, () => compliance.prepareChange(removal));
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

/** Returns the vault's properties that checks read, as a string to compare. A vault that differs elsewhere is not evaluated. */
const checkedProperties = (record: VaultRecord): string => {
  const { rbacAuthorization, softDelete, softDeleteRetentionDays, purgeProtection } = record;
  const { publicNetworkAccess, networkDefaultAction, privateEndpoints, diagnostics } = record;
  return JSON.stringify([
    rbacAuthorization,
    softDelete,
    softDeleteRetentionDays,
    purgeProtection,
    publicNetworkAccess,
    networkDefaultAction,
    privateEndpoints,
    diagnostics,
  ]);
};

/** The expected result of one check for one resource. */
export interface ExpectedResult {
  check: Check;
  resourceId: string;
  result: "pass" | "fail";
}

/**
 * Returns the expected results of all checks for these vaults and their assets, without those that don't apply. Computed from the
 * resources alone, without stored results.
 */
export function expectedResults(
  vaults: Iterable<{ vault: VaultRecord; assets: AssetRecord[] }>,
  checkContext: Context,
): ExpectedResult[] {
  const results: ExpectedResult[] = [];
  for (const { vault, assets } of vaults) {
    for (const check of CHECKS) {
      if (check.resourceType === "vault") {
        const { result } = check.evaluate(vault);
        if (result !== "notApplicable") results.push({ check, resourceId: vault.name.toLowerCase(), result });
        continue;
      }
      // Checks of assets in key vaults do not apply to credentials of applications, and the reverse.
      const source = sourceOf(check);
      for (const asset of assets.filter(({ type }) => type === check.resourceType)) {
        if (sourceOf(asset) !== source) continue;
        const { result } = check.evaluate({ asset, vaultUsesRbac: vault.rbacAuthorization }, checkContext);
        if (result !== "notApplicable") results.push({ check, resourceId: assetId(asset), result });
      }
    }
  }
  return results;
}

export const firstPage = (limit = 100, offset = 0): PageRequest => ({ limit, offset, cursor: undefined });

/** Returns every violation that matches the filter, read page by page with cursors. */
export async function readAllViolations(
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
