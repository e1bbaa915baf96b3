/** The names of a pair of keys of an Azure resource, or of two users of a database server, the same in all views. */
import type { Schemas } from "../api/client.ts";
import { isolated } from "./isolated.ts";

type Credential = Schemas["RotationCredential"];

/** Kinds of database logins. All other kinds are those of resources with keys. */
export const LOGIN_KINDS = { postgresqlLogin: "PostgreSQL login" } as const satisfies Partial<
  Record<Credential["kind"], string>
>;

/**
 * Returns the texts of a rotation that differ from those of a client secret. Undefined if it replaces neither a key nor a login.
 *
 * @param keyKind - Kind of the key or the login. Null for other rotations.
 */
export function textsOfKind<T>(keyKind: string | null, ofKey: T, ofLogin: T): T | undefined {
  if (keyKind === null) return undefined;
  return Object.hasOwn(LOGIN_KINDS, keyKind) ? ofLogin : ofKey;
}

/** Returns the name of a pair: the resource and its keys or users, such as `stpayments (key1, key2)`. */
export const credentialTitle = ({ resourceName, keys }: Pick<Credential, "resourceName" | "keys">): string =>
  `${isolated(resourceName)} (${keys.join(", ")})`;

/** Returns the key or user of the pair that no vault secret stores. Undefined if vault secrets store both. */
export const unusedKey = ({ keys, keyInUse }: Pick<Credential, "keys" | "keyInUse">): string | undefined =>
  keyInUse === null ? undefined : keys.find((name) => name !== keyInUse);

/** Returns why a pair can't be rotated if vault secrets store both. */
export const bothInUse = ({ kind }: Pick<Credential, "kind">): string | undefined =>
  textsOfKind(
    kind,
    "Vault secrets store both keys. Write the same key to all of them first.",
    "Vault secrets name both users. Write the same login to all of them first.",
  );

/**
 * Returns why a pair can't be rotated while a rotation has not ended: of any key of the resource, even of another pair, or of
 * the login.
 */
export const unfinished = ({ kind }: Pick<Credential, "kind">): string | undefined =>
  textsOfKind(
    kind,
    "A rotation of this resource is in progress. Only one can run at a time.",
    "A rotation of this login is in progress. Only one can run at a time.",
  );

/** Returns the filter of the history of rotations: of all keys of the resource, or of the login. */
export const historyFilter = ({
  issuer,
  credentialId,
  resourceId,
}: Pick<Credential, "issuer" | "credentialId" | "resourceId">): { credentialId: string } | { resourceId: string } =>
  issuer === "databaseLogin" ? { credentialId } : { resourceId };
