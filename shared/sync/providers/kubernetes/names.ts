/** Names of namespaces: https://kubernetes.io/docs/concepts/overview/working-with-objects/names */
export const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
/** Names of Secrets, from the same page. */
const SUBDOMAIN = /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/;
/** Keys of a Secret's data: https://kubernetes.io/docs/concepts/configuration/secret */
const KEY = /^[-._a-zA-Z0-9]{1,253}$/;

const DEFAULT_KEY = "value";

/** Target names: `name/key`, or `name` for the key `value`. */
export function secretAndKey(name: string): { secret: string; key: string } {
  const [secret = "", key = DEFAULT_KEY] = name.split("/");
  return { secret, key };
}

/** Checks a target name. Returns the problem, or undefined. */
export function nameProblem(name: string): string | undefined {
  const [secret = "", key, ...more] = name.split("/");
  if (more.length > 0) return "must be the name of a Secret, or name/key";
  if (secret.length > 253 || !SUBDOMAIN.test(secret) || secret.includes("..")) {
    return "must name a Secret with 1 to 253 lower-case letters, digits, - and .";
  }
  if (key !== undefined && (!KEY.test(key) || key.startsWith(".."))) {
    return "must have a key of 1 to 253 letters, digits and any of -._";
  }
  return undefined;
}

/**
 * Maps all keys of a Secret to one name, because a record owns the whole Secret. Otherwise one record would remove the key that
 * another one wrote.
 */
export const comparableName = (name: string): string => secretAndKey(name).secret;
