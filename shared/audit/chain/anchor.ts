import * as z from "zod";
import type { ServiceKeyVault } from "../../platform/azure/service-key-vault.ts";
import { sha256 } from "../canonical.ts";
import { isIntervalName } from "../interval.ts";
import { isPlausible } from "./chain.ts";
import { Beginning, DigestName } from "./digest.ts";

/**
 * The anchor: a copy of the audit log's newest digest and of its beginning, stored outside the tables in the service's own key
 * vault. (A digest is the signed hash of ten minutes of entries. Each digest names the previous one, so the digests form a
 * chain.) Sealing writes the anchor after each run, and verification compares it with the tables.
 */

/** The content of the anchor. */
export const AnchorState = DigestName.extend({ beginning: Beginning.optional() });
export type AnchorState = z.infer<typeof AnchorState>;

/**
 * Reads and writes the anchor, where someone who can change the tables can't change it. So the deletion of the newest or oldest
 * digests with their entries is detected.
 */
export interface Anchor {
  /** Returns the anchor. Undefined before the first write; `unreadable` if the stored value was not written by `write`. */
  read(): Promise<AnchorState | "unreadable" | undefined>;
  write(state: AnchorState): Promise<void>;
}

/** Name of the secret that an earlier version used. Several deployments with one key vault shared it. */
const SHARED_SECRET = "audit-newest-digest";

/**
 * Returns the name of the secret whose tags contain a deployment's anchor. The name contains that of the storage account,
 * because the log is stored there, or its hash if a secret's name can't contain it.
 */
export function anchorSecret(storageAccount: string): string {
  const name = /^[0-9a-zA-Z-]{1,60}$/.test(storageAccount)
    ? storageAccount
    : sha256(storageAccount).replace(/[^0-9a-zA-Z]/g, "");
  return `${SHARED_SECRET}-${name}`;
}

/** The anchor as tags, which are texts. A number of up to nine digits is enough for 19,000 years of digests. */
const Tags = z.object({
  number: z
    .string()
    .regex(/^\d{1,9}$/)
    .transform(Number),
  interval: z.string().refine(isIntervalName),
  hash: z.string(),
  beginning: z.string().refine(isIntervalName).optional(),
  beginningHash: z.string().optional(),
});

/**
 * Returns the anchor of the deployment with that storage account. Before the deployment's first write, `read` returns the
 * anchor that an earlier version wrote.
 */
export function keyVaultAnchor(vault: ServiceKeyVault, storageAccount: string): Anchor {
  const secret = anchorSecret(storageAccount);
  return {
    async read() {
      const tags = (await vault.readTags(secret)) ?? (await vault.readTags(SHARED_SECRET));
      if (!tags) return undefined;
      const { data } = Tags.safeParse(tags);
      // Sealing continues after the anchor's number, so a number that no digest can have yet must not be used.
      if (!data || !isPlausible(data)) return "unreadable";
      const { number, interval, hash, beginning, beginningHash = null } = data;
      return {
        number,
        interval,
        hash,
        ...(beginning === undefined ? {} : { beginning: { interval: beginning, hash: beginningHash } }),
      };
    },
    async write({ number, interval, hash, beginning }) {
      await vault.writeTags(secret, {
        number: String(number),
        interval,
        hash,
        ...(beginning && { beginning: beginning.interval }),
        ...(beginning?.hash && { beginningHash: beginning.hash }),
      });
    },
  };
}
