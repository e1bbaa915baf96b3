import { createRequire } from "node:module";
import type { Config } from "../config/config.ts";
import type { Caller } from "../http/endpoint.ts";
import type { Page, PageRequest } from "../http/paging.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import type { Tables } from "../storage/tables.ts";
import type { Anchor } from "./anchor.ts";
import type { AuditEntry } from "./entry.ts";
import type { ExportPart, ExportRequest } from "./export.ts";
import { type AuditQuery, listEntries } from "./list.ts";
import { createPurger, type PurgeResult } from "./purge.ts";
import { createSealer, type Sealing } from "./seal.ts";
import { type AuditStatistics, statistics } from "./statistics.ts";
import { createTrust } from "./trust.ts";
import { type Verification, type VerifyRequest, verifySealed } from "./verify.ts";
import { createWriter } from "./write.ts";

/** Something that happened, as the rest of the service tells it. */
export interface AuditEvent {
  /** What happened, as `thing.happened` in camelCase: `user.signedIn`, `settings.changed`. */
  type: string;
  caller: Caller;
  /** `intent` is entered before an outside effect, one of the others after it. */
  outcome: "success" | "failure" | "refused" | "intent";
  target?: { type: string; id: string };
  before?: unknown;
  after?: unknown;
  details?: Record<string, unknown>;
}

/**
 * The audit log. Members of `before`, `after` and `details` that are named like a secret are kept as `[redacted]`; each of
 * the three holds at most 16,384 characters of JSON.
 */
export interface Audit {
  /** Enters the event; when this fails, the effect it stands for must not happen. */
  append(event: AuditEvent): Promise<void>;
  /** As `append`, but repeats of one refusal (actor, address, type, target) within a minute are one entry with a count. */
  refused(event: AuditEvent): Promise<void>;
  /** @throws {Problem} invalidCursor */
  list(query: AuditQuery, request: PageRequest): Promise<Page<AuditEntry>>;
  /** @throws {Problem} invalidCursor; invalidRequest for a PDF over its limit. */
  export(request: ExportRequest): Promise<ExportPart>;
  /** Seals what is due; for a timer. */
  seal(): Promise<Sealing>;
  /** @throws {Problem} invalidCursor */
  verify(request: VerifyRequest): Promise<Verification>;
  /** @throws {Problem} conflict when nothing is sealed since `AUDIT_SIGNING_KEYS` is not set. */
  purge(retentionDays: number, caller: Caller): Promise<PurgeResult>;
  statistics(): Promise<AuditStatistics>;
}

export interface AuditDependencies {
  tables: Tables;
  clock: Clock;
  randomness: Randomness;
  config: Pick<Config, "AUDIT_SIGNING_KEYS" | "AUDIT_MINIMUM_RETENTION_DAYS">;
  log: Logger;
  /** Where the newest digest is remembered outside the tables; without it a cut tail can't be found. */
  anchor?: Anchor | undefined;
  /** The Unicode font of PDF exports, a WOFF file: the bundle has its own beside it. */
  unicodeFont?: string;
}

export function createAudit({ tables, clock, randomness, config, log, anchor, unicodeFont }: AuditDependencies): Audit {
  const trust = createTrust(tables, config.AUDIT_SIGNING_KEYS);
  const { append, refused } = createWriter({ tables, clock, randomness, trust });
  const reading = { tables, clock, trust, anchor };
  const minimumRetentionDays = config.AUDIT_MINIMUM_RETENTION_DAYS;
  return {
    append,
    refused,
    list: (query, request) => listEntries(tables, query, request),
    async export(request) {
      const { exportPart } = await import("./export.ts");
      return await exportPart({ ...reading, unicodeFont: () => unicodeFont ?? installedFont() }, request);
    },
    seal: createSealer({ ...reading, log }),
    verify: (request) => verifySealed(reading, request),
    purge: createPurger({ tables, clock, trust, minimumRetentionDays, append }),
    statistics: () => statistics(reading),
  };
}

/** Where the font lies while the service is not bundled. */
const installedFont = (): string =>
  createRequire(import.meta.url).resolve("@fontsource/unifontex/files/unifontex-latin-400-normal.woff");
