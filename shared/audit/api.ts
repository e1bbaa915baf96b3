import * as z from "zod";
import { pageOf, pageParameters, queryInstant } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import { Finding } from "./chain/findings.ts";
import { PurgeRecord } from "./chain/purge-record.ts";
import { AuditEntry, EVENT_TYPE } from "./entry.ts";
import type { AuditQuery } from "./list.ts";
import { MAX_FINDINGS } from "./verify/finding-list.ts";

/** Schemas of the audit log in the API. */

export const period = { start_date: queryInstant("start").optional(), end_date: queryInstant("end").optional() };

const filters = {
  ...period,
  event_type: z
    .string()
    .regex(EVENT_TYPE, "must be an event type such as user.signedIn")
    .optional()
    .meta({ description: "Events of this type only.", example: "user.signedIn" }),
  actor: z.string().min(1).max(256).optional().meta({
    description: "Actions of this username only, not case-sensitive; also `anonymous` and `system`.",
    example: "admin",
  }),
};

export const ListQuery = z.strictObject({
  ...filters,
  search: z.string().min(1).max(256).optional().meta({
    description:
      "Text in the event, actor, target or details. Not case-sensitive. Each call reads up to 2,000 entries and returns the matches with a nextCursor.",
  }),
  ...pageParameters,
});

export const ReportQuery = z.strictObject(filters);
export const FileQuery = z.strictObject({ ...filters, cursor: pageParameters.cursor });

export const ExportQuery = z.strictObject({
  format: z.enum(["json", "csv", "pdf"]).optional().meta({
    default: "json",
    description: "With `csv` or `pdf`, the response is the file of GET /audit/export/csv or /pdf.",
  }),
  ...FileQuery.shape,
});

export const VerifyQuery = z.strictObject({ ...period, cursor: pageParameters.cursor });

interface Filters {
  start_date?: Date | undefined;
  end_date?: Date | undefined;
  event_type?: string;
  actor?: string;
  search?: string;
}

/** Converts the parameters of a request to a query. @throws {Problem} invalidRequest if the period ends before it starts. */
export function auditQuery({
  start_date: start,
  end_date: end,
  event_type: eventType,
  actor,
  search,
}: Filters): AuditQuery {
  if (start && end && start > end) {
    throw new Problem("invalidRequest", "The period ends before it starts. Exchange start_date and end_date.", {
      errors: [{ path: "query.end_date", message: "is before start_date" }],
    });
  }
  return { start, end, eventType, actor, search };
}

export const AuditEntryList = z
  .object({
    ...pageOf(AuditEntry, "AuditEntryPage").shape,
    findings: z.array(Finding).optional().meta({
      description:
        "Index rows of this page without a matching entry in the log. They are left out of items. Absent when there are none. GET /audit/verify returns details.",
    }),
  })
  .meta({ id: "AuditEntryList" });

export const AuditExport = z
  .looseObject({
    format: z.string().meta({ description: "Name and version of the file format." }),
    start: z.iso.datetime().meta({ description: "Start time, inclusive." }),
    end: z.iso.datetime().meta({ description: "End time, exclusive." }),
    entries: z.array(AuditEntry).meta({ description: "Audit entries, oldest first." }),
    nextCursor: z.string().nullable(),
  })
  .meta({ id: "AuditExport", description: "Includes the data that the offline command needs to verify the entries." });

/** A text member, to which each use adds its description. */
const text = z.string();

export const LateEntries = z
  .object({
    total: z.int(),
    listed: z
      .array(
        z
          .object({
            interval: text,
            entryId: text,
            occurredAt: text.meta({ description: "Time under which the entry is listed." }),
            happenedAt: text.meta({ description: "Time of the event." }),
          })
          .meta({ id: "AuditLateEntry" }),
      )
      .meta({ description: "The first late entries, up to 100." }),
  })
  .meta({
    id: "AuditLateEntries",
    description:
      "Verified entries that are listed under a later time (occurredAt) than the time of the event (happenedAt), because the log was already closed for that time. Not a finding: a slow clock can cause it. If there are many, or with long delays, check who can write to the storage account. Up to 100 are listed; total counts all.",
  });
export type LateEntries = z.infer<typeof LateEntries>;

export const Verification = z
  .object({
    intact: z.boolean().meta({
      description: "True if no entry of the verified period was changed, removed or inserted, sealed or not.",
    }),
    sealing: z.enum(["configured", "notConfigured"]).meta({
      description: "`notConfigured`: AUDIT_SIGNING_KEYS is not set, so entries are neither sealed nor verified.",
    }),
    checkedFrom: text.nullable().meta({ description: "Start of the first verified interval." }),
    checkedTo: text.nullable().meta({ description: "End of the last verified interval." }),
    digests: z.int().meta({ description: "Number of verified digests." }),
    entries: z.int().meta({ description: "Number of entries compared with their sealed hashes." }),
    lastDigest: z
      .object({
        number: z.int(),
        interval: text,
        hash: text,
        sealedAt: text.meta({ description: "Time when the interval was sealed." }),
        kid: text,
      })
      .meta({ id: "AuditDigest" })
      .nullable()
      .meta({ description: "Last valid digest, with the key that signed it." }),
    index: z
      .object({
        filters: z
          .int()
          .meta({ description: "Number of actors, event types, and combinations of both in the verified entries." }),
        filtersChecked: z.int().meta({
          description:
            "Number of them for which the index was compared with the entries: up to 500, those with the most entries.",
        }),
      })
      .meta({ id: "AuditIndexCheck" })
      .meta({ description: "Coverage of the comparison of index and entries." }),
    findings: z
      .array(Finding)
      .meta({ description: `Findings, up to ${MAX_FINDINGS}. findingsTotal also counts those that are not listed.` }),
    findingsTotal: z.int().meta({
      description:
        "Number of findings. The search for unexpected rows outside the sealed intervals stops after about 100 rows of a kind, so the log can contain more of them.",
    }),
    lateEntries: LateEntries.meta({ description: "Entries that were recorded later than they happened." }),
    beginning: text.nullable().meta({
      description:
        "Start of the log, as signed in the digests or stored in the key vault. Null when nothing is sealed.",
    }),
    unsealedFrom: text.nullable().meta({
      description:
        "Time from which entries are not sealed yet. They are verified by their authentication codes. Null if there are no entries.",
    }),
    unsealedEntries: z.int().meta({
      description:
        "Number of entries that are not sealed yet and were verified by their authentication codes. 0 if the response has a nextCursor.",
    }),
    entriesWithoutCode: z.int().meta({
      description:
        "Number of verified entries without an authentication code that were accepted because an earlier version may have written them. Entries that the earlier version itself sealed are not included.",
    }),
    authenticatedFrom: text.nullable().meta({
      description:
        "Every entry since this time must have an authentication code. Null between an upgrade from a version that wrote none, or `npm run store -- prepare-rollback`, and the next sealing.",
    }),
    purges: z
      .array(PurgeRecord)
      .meta({ description: "Entries that were removed by retention, and who started the removal." }),
    anchor: z
      .object({
        state: z.enum(["matches", "differs", "unreadable", "empty", "notConfigured"]).meta({
          description:
            "Comparison with the newest digest stored in the service's key vault. `notConfigured`: SERVICE_KEY_VAULT_URL is not set, so removal of the newest digests with their entries can't be detected.",
        }),
        number: z.int().optional(),
        interval: text.optional(),
        hash: text.optional(),
      })
      .meta({ id: "AuditAnchor" })
      .meta({ description: "Whether the newest digest matches the one stored in the key vault." }),
    publicKeys: z
      .array(
        z.object({
          kid: text,
          publicKey: text.meta({ description: "Ed25519 public key, 32 bytes in base64." }),
          fingerprint: text.meta({ description: "SHA-256 of the 32 bytes of the public key, in hexadecimal." }),
        }),
      )
      .meta({ description: "Public keys for the offline command. Store them outside this service." }),
    nextCursor: text
      .nullable()
      .meta({ description: "More entries remain to be verified: send this value as cursor. Null at the end." }),
  })
  .meta({ id: "AuditVerification" });
export type Verification = z.infer<typeof Verification>;
