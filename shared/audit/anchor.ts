import type { ServiceKeyVault } from "../azure/service-key-vault.ts";
import { DigestName } from "./chain.ts";

/** The newest digest's name, kept where whoever can change the tables can't: so that cutting off the tail is found. */
export interface Anchor {
  /** Undefined before the first write. */
  read(): Promise<DigestName | undefined>;
  write(digest: DigestName): Promise<void>;
}

/** The secret of the service's own key vault whose tags are the anchor. */
export const ANCHOR_SECRET = "audit-newest-digest";

export function keyVaultAnchor(vault: ServiceKeyVault): Anchor {
  return {
    async read() {
      const tags = await vault.readTags(ANCHOR_SECRET);
      return tags && DigestName.parse({ ...tags, number: Number(tags.number) });
    },
    async write({ number, interval, hash }) {
      await vault.writeTags(ANCHOR_SECRET, { number: String(number), interval, hash });
    },
  };
}
