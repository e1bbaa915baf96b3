import * as z from "zod";
import type { ServiceKeyVault } from "../../platform/azure/service-key-vault.ts";
import { sha256 } from "../canonical.ts";
import { isIntervalName } from "../interval.ts";
import { isPlausible } from "./chain.ts";
import { Beginning, DigestName } from "./digest.ts";

/** What is remembered of the chain: its newest digest, and where it begins. */
export const Remembered = DigestName.extend({ beginning: Beginning.optional() });
export type Remembered = z.infer<typeof Remembered>;

/**
 * The ends of the chain, kept where whoever can change the tables can't: so that cutting off the newest digests with
 * their entries is found, and the oldest ones too.
 */
export interface Anchor {
  /** Undefined before the first write; `unreadable` when it holds something else than `write` wrote. */
  read(): Promise<Remembered | "unreadable" | undefined>;
  write(remembered: Remembered): Promise<void>;
}

/** The secret of an earlier version, which several deployments with one key vault shared. */
const SHARED_SECRET = "audit-newest-digest";

/** The secret whose tags are a deployment's anchor: named by its storage account, since that is what the log lies in. */
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

/** The anchor of the deployment with that storage account. Until its first write, what an earlier version remembered. */
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
