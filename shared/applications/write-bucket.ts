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

/**
 * Applications whose rows change in one transaction, each with at most five operations, plus the fence. All rows of an
 * application change together, so that a crash never leaves part of them.
 */
const APPS_PER_TRANSACTION = 19;
/** Maximum text size of a transaction's rows: an application may have a thousand credentials. */
const TEXT_PER_TRANSACTION = 1_000_000;

/** Hash of an application's data in a fixed order of members. */
export function hashOfApplication(app: ReadApplication): string {
  const { appId, objectId, kind, displayName, signInAudience, createdOn, owners, credentials, federated } = app;
  return fingerprint([
    [appId, objectId, kind, displayName, signInAudience ?? null, createdOn ?? null, federated ?? null],
    owners?.map((one) => [one.id, one.displayName ?? null, one.userPrincipalName ?? null, one.mail ?? null]) ?? null,
    credentials.map((one) => [
      [one.keyId, one.kind, one.of, one.displayName ?? null, one.hint ?? null, one.thumbprint ?? null],
      [one.usage ?? null, one.startsOn ?? null, one.expiresOn ?? null],
    ]),
  ]);
}

/** Hash over a bucket. If it is equal, no row of the bucket's applications is read or written. */
export const contentsOf = (apps: ReadonlyMap<string, ReadApplication>): string =>
  fingerprint([...apps.values()].map((app) => [app.appId, hashOfApplication(app)]).sort(byFirst));

const byFirst = (a: string[], b: string[]): number => (a[0]! < b[0]! ? -1 : 1);

/** Returns a bucket's stored applications. One request per 1,000. */
export async function readBucket(tables: Tables, bucket: string): Promise<Map<string, ApplicationRecord>> {
  const standing = new Map<string, ApplicationRecord>();
  for await (const rows of tables.pages(Applications, bucketRange(bucket)))
    for (const row of rows) standing.set(row.appId, withoutKeys(row));
  return standing;
}

/** Numbers of changes in a bucket. */
export interface BucketChanges {
  added: number;
  updated: number;
  removed: number;
}

/**
 * Writes the differences under the bucket's fence. The bucket's own row is written later, after the credentials in the
 * inventory.
 */
export async function writeApplications(
  fence: Fence,
  standing: ReadonlyMap<string, ApplicationRecord>,
  wanted: ReadonlyMap<string, ReadApplication>,
  now: string,
): Promise<BucketChanges> {
  const changes: BucketChanges = { added: 0, updated: 0, removed: 0 };
  let group: Operation[] = [];
  let [apps, text] = [0, 0];
  const flush = async () => {
    if (group.length > 0) await fence.write(group);
    [group, apps, text] = [[], 0, 0];
  };
  const change = async (before: ApplicationRecord | undefined, after: ReadApplication | undefined) => {
    if (before && after && hashOfApplication(before) === hashOfApplication(after)) return;
    if (!before) changes.added++;
    else if (after) changes.updated++;
    else changes.removed++;
    const length = after ? JSON.stringify(after).length : 0;
    if (apps === APPS_PER_TRANSACTION || text + length > TEXT_PER_TRANSACTION) await flush();
    group.push(...rowsOf(before, after, now));
    apps++;
    text += length;
  };
  for (const [appId, before] of standing) await change(before, wanted.get(appId));
  for (const [appId, after] of wanted) if (!standing.has(appId)) await change(undefined, after);
  await flush();
  return changes;
}

function rowsOf(before: ApplicationRecord | undefined, after: ReadApplication | undefined, now: string): Operation[] {
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

/** Writes the bucket's row under the fence, after which the next run finds nothing to write. */
export async function endBucket(
  fence: Fence,
  bucket: string,
  apps: ReadonlyMap<string, ReadApplication>,
): Promise<void> {
  const credentials = [...apps.values()].reduce((sum, app) => sum + app.credentials.length, 0);
  await fence.write([put(Buckets, bucketKey(bucket), { contents: contentsOf(apps), apps: apps.size, credentials })]);
}

/** Returns the client IDs of known applications with these object IDs. One request each. */
export async function appIdOf(tables: Tables, objectId: string): Promise<string | undefined> {
  return (await tables.get(ObjectIds, APPS, objectKey(objectId)))?.appId;
}
