import { createCsv } from "../../platform/csv.ts";
import { canonicalJson } from "../canonical.ts";
import type { AuditEntry } from "../entry.ts";

const json = (value: unknown): string => (value === undefined ? "" : canonicalJson(value));

/** The columns of a CSV export of the audit log. `before`, `after` and `details` are JSON text. */
export const auditCsv = createCsv<AuditEntry>([
  { label: "id", value: ({ id }) => id },
  { label: "occurredAt", value: ({ occurredAt }) => occurredAt },
  { label: "eventType", value: ({ eventType }) => eventType },
  { label: "outcome", value: ({ outcome }) => outcome },
  { label: "actor", value: ({ actor }) => actor },
  { label: "address", value: ({ address }) => address },
  { label: "requestId", value: ({ requestId }) => requestId },
  { label: "targetType", value: ({ target }) => target?.type },
  { label: "targetId", value: ({ target }) => target?.id },
  { label: "before", value: ({ before }) => json(before) },
  { label: "after", value: ({ after }) => json(after) },
  { label: "details", value: ({ details }) => json(details) },
  { label: "count", value: ({ count }) => count },
  { label: "lastOccurredAt", value: ({ lastOccurredAt }) => lastOccurredAt },
  { label: "happenedAt", value: ({ happenedAt }) => happenedAt },
]);
