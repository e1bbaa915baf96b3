/** A store as an earlier version left it, and what that version's API answered; made by record.ts. */
export interface Recording {
  /** ISO 8601. */
  recordedAt: string;
  /** Signing keys made for the recording alone. */
  environment: Record<"JWT_SIGNING_KEYS" | "AUDIT_SIGNING_KEYS", string>;
  /** Valid for an hour from `recordedAt`; `ended` was signed out. `api` is the administrator's API token, where the version had them. */
  tokens: { admin: string; reader: string; ended: string; api?: string };
  /** The cookie of the reader's session, where the version had them. */
  session?: string;
  /** The scan in whose middle the process was killed; "" when its start was never answered. */
  scanId: string;
  answers: {
    assets: object[];
    score: object;
    violations: object;
    rules: object[];
    history: object[];
    audit: object[];
    auditExport: object;
    auditVerification: object;
  };
  /** What began under a licence, where the version had it: a copy that is in sync, and a rotation in its overlap. */
  automation?: { sync: { recordId: string }; rotation: { rotationId: string } };
  /** Messages that had gone out. */
  told: { mails: number; posts: number };
  /** Every row by table, as the SDK reads it without converting types. */
  tables: Record<string, object[]>;
  /** Every message's text by queue. */
  queues: Record<string, string[]>;
  /** The stand-in cloud's files. */
  cloud: Record<string, string>;
}
