import * as z from "zod";
import { bucketOf } from "../inventory/holder.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { APPS, AppFences, fenceKey, STATE_KEY, States } from "./application.ts";
import { contentsFromChanges, type DiscoverDeps, writeContent } from "./discover.ts";

/** Message about an application to read again, because this service has changed its client secrets. */
export const ApplicationRefresh = z.object({
  /** Client ID and object ID. */
  appId: z.string(),
  objectId: z.string(),
  /** Key ID of a client secret that was added, and of one that was removed. A read that contradicts them is too old. */
  added: z.string().optional(),
  removed: z.string().optional(),
  /** Number of earlier reads that failed or were too old. */
  attempts: z.int().min(0),
});
export type ApplicationRefresh = z.infer<typeof ApplicationRefresh>;

/** Time limit of all requests to Microsoft Graph. */
const READING_TIMEOUT_MS = MINUTE_MS;

/**
 * Reads one application from Microsoft Graph and writes it and its credentials, as a discovery of changes does.
 *
 * Applications are written in buckets, by the first digit of the client ID. Safe to repeat: the bucket's own row is written
 * last, so that the next discovery completes what a crash left. The bucket's fence is taken before the read. If another worker
 * takes it meanwhile, with data that may be newer, the writes fail.
 *
 * @returns Whether the directory shows the change. Replicas of the directory lag.
 * @throws {CloudFailure} if the application can't be read; {VaultBusy} or a conflict while another worker writes it.
 */
export async function refreshApplication(
  { appId, objectId, added, removed }: ApplicationRefresh,
  deps: DiscoverDeps,
): Promise<boolean> {
  const { tables, graph, clock, randomness } = deps;
  const state = await tables.get(States, APPS, STATE_KEY);
  // The first discovery will read all applications.
  if (state === undefined) return true;
  const now = clock.now();
  const worker = `refresh/${appId}/${randomness.ulid(now)}`;
  const bucket = bucketOf(appId);
  const fence = tables.fence(AppFences, APPS, fenceKey(bucket), { owner: worker, etag: undefined });
  await fence.take();
  const signal = AbortSignal.timeout(READING_TIMEOUT_MS);
  const app = await graph.findApplication({ objectId }, signal);
  const has = (keyId: string) => app?.passwords.some((password) => password.keyId === keyId) ?? false;
  // A replica that lags must not overwrite newer rows. The caller repeats the message.
  const isShown = (added === undefined || has(added)) && (removed === undefined || !has(removed));
  if (!isShown) return false;
  const content = (await contentsFromChanges(new Map([[objectId, app]]), signal, deps)).get(bucket);
  // The application is neither in the directory nor stored.
  if (content === undefined) return true;
  const changes = await writeContent(bucket, content, fence, {
    state,
    now: now.toISOString(),
    worker,
    confirm: () => fence.advance(),
    deps,
  });
  // Requests an evaluation of alerts.
  if (changes.added + changes.updated + changes.removed > 0) await deps.ended();
  return true;
}
