/** What logs have seen of secrets that a rotation replaces. That a log shows nothing proves nothing. */
export interface SecretUsage {
  /**
   * Who read another version of a secret than this one since an instant, and has not read this one after that; of each the
   * last such read.
   */
  readersOfOldVersion(written: {
    vaultName: string;
    secretName: string;
    version: string;
    since: Date;
  }): Promise<OldVersionRead[]>;
  /** The last sign-in with a credential of an application that a log has. */
  lastSignIn(credential: { appId: string; keyId: string }): Promise<Date | undefined>;
  /** Why sign-ins may be missing, as sentences: workspaces that have them, or may have, and that can't be read now. */
  unreadSignIns(): Promise<string[]>;
}

export interface OldVersionRead {
  /** The caller's name, or its id. */
  caller: string;
  version: string;
  at: Date;
}

/** No log is named. */
export const noLogs: SecretUsage = {
  readersOfOldVersion: async () => [],
  lastSignIn: async () => undefined,
  unreadSignIns: async () => [],
};
