import { DAY_MS, SECOND_MS } from "../../platform/time.ts";

// When the vault secrets that store a key were last read, as far as vault logs show it.

/** Reads of the secrets of one vault, from logs. Times are ISO 8601. */
export interface VaultReads {
  /** Time since when at least one current log has all events of the vault. Undefined if there is none. */
  completeSince: string | undefined;
  /** Time until which that log was read. Later reads are unknown. */
  completeUntil: string | undefined;
  /** Last read of each secret, by name in lower case. */
  lastReads: ReadonlyMap<string, string>;
  /** Secrets that this service copies to other stores, by name in lower case. Its own reads are not in `lastReads`. */
  synced: ReadonlySet<string>;
}

/** Returns the reads of a vault. Undefined if no log workspace is configured. */
export type ReadsOf = (vaultName: string) => Promise<VaultReads | undefined>;

/** Use of a key, by the vault secrets that store it. */
export interface KeyUsage {
  lastReadAt: string | undefined;
  /** Number of whole days in which no place was read, as complete logs prove. Undefined without such logs. */
  idleDays: number | undefined;
  /** Says what the logs show, in a sentence. */
  evidence: string;
}

/** Uses of a key that the logs of vaults never show. */
export const KEY_BLIND_SPOTS = ["heldCopies", "otherPlaces"] as const;
export const KEY_BLIND_SPOT_TEXTS: Record<(typeof KEY_BLIND_SPOTS)[number], string> = {
  heldCopies: "a program that read the key earlier can hold it without reading it again",
  otherPlaces: "the key can be used from places outside the compared vaults, and the other key of the pair too",
};

/**
 * Returns the use of a key. A key is idle only if complete logs prove it for each of its places, and not longer than each of them
 * stores it: a new vault secret has no reads yet.
 */
export function keyUsageOf(
  places: readonly { vaultName: string; secretName: string; createdOn?: number | undefined }[],
  reads: ReadonlyMap<string, VaultReads | undefined>,
): KeyUsage {
  const found = places.map(({ vaultName, secretName }) => {
    const vault = reads.get(vaultName.toLowerCase());
    const name = secretName.toLowerCase();
    const lastReadAt = vault?.lastReads.get(name);
    const { completeSince, completeUntil } = vault?.synced.has(name) ? {} : (vault ?? {});
    return { place: `${vaultName}/${secretName}`, lastReadAt, since: completeSince, until: completeUntil };
  });
  const lastReadAt = found
    .flatMap((one) => one.lastReadAt ?? [])
    .sort()
    .at(-1);
  const unproven = found.find(({ since, until }) => since === undefined || until === undefined);
  if (unproven !== undefined || found.length === 0) {
    const which = unproven === undefined ? "it" : unproven.place;
    const evidence = `Unknown: no complete log shows who reads ${which}. Send the audit events of the vault to a workspace in LOG_ANALYTICS_WORKSPACE_IDS. A secret that a sync record copies is never idle.`;
    return { lastReadAt, idleDays: undefined, evidence };
  }
  const createdAt = places.flatMap(({ createdOn }) =>
    createdOn === undefined ? [] : [new Date(createdOn * SECOND_MS).toISOString()],
  );
  // All places have a period here. The latest start, read or creation, and the earliest end, limit what is proven for all of them.
  const idleSince = [...createdAt, ...found.flatMap((one) => [one.since ?? "", one.lastReadAt ?? ""])].sort().at(-1)!;
  const idleUntil = found.map(({ until }) => until ?? "").sort()[0]!;
  const idleDays = Math.max(0, Math.floor((Date.parse(idleUntil) - Date.parse(idleSince)) / DAY_MS));
  const since = found
    .map((one) => one.since ?? "")
    .sort()
    .at(-1)!
    .slice(0, 10);
  const evidence =
    lastReadAt === undefined
      ? `No read of its vault secrets is in the logs, which are complete since ${since}.`
      : `The last logged read of its vault secrets was on ${lastReadAt.slice(0, 10)}. The logs are complete since ${since}.`;
  return { lastReadAt, idleDays, evidence };
}
