import { createHmac } from "node:crypto";
import type { Randomness } from "../../platform/runtime.ts";
import { readConnectionString } from "./connection-strings.ts";
import type { KeyKind, ListedKey } from "./kinds.ts";
import { findHeldKey } from "./matching.ts";

/** A key of a resource that a value contains. */
export interface FoundKey {
  resourceId: string;
  kind: KeyKind;
  keyName: string;
}

/** The keys of many resources, as HMACs with a secret that is only in memory. A value can be looked up, but not be read back. */
export interface KeyIndex {
  add(resourceId: string, kind: KeyKind, keys: readonly ListedKey[]): void;
  /** Whether the keys of a resource were added. */
  has(resourceId: string): boolean;
  readonly size: number;
  /** IDs of the resources whose keys were added. */
  resourceIds(): string[];
  /**
   * Returns the key that a value is or, as a connection string, contains. Undefined if it contains none, names another resource,
   * or if keys of several resources are equal, which Azure never creates.
   */
  find(value: string): FoundKey | undefined;
}

export function createKeyIndex(randomness: Pick<Randomness, "bytes">): KeyIndex {
  const secret = randomness.bytes(32);
  const hashOf = (value: string) => createHmac("sha256", secret).update(value).digest("base64url");
  const keys = new Map<string, FoundKey[]>();
  /** The resources' IDs by their lower case. */
  const resources = new Map<string, string>();

  return {
    add(resourceId, kind, listed) {
      resources.set(resourceId.toLowerCase(), resourceId);
      const names = new Set(kind.pairs.flat());
      for (const { name, value } of listed) {
        if (!names.has(name)) continue;
        const key = { resourceId, kind, keyName: name };
        const hash = hashOf(value);
        const equalKeys = keys.get(hash);
        if (equalKeys === undefined) keys.set(hash, [key]);
        else equalKeys.push(key);
      }
    },

    has: (resourceId) => resources.has(resourceId.toLowerCase()),

    get size() {
      return resources.size;
    },

    resourceIds: () => [...resources.values()],

    find(value) {
      const texts = new Set([value, readConnectionString(value)?.key ?? value]);
      // The hash finds the key. `findHeldKey` then checks that a connection string also names the key's resource.
      const matching = [...texts].flatMap((text) =>
        (keys.get(hashOf(text)) ?? []).filter(({ resourceId, keyName }) => {
          const key = { name: keyName, id: keyName, value: text };
          return findHeldKey(value, resourceId, [key]).held !== undefined;
        }),
      );
      return matching.length === 1 ? matching[0] : undefined;
    },
  };
}
