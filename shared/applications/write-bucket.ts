import { fingerprint } from "../inventory/asset.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { type Fence, type Operation, put, remove, type Tables } from "../platform/storage/tables.ts";
import {
  APPS,
  type ApplicationRecord,
  Applications,
  Buckets,
  bucketKey,
  bucketRange,
  idKey,
  nameKey,
  ObjectIds,
  objectKey,
} from "./application.ts";
import type { ReadApplication } from "./read-graph.ts";

// Reads and writes the rows of one bucket: the applications whose client ID starts with one hexadecimal digit. Writes use the
// bucket's fence, a row whose ETag each write requires, so that late requests of a crashed worker fail.

/**
 * Number of applications that are written in one transaction, which can have at most 100 operations. The fence is one
 * operation. Each application has at most five: its three new rows, and two old rows if its name and object ID changed. All
 * rows of an application are in the same transaction, so that a crash does not leave only some of them.
 */
const APPS_PER_TRANSACTION = 19;
/** Maximum size of a transaction's rows in characters of JSON: an application may have a thousand credentials. */
const TEXT_PER_TRANSACTION = 1_000_000;

/** Returns a hash of an application's data. */
export function hashOfApplication(app: ReadApplication): string {
  const { appId, objectId, kind, displayName, signInAudience, createdOn, owners, credentials, federated } = app;
  return fingerprint([
    [appId, objectId, kind, displayName, signInAudience ?? null, createdOn ?? null, federated ?? null],
    owners?.map((owner) => [
      owner.id,
      owner.displayName ?? null,
      owner.userPrincipalName ?? null,
      owner.mail ?? null,
    ]) ?? null,
    credentials.map(({ keyId, kind, of, displayName, hint, thumbprint, usage, otherKeyIds, startsOn, expiresOn }) => [
      [keyId, kind, of, displayName ?? null, hint ?? null, thumbprint ?? null],
      [usage ?? null, startsOn ?? null, expiresOn ?? null],
      // Absent unless it has a value, so that hashes of earlier versions stay.
      ...(otherKeyIds ? [otherKeyIds] : []),
    ]),
  ]);
}

/**
 * Returns a hash of a bucket's applications. If it equals the stored hash, a run reads and writes no row of the bucket's
 * applications.
 */
export const contentsOf = (apps: ReadonlyMap<string, ReadApplication>): string =>
  fingerprint([...apps.values()].map((app) => [app.appId, hashOfApplication(app)]).sort(byFirst));

const byFirst = (a: string[], b: string[]): number => (a[0]! < b[0]! ? -1 : 1);

/** Returns a bucket's stored applications by client ID. Costs one request for each 1,000. */
export async function readBucket(tables: Tables, bucket: string): Promise<Map<string, ApplicationRecord>> {
  const stored = new Map<string, ApplicationRecord>();
  for await (const rows of tables.pages(Applications, bucketRange(bucket)))
    for (const row of rows) stored.set(row.appId, withoutKeys(row));
  return stored;
}

/** Numbers of changes in a bucket. */
export interface BucketChanges {
  added: number;
  updated: number;
  removed: number;
}

/**
 * Writes the applications of a bucket that differ from the stored ones. The bucket's own row is written later, after the
 * credentials in the inventory.
 */
export async function writeApplications(
  fence: Fence,
  stored: ReadonlyMap<string, ApplicationRecord>,
  content: ReadonlyMap<string, ReadApplication>,
  now: string,
): Promise<BucketChanges> {
  const changes: BucketChanges = { added: 0, updated: 0, removed: 0 };
  let operations: Operation[] = [];
  let [appCount, textLength] = [0, 0];
  const writeOperations = async () => {
    if (operations.length > 0) await fence.write(operations);
    [operations, appCount, textLength] = [[], 0, 0];
  };
  const change = async (before: ApplicationRecord | undefined, after: ReadApplication | undefined) => {
    if (before && after && hashOfApplication(before) === hashOfApplication(after)) return;
    if (!before) changes.added++;
    else if (after) changes.updated++;
    else changes.removed++;
    const length = after ? JSON.stringify(after).length : 0;
    if (appCount === APPS_PER_TRANSACTION || textLength + length > TEXT_PER_TRANSACTION) await writeOperations();
    operations.push(...operationsFor(before, after, now));
    appCount++;
    textLength += length;
  };
  for (const [appId, before] of stored) await change(before, content.get(appId));
  for (const [appId, after] of content) if (!stored.has(appId)) await change(undefined, after);
  await writeOperations();
  return changes;
}

/** Returns the operations that change an application's rows: by client ID, by name and by object ID. */
function operationsFor(
  before: ApplicationRecord | undefined,
  after: ReadApplication | undefined,
  now: string,
): Operation[] {
  const operations: Operation[] = [];
  if (before && (!after || nameKey(before) !== nameKey(after))) operations.push(remove(Applications, nameKey(before)));
  if (before && before.objectId !== after?.objectId) operations.push(remove(ObjectIds, objectKey(before.objectId)));
  if (!after) return [...operations, remove(Applications, idKey(before!.appId))];
  const record: ApplicationRecord = {
    ...after,
    ...(before?.details ? { details: before.details } : {}),
    firstSeenAt: before?.firstSeenAt ?? now,
  };
  return [
    ...operations,
    put(Applications, nameKey(record), record),
    put(Applications, idKey(record.appId), record),
    ...(before?.objectId === record.objectId
      ? []
      : [put(ObjectIds, objectKey(record.objectId), { appId: record.appId })]),
  ];
}

/** Writes the bucket's own row with the hash, after which the next run finds the bucket unchanged. */
export async function writeBucketRow(
  fence: Fence,
  bucket: string,
  apps: ReadonlyMap<string, ReadApplication>,
): Promise<void> {
  const credentials = [...apps.values()].reduce((sum, app) => sum + app.credentials.length, 0);
  await fence.write([put(Buckets, bucketKey(bucket), { contents: contentsOf(apps), apps: apps.size, credentials })]);
}

/** Returns the client ID of the stored application with this object ID. Costs one request. */
export async function appIdOf(tables: Tables, objectId: string): Promise<string | undefined> {
  return (await tables.get(ObjectIds, APPS, objectKey(objectId)))?.appId;
}
