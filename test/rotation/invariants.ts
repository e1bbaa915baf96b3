import { TableClient } from "@azure/data-tables";
import { expect } from "vitest";
import { isOver, type RotationRecord } from "../../shared/rotation/rotation.ts";
import { VAULT, type World } from "./world.ts";

interface RotatedApp {
  appId: string;
  places: string[];
  oldValue: string;
}

/**
 * Checks what must be true after every rotation, also a failed one:
 * - Only client secrets that the rotation may remove were removed: the old one, an expired one (`removeExpired`), and those that
 *   it created itself.
 * - Each vault secret always stored a value that signs in.
 * - A rotation that needs attention explains what was done, what is safe, and what to do next.
 * - After the end, no copy of a value remains in the service's own vault.
 */
export async function expectRotationInvariants(world: World, app: RotatedApp, row: RotationRecord): Promise<void> {
  const { control } = world.cloud;
  const secrets = control.directory.secrets(app.appId);
  const createdKeyIds = row.attempts.flatMap(({ keyId }) => keyId ?? []);
  const removableKeyIds = [row.oldKeyId, ...(row.removeExpired ? [row.removeExpired] : []), ...createdKeyIds];
  for (const { keyId, removedAt, madeBy, displayName } of secrets) {
    const secretLabel = `${keyId} (${displayName})`;
    if (removedAt !== undefined) expect(removableKeyIds, `removed: ${secretLabel}`).toContain(keyId);
    // Only rotations create secrets through Microsoft Graph. Of these, only the rotation's new secret may remain.
    else if (madeBy === "graph") expect([row.newKeyId], `not removed: ${secretLabel}`).toContain(keyId);
  }
  for (const place of app.places) {
    const value = control.secretValue(VAULT, place)!;
    expect(control.directory.signsIn(app.appId, value), `${place} signs in`).toBe(true);
  }
  expect(control.directory.gaps().filter(({ appId }) => appId === app.appId)).toEqual([]);
  if (row.status === "needsAttention") {
    const { done, safe, next } = row.attention!;
    for (const text of [done, safe, next]) expect(text).toMatch(/\w{3}/);
  }
  if (!isOver(row.status)) return;
  const storedCopies = control
    .items("kv-lifecycle-service", "secrets")
    .filter(({ name }) => name.includes(row.rotationId));
  expect(storedCopies).toEqual([]);
  expect(await world.start().unfinishedOf(app.appId)).toBeUndefined();
}

/** Checks that no log line, rotation row, queue message or audit entry contains one of the secret values. */
export async function expectNoValueStored(
  world: World,
  connectionString: string,
  values: readonly string[],
): Promise<void> {
  const options = { allowInsecureConnection: true };
  const rows: unknown[] = [];
  for await (const row of TableClient.fromConnectionString(connectionString, "Rotations", options).listEntities()) {
    rows.push(row);
  }
  expect(rows.length).toBeGreaterThan(0);
  const everything = JSON.stringify([rows, world.log.lines, world.sent, world.events]);
  for (const value of values) expect(everything).not.toContain(value);
}
