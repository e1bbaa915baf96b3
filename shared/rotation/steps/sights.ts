import pMap from "p-map";
import type { ConsumerSight } from "../consumer.ts";
import { keyOf, planned, readBy } from "../plan-consumers.ts";
import type { RotationConsumer } from "../rotation.ts";
import type { Turn } from "../turn.ts";
import { wantedOf } from "../wanted.ts";

// Checks which value the consumers of a rotation have.

/** Number of consumers that are checked concurrently. */
const PARALLEL = 4;

/** Returns the planned consumers and those that started to use the written places since. */
export async function knownConsumers({ world, record }: Turn): Promise<RotationConsumer[]> {
  const before = record.consumers ?? [];
  const keys = new Set(before.map(keyOf));
  const { consumers } = await world.consumers.of(readBy(record));
  return [...before, ...consumers.filter((one) => !keys.has(keyOf(one))).map((one) => planned(one, false))];
}

/**
 * Returns whether the service can't see the value of a consumer: it is `blind`, or it stores a copy that this rotation has not
 * refreshed.
 */
export const isUnseen = ({ how, copy, actedAt }: RotationConsumer): boolean =>
  how === "blind" || (copy === true && actedAt === undefined);

/** Checks which value a consumer has, compared with the expected version. */
export async function sightOf(turn: Turn, consumer: RotationConsumer): Promise<ConsumerSight> {
  const wanted = wantedOf(turn, consumer);
  if (wanted === undefined || isUnseen(consumer)) return { holds: "unknown" };
  return await turn.world.consumers.look(consumer, wanted.version, new Date(consumer.actedAt ?? wanted.since));
}

/** Checks all given consumers and returns them with the results. */
export const looked = (turn: Turn, consumers: readonly RotationConsumer[]): Promise<RotationConsumer[]> =>
  pMap(consumers, async (one) => ({ ...one, ...seen(one, await sightOf(turn, one)) }), { concurrency: PARALLEL });

/** Returns the changes that a check makes to a consumer that is not being refreshed. */
export function seen(consumer: RotationConsumer, { holds, problem }: ConsumerSight): Partial<RotationConsumer> {
  const verified = holds === "new" && (consumer.state === "waiting" || consumer.state === "unverified");
  return { holds, problem, ...(verified && { state: "verified" }) };
}
