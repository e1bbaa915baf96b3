import { readHeldCopy } from "./held-copies.ts";
import { issuerOf } from "./issuers/issuers.ts";
import { isVaultSecret } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";

/**
 * Returns the new value of a rotation, for a step that writes it to a place or a consumer. Undefined if the value is lost.
 *
 * The held copy is the copy in the service's own key vault. A vault secret has its new value only there. A client secret or a
 * resource key is read by its issuer: from the held copy, else from a place that has the new client secret, or from the list of
 * the resource's keys. The held copy is missing if someone deleted it, or if the rotation had ended before the tables were
 * restored from a backup.
 */
export async function readNewValue(context: StepContext): Promise<string | undefined> {
  const { record } = context;
  if (isVaultSecret(record)) return await readHeldCopy(context);
  // Without `newKeyId`, no new credential was created yet.
  return record.newKeyId === undefined ? undefined : await issuerOf(record).readValue(context, record.newKeyId);
}
