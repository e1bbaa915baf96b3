/**
 * The storage account of an earlier version of the service, and the API's responses of that version. Created by record.ts and read
 * by upgrade.test.ts. The fields are those of the recorded files in test/fixtures.
 */
export interface Recording {
  /** ISO 8601. */
  recordedAt: string;
  /** Signing keys that were created for the recording. */
  environment: Record<"JWT_SIGNING_KEYS" | "AUDIT_SIGNING_KEYS", string>;
  /**
   * Tokens, valid for an hour from `recordedAt`; `ended` was revoked. `api` is the administrator's API token, if the version
   * had them.
   */
  tokens: { admin: string; reader: string; ended: string; api?: string };
  /** The cookie of the reader's browser session, if the version had sessions. */
  session?: string;
  /** The scan that was interrupted; "" if the response to its start was lost. */
  scanId: string;
  /** Bodies of the API's responses before the kill. */
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
  /** A sync record that is in sync and a rotation in its overlap period, if the version had these features. */
  automation?: { sync: { recordId: string }; rotation: { rotationId: string } };
  /** Number of mails and webhook posts that were sent before the kill. */
  told: { mails: number; posts: number };
  /** Every row by table, as the SDK reads it without type conversion. */
  tables: Record<string, object[]>;
  /** Every message's text by queue. */
  queues: Record<string, string[]>;
  /** The simulated cloud's files. */
  cloud: Record<string, string>;
}
