import { readHeldCopy } from "./held-copies.ts";
import { issuerOf } from "./issuers/issuers.ts";
import { isVaultSecret } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";

/**
 * Returns the new value of a rotation, or undefined if the value is lost. Reads it from the held copy (the copy in the
 * service's own vault). The issuer may also find it elsewhere. An ended rotation has no held copy, which matters if its row is
 * restored from a backup.
 */
export async function readNewValue(context: StepContext): Promise<string | undefined> {
  const { record } = context;
  if (isVaultSecret(record)) return await readHeldCopy(context);
  return record.newKeyId === undefined ? undefined : await issuerOf(record).readValue(context, record.newKeyId);
}
