import * as z from "zod";
import type { ServiceKeyVault } from "../../platform/azure/service-key-vault.ts";
import { sha256 } from "../canonical.ts";
import { isIntervalName } from "../interval.ts";
import { isPlausible } from "./chain.ts";
import { Beginning, DigestName } from "./digest.ts";

/** The part of the chain that is stored outside the tables: its newest digest and its beginning. */
export const AnchorState = DigestName.extend({ beginning: Beginning.optional() });
export type AnchorState = z.infer<typeof AnchorState>;

/**
 * Stores the newest digest and the beginning of the chain where someone who can change the tables can't change them. So the
 * deletion of the newest or oldest digests with their entries is detected.
 */
export interface Anchor {
  /** Returns the anchor. Undefined before the first write; `unreadable` if the stored value was not written by `write`. */
  read(): Promise<AnchorState | "unreadable" | undefined>;
  write(remembered: AnchorState): Promise<void>;
}

/** Name of the secret of an earlier version, which several deployments with one key vault shared. */
const SHARED_SECRET = "audit-newest-digest";

/**
 * Name of the secret whose tags contain a deployment's anchor. It contains the name of the storage account, because the log is
 * stored there.
 */
export function anchorSecret(storageAccount: string): string {
  const name = /^[0-9a-zA-Z-]{1,60}$/.test(storageAccount)
    ? storageAccount
    : sha256(storageAccount).replace(/[^0-9a-zA-Z]/g, "");
  return `${SHARED_SECRET}-${name}`;
}

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
 * Returns the anchor of the deployment with that storage account. Before its first write it reads the anchor of an earlier
 * version.
 */
export function keyVaultAnchor(vault: ServiceKeyVault, storageAccount: string): Anchor {
  const secret = anchorSecret(storageAccount);
  return {
    async read() {
      const tags = (await vault.readTags(secret)) ?? (await vault.readTags(SHARED_SECRET));
      if (!tags) return undefined;
      const { data } = Tags.safeParse(tags);
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
