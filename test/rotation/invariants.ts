import { TableClient } from "@azure/data-tables";
import { expect } from "vitest";
import { isOver, type RotationRecord } from "../../shared/rotation/rotation.ts";
import { VAULT, type World } from "./world.ts";

interface Rotated {
  appId: string;
  places: string[];
  oldValue: string;
}

/** Invariants after every rotation, whatever happened. */
export async function holds(world: World, app: Rotated, row: RotationRecord): Promise<void> {
  const { control } = world.cloud;
  const secrets = control.directory.secrets(app.appId);
  const made = row.attempts.flatMap(({ keyId }) => keyId ?? []);
  const named = [row.oldKeyId, ...(row.removeExpired ? [row.removeExpired] : []), ...made];
  for (const { keyId, removedAt, madeBy, displayName } of secrets) {
    const what = `${keyId} (${displayName})`;
    if (removedAt !== undefined) expect(named, `removed: ${what}`).toContain(keyId);
    else if (madeBy === "graph") expect([row.newKeyId], `lives: ${what}`).toContain(keyId);
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
  const held = control.items("kv-lifecycle-service", "secrets").filter(({ name }) => name.includes(row.rotationId));
  expect(held).toEqual([]);
  expect(await world.start().unfinishedOf(app.appId)).toBeUndefined();
}

/** No value is in a log, a row, a message or an entry of the audit log. */
export async function keepsSecrets(world: World, connectionString: string, values: readonly string[]): Promise<void> {
  const options = { allowInsecureConnection: true };
  const rows: unknown[] = [];
  for await (const row of TableClient.fromConnectionString(connectionString, "Rotations", options).listEntities()) {
    rows.push(row);
  }
  expect(rows.length).toBeGreaterThan(0);
  const everything = JSON.stringify([rows, world.log.lines, world.sent, world.events]);
  for (const value of values) expect(everything).not.toContain(value);
}
