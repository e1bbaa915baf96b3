/** The store of an earlier version, and the API responses of that version; created by record.ts. */
export interface Recording {
  /** ISO 8601. */
  recordedAt: string;
  /** Signing keys made for the recording only. */
  environment: Record<"JWT_SIGNING_KEYS" | "AUDIT_SIGNING_KEYS", string>;
  /**
   * Tokens, valid for an hour from `recordedAt`; `ended` was revoked. `api` is the administrator's API token, if the version
   * had them.
   */
  tokens: { admin: string; reader: string; ended: string; api?: string };
  /** The cookie of the reader's session, if the version had them. */
  session?: string;
  /** The scan that was interrupted; "" if the response to its start was lost. */
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
  /** Licensed work, if the version had it: a copy that is in sync, and a rotation in its overlap period. */
  automation?: { sync: { recordId: string }; rotation: { rotationId: string } };
  /** Sent messages. */
  told: { mails: number; posts: number };
  /** Every row by table, as the SDK reads it without type conversion. */
  tables: Record<string, object[]>;
  /** Every message's text by queue. */
  queues: Record<string, string[]>;
  /** The simulated cloud's files. */
  cloud: Record<string, string>;
}
