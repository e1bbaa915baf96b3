import type { Turn } from "./turn.ts";

const CONTENT_TYPE = "application/vnd.credential-lifecycle.rotation-secret";

/** The secret of the service's own key vault that holds a new client secret until the rotation is over. */
export const holdingName = (rotationId: string, keyId: string): string => `rotation-${rotationId}-${keyId}`;

/** Holds a value that nobody will be shown again. */
export async function hold({ record, world }: Turn, keyId: string, value: string): Promise<void> {
  const { rotationId, appId } = record;
  const tags = { "rotation-id": rotationId, "entra-app-id": appId, "entra-key-id": keyId };
  await world.own.writeSecret(holdingName(rotationId, keyId), value, CONTENT_TYPE, tags);
}

/** The value of the new secret; undefined when somebody took it away. */
export async function heldValue({ record, world }: Turn): Promise<string | undefined> {
  const { rotationId, newKeyId } = record;
  if (newKeyId === undefined) return undefined;
  return await world.own.readSecret(holdingName(rotationId, newKeyId));
}
