/**
 * Keeps the inventory current during rotations. After each step that changed an application or a vault, the inventory reads
 * that one application or vault again, and does not wait for the next discovery or scan.
 */
export interface InventoryUpdates {
  /** Requests that the inventory reads an application again. Safe to repeat. */
  applicationChanged(application: ChangedApplication): Promise<void>;
  /** Requests that the inventory reads a vault again. Safe to repeat. */
  vaultChanged(vaultName: string): Promise<void>;
}

/** An application whose client secrets a rotation changed. */
export interface ChangedApplication {
  /** Client ID. */
  appId: string;
  objectId: string;
  /** Key ID of a client secret that was added. A read that does not show the secret is older than the change. */
  added?: string | undefined;
  /** Key ID of a client secret that was removed. A read that still shows the secret is older than the change. */
  removed?: string | undefined;
}
