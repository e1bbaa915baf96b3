import pMap from "p-map";
import type { ConsumerCheck } from "../consumer.ts";
import { expectedVersionOf, laterVersionOf, publicationOf } from "../expected-version.ts";
import {
  consumerKey,
  placesToRead,
  recheckProblems,
  storableConsumers,
  toRotationConsumer,
  withCurrentProblem,
} from "../plan-consumers.ts";
import type { RotationConsumer } from "../rotation.ts";
import type { StepContext } from "../step-context.ts";

// Functions that check which value the consumers (resources that use the secret) of a rotation have.

/** Number of consumers that are checked concurrently. */
const PARALLEL = 4;

/**
 * Returns the planned consumers and the consumers that started to use the written places since, each with its current ability to
 * use the secret (`brokenBefore`, `unclearBefore`). `unread` has sentences about known consumers that could not be read.
 */
export async function currentConsumers({
  deps,
  record,
}: StepContext): Promise<{ consumers: RotationConsumer[]; unread: string[] }> {
  const planned = record.consumers ?? [];
  const keys = new Set(planned.map(consumerKey));
  const { consumers, unread = [] } = await deps.consumers.findConsumers(placesToRead(record));
  const added = consumers.filter((one) => !keys.has(consumerKey(one)));
  const newConsumers = await pMap(added, (one) => withCurrentProblem(deps.consumers, toRotationConsumer(one, false)), {
    concurrency: PARALLEL,
  });
  // Reads only consumers again that could not use the secret (`brokenBefore`), or whose problem could pass (`unclearBefore`). The
  // latter are broken if they still have a problem.
  const updated = await recheckProblems(deps.consumers, [...planned, ...newConsumers]);
  return { consumers: storableConsumers(updated), unread };
}

/**
 * Returns whether the service can't see the value of a consumer: the consumer is `blind` (no API shows its value), or it stores a
 * copy of the value that this rotation has not refreshed. `actedAt` is the time of the refresh.
 */
export const isUncheckable = ({ how, copy, actedAt }: RotationConsumer): boolean =>
  how === "blind" || (copy === true && actedAt === undefined);

/** Checks which value a consumer has, compared with the expected version and a later one with the same value. */
export async function checkConsumer(context: StepContext, consumer: RotationConsumer): Promise<ConsumerCheck> {
  const expected = expectedVersionOf(context, consumer);
  const { problem } = consumer;
  if (expected === undefined || isUncheckable(consumer)) return { holds: "unknown", ...(problem && { problem }) };
  const check = (version: string) =>
    context.deps.consumers.check(consumer, version, new Date(consumer.actedAt ?? expected.since));
  const result = await check(expected.version);
  if (result.holds === "new" || result.holds === "gone") return result;
  const later = await laterVersionOf(context, publicationOf(context.record, consumer), expected.version);
  return later === undefined ? result : await check(later);
}

/** Checks all given consumers and returns them with the results. */
export const checkConsumers = (
  context: StepContext,
  consumers: readonly RotationConsumer[],
): Promise<RotationConsumer[]> =>
  pMap(consumers, async (one) => ({ ...one, ...afterCheck(one, await checkConsumer(context, one)) }), {
    concurrency: PARALLEL,
  });

/**
 * Returns the members that a check changes. Only consumers in the state `waiting` or `unverified` become `verified`. The step that
 * refreshes consumers sets the state of the others.
 */
export function afterCheck(consumer: RotationConsumer, { holds, problem }: ConsumerCheck): Partial<RotationConsumer> {
  const isVerified = holds === "new" && (consumer.state === "waiting" || consumer.state === "unverified");
  return { holds, problem, ...(isVerified && { state: "verified" }) };
}
