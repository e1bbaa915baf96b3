import { type Config, ConfigError } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { PageRequest } from "../platform/http/paging.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { Verification } from "./api.ts";
import type { Anchor } from "./chain/anchor.ts";
import { isAuthenticated } from "./chain/authenticated-from.ts";
import { createTrust } from "./chain/trust.ts";
import type { AuditEvent, AuditRecorder } from "./event.ts";
import type { ExportPart, ExportRequest } from "./export/export.ts";
import { type IndexRepair, repairWholeIndex } from "./index-repair.ts";
import { type AuditPage, type AuditQuery, listEntries } from "./list.ts";
import { type PurgeResult, purgeSealed } from "./purge/purge.ts";
import { readingEvent, recordExport } from "./reading-events.ts";
import { prepareLogForRollback } from "./rollback.ts";
import { createSealer, type Sealing } from "./seal/seal.ts";
import { type AuditStatistics, statistics } from "./seal/statistics.ts";
import { createSealedLog, type SealedLog } from "./sealed-log.ts";
import { searchEntries } from "./search.ts";
import { createSpan } from "./span.ts";
import { type VerifyRequest, verifyLog } from "./verify/verify.ts";
import { createWriter } from "./write/writer.ts";

export type { AuditEvent } from "./event.ts";

/**
 * The audit log, which records who did what in the service. A timer seals it: for each interval of ten minutes, sealing signs a
 * digest (hash) of the entries, and verification detects later changes.
 *
 * Members of `before`, `after` and `details` whose names are those of secrets are stored as `[redacted]`. Each
 * of the three holds at most 16,384 characters of JSON.
 */
export interface Audit extends AuditRecorder {
  /**
   * Like `append`, but repeats of one rejected request within a minute share an entry with a count. Repeats have the same actor,
   * address, type and target, and the same `reason` and `code` in their details.
   */
  refused(event: AuditEvent): Promise<void>;
  /**
   * Lists entries.
   *
   * @param reader - The caller for whom the reading is recorded in the log, before the page is returned. If omitted, the
   *   reading is not recorded.
   * @throws {Problem} invalidCursor
   */
  list(query: AuditQuery, request: PageRequest, reader?: Caller): Promise<AuditPage>;
  /**
   * Exports entries.
   *
   * @param reader - The caller for whom the export is recorded in the log: its intent before the first part, its outcome with
   *   the last part.
   * @throws {Problem} invalidCursor; invalidRequest for a PDF over its limit.
   */
  export(request: ExportRequest, reader?: Caller): Promise<ExportPart>;
  /** Seals the intervals that are over. A timer calls it. */
  seal(): Promise<Sealing>;
  /**
   * Verifies the entries of a period against their digests, or their authentication codes while they are not sealed.
   *
   * @throws {Problem} invalidCursor
   */
  verify(request: VerifyRequest, reader?: Caller): Promise<Verification>;
  /**
   * Compares the index with all entries and repairs it, sealed or not (index-repair.ts). A repair is recorded in the log, with
   * `details`.
   */
  repairIndex(caller: Caller, details: Record<string, unknown>): Promise<IndexRepair>;
  /** The sealed part of the log, in order. */
  readonly sealed: SealedLog;
  /** Whether the log is sealed: `AUDIT_SIGNING_KEYS` is set. */
  readonly isSealed: boolean;
  /** Deletes old sealed entries. @throws {Problem} conflict if nothing is sealed because `AUDIT_SIGNING_KEYS` is not set. */
  purge(retentionDays: number, caller: Caller): Promise<PurgeResult>;
  /** Returns the number of sealed entries and the time range of the log. */
  statistics(): Promise<AuditStatistics>;
  /** Prepares the log of a stopped app for an earlier version (rollback.ts). */
  prepareForRollback(): Promise<void>;
  /**
   * Checks that the entries of this process get authentication codes if the log requires them. Commands call it before they
   * write.
   *
   * @throws {ConfigError} if `AUDIT_SIGNING_KEYS` is missing.
   */
  requireKeys(): Promise<void>;
}

/** The services and settings that `createAudit` needs. */
export interface AuditDependencies {
  tables: Tables;
  clock: Clock;
  randomness: Randomness;
  config: Pick<Config, "AUDIT_SIGNING_KEYS" | "AUDIT_MINIMUM_RETENTION_DAYS">;
  log: Logger;
  /**
   * Stores the newest digest outside the tables. Without it, the deletion of the newest entries and digests can't be detected.
   */
  anchor?: Anchor | undefined;
  /** Path of the Unicode font for PDF exports, a WOFF file. Default: the font in the bundle's folder. */
  unicodeFont?: string;
}

/** Creates the audit log. */
export function createAudit({ tables, clock, randomness, config, log, anchor, unicodeFont }: AuditDependencies): Audit {
  const trust = createTrust(tables, config.AUDIT_SIGNING_KEYS);
  const { append, refused, reading } = createWriter({ tables, clock, randomness, trust });
  const readingDeps = { tables, clock, trust, anchor };
  /** Reads the part of the log that lists show: its time range, and whether this service wrote an entry. */
  const readSpan = createSpan({ tables, clock, trust });
  const minimumRetentionDays = config.AUDIT_MINIMUM_RETENTION_DAYS;

  return {
    append,
    refused,
    async list(query, request, reader) {
      if (reader) await reading(readingEvent("audit.listed", reader, query));
      const { search } = query;
      return search === undefined
        ? await listEntries(tables, await readSpan(), query, request)
        : await searchEntries(tables, await readSpan(), { ...query, search }, request);
    },
    async export(request, reader) {
      // Loaded with the first export, so that instances without exports start faster.
      const { exportPart } = await import("./export/export.ts");
      const exportDeps = { ...readingDeps, unicodeFont };
      const createPart = (exportId: string) => exportPart(exportDeps, request, exportId);
      return reader
        ? await recordExport({ append, reading }, request, reader, createPart)
        : await createPart(randomness.ulid(clock.now()));
    },
    // `refused` instead of `append`: two calls of the sealer at once record the same event, which then is one entry.
    seal: createSealer({ ...readingDeps, log, recordEvent: refused }),
    async verify(request, reader) {
      if (reader) await reading(readingEvent("audit.verified", reader, request));
      return await verifyLog(readingDeps, request);
    },
    sealed: createSealedLog({ tables, clock, trust }),
    isSealed: trust.signer !== undefined,
    repairIndex: (caller, details) => repairWholeIndex({ tables, clock, audit: { append } }, caller, details),
    purge: (retentionDays, caller) =>
      purgeSealed({ tables, clock, trust, append, minimumRetentionDays }, retentionDays, caller),
    statistics: () => statistics(readingDeps),
    prepareForRollback: () => prepareLogForRollback(readingDeps),
    async requireKeys() {
      if (trust.signer || !(await isAuthenticated(tables))) return;
      const message = "is missing. Verification would report the audit entries of this command as inserted.";
      throw new ConfigError([["AUDIT_SIGNING_KEYS", message]]);
    },
  };
}
