/** The names of a pair of keys of an Azure resource, the same in all views. */
import type { Schemas } from "../api/client.ts";
import { isolated } from "./isolated.ts";

type Credential = Schemas["RotationCredential"];

/** Returns the name of a pair of keys: the resource and its keys, such as `stpayments (key1, key2)`. */
export const credentialTitle = ({ resourceName, keys }: Pick<Credential, "resourceName" | "keys">): string =>
  `${isolated(resourceName)} (${keys.join(", ")})`;

/** Returns the key of the pair that no vault secret stores. Undefined if vault secrets store both. */
export const unusedKey = ({ keys, keyInUse }: Pick<Credential, "keys" | "keyInUse">): string | undefined =>
  keyInUse === null ? undefined : keys.find((name) => name !== keyInUse);

/** Why a pair of keys can't be rotated if vault secrets store both. */
export const BOTH_IN_USE = "Vault secrets store both keys. Write the same key to all of them first.";

/** Why a pair of keys can't be rotated while a rotation of its resource has not ended, even if it is of another pair. */
export const UNFINISHED = "A rotation of this resource is in progress. Only one can run at a time.";
