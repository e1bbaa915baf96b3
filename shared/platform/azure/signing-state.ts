import * as z from "zod";
import type { Clock } from "../runtime.ts";
import { MINUTE_MS, SECOND_MS } from "../time.ts";
import { CloudFailure } from "./failure.ts";
import { ROW_SIGNING } from "./row-keys.ts";
import type { ServiceKeyVault } from "./service-key-vault.ts";

/**
 * State of a store's signed rows: since when they are signed, and the sequences of their lists (row-lists.ts). The state is in the
 * key vault. Otherwise someone who can write only tables could make the service accept unsigned or older rows.
 */
export interface SigningState {
  /** Undefined before the first run of a version that signs all rows, and after the preparation of a rollback. */
  readonly signed?: {
    /** Time at which this version began to sign the rows, ISO 8601. */
    readonly at: string;
    /** Rows without a signature that the table service wrote up to this time are accepted, ISO 8601. */
    readonly unsignedUntil: string;
    /** False while instances of an earlier version may still write rows. */
    readonly complete: boolean;
  };
  /** The sequences of each table's lists. */
  readonly sequences: Readonly<Record<string, readonly number[]>>;
}

/** Reads and writes the state, in the tags of a secret of the service's own key vault. The methods throw `CloudFailure`. */
export interface SigningStates {
  read(): Promise<SigningState>;
  write(state: SigningState): Promise<void>;
  /**
   * Adds this store to the list of stores whose rows the vault's key signs, and returns the other stores of the list. Rows can be
   * copied between stores that share a key. Costs one request, and two more if the store is new.
   *
   * @returns `registered`: true if the store was in the list before this call, or if the list is full. If false, call it again:
   *   another store that registers at the same time may replace the list, and before the first signed row there is no key.
   */
  registerStore(): Promise<{ others: string[]; registered: boolean }>;
  /**
   * Returns `unsignedUntil` in milliseconds since 1970, or undefined before the rows are signed. A process asks the vault until
   * it knows the time, at most every 30 seconds, and then never again.
   */
  unsignedUntil(): Promise<number | undefined>;
}

/** Time for which a process assumes that the rows are still not signed. */
const ABSENT_CACHE_MS = 30 * SECOND_MS;
/** Time after `signed.at` in which instances of an earlier version may still write rows without a signature. */
export const UNSIGNED_GRACE_MS = 15 * MINUTE_MS;

/** Tag of the signing key. Its value is the list of the stores' storage accounts, separated by spaces. */
const STORES = "stores";
/** Maximum length of a tag's value. */
const MAX_TAG = 256;

/**
 * Prefix of the tag with the sequence numbers of a table's lists, joined by dots. 16 numbers of up to 15 digits have 255
 * characters.
 */
const LISTS = "lists-";
const Tags = z.looseObject({
  signedAt: z.iso.datetime().optional(),
  unsignedUntil: z.iso.datetime().optional(),
  complete: z.enum(["true", "false"]).optional(),
});

/** @param storageAccount - Name of the store's account, because several deployments may share a vault. */
export function keyVaultSigningStates(vault: ServiceKeyVault, storageAccount: string, clock: Clock): SigningStates {
  const secret = `signed-rows-${storageAccount.replace(/[^0-9a-zA-Z]/g, "-").slice(0, 60)}`;
  let cachedUnsignedUntil: number | undefined;
  let lastReadAt: number | undefined;

  async function read(): Promise<SigningState> {
    const { data: tags } = Tags.safeParse((await vault.readTags(secret)) ?? {});
    if (!tags)
      throw new CloudFailure(
        "badResponse",
        `The tags of the secret ${secret} in the service's key vault are invalid.`,
        {
          remedy: "Restore the tags of an earlier day, or delete the secret and run: npm run store -- sign --accept",
        },
      );
    const { signedAt, unsignedUntil, complete } = tags;
    const lists = Object.entries(tags).filter(([name]) => name.startsWith(LISTS));
    const sequences = Object.fromEntries(
      lists.map(([name, numbers]) => [name.slice(LISTS.length), String(numbers).split(".").map(Number)]),
    );
    if (signedAt === undefined || unsignedUntil === undefined) return { sequences };
    cachedUnsignedUntil = Date.parse(unsignedUntil);
    return { signed: { at: signedAt, unsignedUntil, complete: complete === "true" }, sequences };
  }

  return {
    read,

    async write({ signed, sequences }) {
      await vault.writeTags(secret, {
        ...(signed && {
          signedAt: signed.at,
          unsignedUntil: signed.unsignedUntil,
          complete: String(signed.complete),
        }),
        ...Object.fromEntries(Object.entries(sequences).map(([table, numbers]) => [LISTS + table, numbers.join(".")])),
      });
      cachedUnsignedUntil = signed && Date.parse(signed.unsignedUntil);
    },

    async registerStore() {
      const tags = await vault.readTags(ROW_SIGNING);
      // The first signed row creates the key.
      if (!tags) return { others: [], registered: false };
      const stores = new Set((tags[STORES] ?? "").split(" ").filter(Boolean));
      const text = [...stores, storageAccount].join(" ");
      // A tag that is full can't name the store.
      const registered = stores.has(storageAccount) || text.length > MAX_TAG;
      if (!registered) await vault.writeTags(ROW_SIGNING, { ...tags, [STORES]: text });
      stores.delete(storageAccount);
      return { others: [...stores], registered };
    },

    async unsignedUntil() {
      if (cachedUnsignedUntil !== undefined) return cachedUnsignedUntil;
      const now = clock.now().getTime();
      if (lastReadAt !== undefined && now - lastReadAt < ABSENT_CACHE_MS) return undefined;
      await read();
      lastReadAt = now;
      return cachedUnsignedUntil;
    },
  };
}
