import * as z from "zod";
import { pageOf, pageParameters, queryInstant } from "../http/paging.ts";
import { Problem } from "../http/problem.ts";
import { Finding } from "./chain/findings.ts";
import { PurgeRecord } from "./chain/purge-record.ts";
import { AuditEntry, EVENT_TYPE } from "./entry.ts";
import type { AuditQuery } from "./list.ts";
import { MAX_FINDINGS } from "./verify/found.ts";

/** The audit log as the API takes and shows it. */

export const period = { start_date: queryInstant("start").optional(), end_date: queryInstant("end").optional() };

const filters = {
  ...period,
  event_type: z
    .string()
    .regex(EVENT_TYPE, "must be an event type such as user.signedIn")
    .optional()
    .meta({ description: "Only events of this type.", example: "user.signedIn" }),
  actor: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .meta({ description: "Only what this username did, in any case; `anonymous` and `system` too.", example: "admin" }),
};

export const ListQuery = z.strictObject({ ...filters, ...pageParameters });

export const ReportQuery = z.strictObject(filters);
export const FileQuery = z.strictObject({ ...filters, cursor: pageParameters.cursor });

export const ExportQuery = z.strictObject({
  format: z.enum(["json", "csv", "pdf"]).optional().meta({
    default: "json",
    description: "With `csv` and `pdf` the answer is the file that GET /audit/export/csv and /pdf answer.",
  }),
  ...FileQuery.shape,
});

export const VerifyQuery = z.strictObject({ ...period, cursor: pageParameters.cursor });

type Filters = { start_date?: Date | undefined; end_date?: Date | undefined; event_type?: string; actor?: string };

/** @throws {Problem} invalidRequest when the period ends before it begins. */
export function auditQuery({ start_date: start, end_date: end, event_type: eventType, actor }: Filters): AuditQuery {
  if (start && end && start > end) {
    throw new Problem("invalidRequest", "The period ends before it begins. Swap start_date and end_date.", {
      errors: [{ path: "query.end_date", message: "is before start_date" }],
    });
  }
  return { start, end, eventType, actor };
}

export const AuditEntryList = z
  .object({
    ...pageOf(AuditEntry, "AuditEntryPage").shape,
    findings: z.array(Finding).optional().meta({
      description:
        "Rows of the list on this page for which the log holds no such entry, so that they are left out of items. Absent when there are none. GET /audit/verify says more.",
    }),
  })
  .meta({ id: "AuditEntryList" });

export const AuditExport = z
  .looseObject({
    format: z.string().meta({ description: "What the file calls itself, with its version." }),
    start: z.iso.datetime().meta({ description: "From here on." }),
    end: z.iso.datetime().meta({ description: "Up to here, which is not included." }),
    entries: z.array(AuditEntry).meta({ description: "The entries, oldest first." }),
    nextCursor: z.string().nullable(),
  })
  .meta({ id: "AuditExport", description: "With what the offline command needs to verify the entries." });

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
            occurredAt: text.meta({ description: "The instant it stands under." }),
            happenedAt: text.meta({ description: "When it happened." }),
          })
          .meta({ id: "AuditLateEntry" }),
      )
      .meta({ description: "At most 100 of them." }),
  })
  .meta({
    id: "AuditLateEntries",
    description:
      "Entries that were checked and stand under a later instant (occurredAt) than the one at which they happened (happenedAt), since the log was closed for that already. No finding: a clock that was behind does it too. Many of them, or far behind, are worth a look at who may write to storage. At most 100 are listed; total counts all.",
  });
export type LateEntries = z.infer<typeof LateEntries>;

export const Verification = z
  .object({
    intact: z.boolean().meta({ description: "Nothing sealed in what was checked was changed, removed or inserted." }),
    sealing: z.enum(["configured", "notConfigured"]).meta({
      description: "notConfigured: AUDIT_SIGNING_KEYS is not set, nothing is sealed, nothing can be verified.",
    }),
    checkedFrom: text.nullable().meta({ description: "The start of the first interval that was checked." }),
    checkedTo: text.nullable().meta({ description: "The end of the last interval that was checked." }),
    digests: z.int().meta({ description: "Digests that were checked." }),
    entries: z.int().meta({ description: "Entries that were compared with their sealed fingerprints." }),
    lastDigest: z
      .object({
        number: z.int(),
        interval: text,
        hash: text,
        sealedAt: text.meta({ description: "When it was sealed." }),
        kid: text,
      })
      .meta({ id: "AuditDigest" })
      .nullable()
      .meta({ description: "The last digest that was checked and holds, with the key that signed it." }),
    index: z
      .object({
        filters: z.int().meta({ description: "Actors, event types and both together that occur in what was checked." }),
        filtersChecked: z.int().meta({
          description:
            "Those for which the list was compared with the entries: at most 500, those with the most entries.",
        }),
      })
      .meta({ id: "AuditIndexCheck" })
      .meta({ description: "How much of the list was compared with the entries." }),
    findings: z.array(Finding).meta({ description: `At most ${MAX_FINDINGS}; findingsTotal counts all.` }),
    findingsTotal: z.int().meta({ description: "How many findings there are." }),
    lateEntries: LateEntries.meta({ description: "Entries that were entered later than they happened." }),
    beginning: text.nullable().meta({
      description:
        "Where the log began, as signed in the digests or remembered by the key vault; null when nothing is sealed.",
    }),
    unsealedFrom: text.nullable().meta({ description: "From here on nothing is sealed yet: not checked." }),
    purges: z.array(PurgeRecord).meta({ description: "What was removed by retention, with who did it." }),
    anchor: z
      .object({
        state: z.enum(["matches", "differs", "unreadable", "empty", "notConfigured"]).meta({
          description:
            "The newest digest as the service's own key vault remembers it; notConfigured: SERVICE_KEY_VAULT_URL is not set, so that cutting off the newest digests with their entries can't be found.",
        }),
        number: z.int().optional(),
        interval: text.optional(),
        hash: text.optional(),
      })
      .meta({ id: "AuditAnchor" })
      .meta({ description: "Whether the newest digest is the one that the key vault remembers." }),
    publicKeys: z
      .array(
        z.object({
          kid: text,
          publicKey: text.meta({ description: "Ed25519, 32 bytes in base64." }),
          fingerprint: text.meta({ description: "SHA-256 of the public key's 32 bytes, in hexadecimal." }),
        }),
      )
      .meta({ description: "Keep them apart from this service, for the offline command." }),
    nextCursor: text
      .nullable()
      .meta({ description: "There is more to check than one answer does: send it as cursor." }),
  })
  .meta({ id: "AuditVerification" });
export type Verification = z.infer<typeof Verification>;
