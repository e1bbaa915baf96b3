import { createPublicKey, randomBytes } from "node:crypto";
import * as z from "zod";
import { type Audit, type AuditEvent, createAudit } from "../../shared/audit/audit.ts";
import type { Anchor, AnchorState } from "../../shared/audit/chain/anchor.ts";
import { type PublicKeys, signingKey } from "../../shared/audit/chain/signing.ts";
import type { ExportRequest } from "../../shared/audit/export/export.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";

/**
 * Set-up of the audit log's tests: an audit log on an emulated storage account, with a clock that the test sets and an anchor
 * in memory. The anchor is the copy of the newest digest that the service stores in a key vault, out of reach for someone who
 * can only change the tables.
 */

/** Creates a clock that stands still until the test moves it. */
export function settableClock(start: string) {
  let currentMs = Date.parse(start);
  return {
    now: () => new Date(currentMs),
    set: (instant: string) => {
      currentMs = Date.parse(instant);
    },
    addMinutes: (minutes: number) => {
      currentMs += minutes * 60_000;
    },
  };
}
export type SettableClock = ReturnType<typeof settableClock>;

/** A row of the table of audit entries whose `entry` column may have any type, as an attacker could write it. */
export const AnyRow = entity(
  "AuditEntries",
  z.object({ entry: z.union([z.string(), z.number(), z.boolean()]).optional() }),
);

/** Creates an anchor in memory, in place of the key vault. Tests read and change the stored value as `digest`. */
export function memoryAnchor(): Anchor & { digest: AnchorState | "unreadable" | undefined } {
  return {
    digest: undefined,
    async read() {
      return this.digest;
    },
    async write(digest) {
      this.digest = digest;
    },
  };
}

/** Creates a signing key with a random seed, in the form of the setting `AUDIT_SIGNING_KEYS`. */
export const makeKey = (kid: string) => ({ kid, key: new Uint8Array(randomBytes(32)) });

export const publicKeys = (...keys: ReturnType<typeof makeKey>[]): PublicKeys =>
  new Map(keys.map((key) => [key.kid, createPublicKey(signingKey(key).privateKey)]));

export const quietLog = { debug() {}, info() {}, warn() {}, error() {} };

/** The time at which a fixture's clock starts: the start of a ten-minute interval. */
export const START = "2026-11-21T10:00:00.000Z";

/** An audit log with the parts that a test changes. */
export interface Fixture {
  audit: Audit;
  tables: Tables;
  clock: SettableClock;
  anchor: ReturnType<typeof memoryAnchor>;
  keys: ReturnType<typeof makeKey>[];
  /** Creates another instance of the service on the same tables, with other keys, another clock, anchor or tables if given. */
  instance(change?: {
    keys?: ReturnType<typeof makeKey>[];
    clock?: SettableClock;
    anchor?: Anchor | undefined;
    tables?: Tables;
  }): Audit;
}

export function openFixture(connectionString: string, { minimumRetentionDays = 90, start = START } = {}): Fixture {
  const tables = createTables({ connectionString });
  const clock = settableClock(start);
  const anchor = memoryAnchor();
  const keys = [makeKey("k1")];
  const instance: Fixture["instance"] = (change = {}) =>
    createAudit({
      tables: change.tables ?? createTables({ connectionString }),
      clock: change.clock ?? clock,
      randomness: systemRandomness(),
      config: { AUDIT_SIGNING_KEYS: change.keys ?? keys, AUDIT_MINIMUM_RETENTION_DAYS: minimumRetentionDays },
      log: quietLog,
      anchor: "anchor" in change ? change.anchor : anchor,
    });
  return { audit: instance(), tables, clock, anchor, keys, instance };
}

/** Returns an event to append: the user `ada` changed a setting. `change` replaces members. */
export const event = (change: Partial<AuditEvent> = {}): AuditEvent => ({
  type: "settings.changed",
  caller: { actor: "ada", address: "203.0.113.7", requestId: "req-1" },
  outcome: "success",
  target: { type: "setting", id: "criticalExpiryDays" },
  before: { criticalExpiryDays: 7 },
  after: { criticalExpiryDays: 5 },
  ...change,
});

/** Returns an event of the given actor. */
export const eventBy = (actor: string, type = "settings.changed"): AuditEvent =>
  event({ type, caller: { actor, requestId: "req-1" } });

/** Returns the request of a list's first page of 100 entries. `change` replaces members. */
export const page = (change: { limit?: number; offset?: number; cursor?: string | undefined } = {}) => ({
  limit: 100,
  offset: 0,
  cursor: undefined,
  ...change,
});

/** Returns every part of an export, as text. */
export async function exportAll(audit: Audit, request: Partial<ExportRequest> = {}): Promise<string[]> {
  const parts: string[] = [];
  let cursor: string | undefined;
  do {
    const part = await audit.export({ format: "json", query: {}, gzip: false, ...request, cursor });
    parts.push(Buffer.from(part.data).toString("utf8"));
    cursor = part.nextCursor ?? undefined;
  } while (cursor !== undefined);
  return parts;
}
