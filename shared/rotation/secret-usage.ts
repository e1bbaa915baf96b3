/**
 * Reads and sign-ins, from logs, with secrets that a rotation replaces. An empty log does not prove that a secret is unused.
 */
export interface SecretUsage {
  /**
   * Returns the identities that read another version of the secret since `since` and did not read `version` afterwards, each
   * with its last such read.
   */
  readersOfOldVersion(written: {
    vaultName: string;
    secretName: string;
    version: string;
    since: Date;
  }): Promise<OldVersionRead[]>;
  /** Returns the last logged sign-in with a credential of an application. */
  lastSignIn(credential: { appId: string; keyId: string }): Promise<Date | undefined>;
  /** Returns sentences that name the log workspaces that can't be read now, so that sign-ins may be missing. */
  unreadSignIns(): Promise<string[]>;
}

export interface OldVersionRead {
  /** Name of the caller, or its ID. */
  caller: string;
  version: string;
  at: Date;
}

/** Used if no log workspace is configured. */
export const noLogs: SecretUsage = {
  readersOfOldVersion: async () => [],
  lastSignIn: async () => undefined,
  unreadSignIns: async () => [],
};
