import pMap from "p-map";
import type { ConsumerSight } from "../consumer.ts";
import { keyOf, planned, readBy } from "../plan-consumers.ts";
import type { RotationConsumer } from "../rotation.ts";
import type { Turn } from "../turn.ts";
import { wantedOf } from "../wanted.ts";

// What the consumers of what is rotated hold.

/** Consumers that are looked at at once. */
const PARALLEL = 4;

/** Those of the plan, and who has come to use what is written since. */
export async function knownConsumers({ world, record }: Turn): Promise<RotationConsumer[]> {
  const before = record.consumers ?? [];
  const keys = new Set(before.map(keyOf));
  const { consumers } = await world.consumers.of(readBy(record));
  return [...before, ...consumers.filter((one) => !keys.has(keyOf(one))).map((one) => planned(one, false))];
}

/** Nobody can see what a blind one holds, or one with a copy that this rotation has not changed. */
export const isUnseen = ({ how, copy, actedAt }: RotationConsumer): boolean =>
  how === "blind" || (copy === true && actedAt === undefined);

/** What one holds of what it is to hold now. */
export async function sightOf(turn: Turn, consumer: RotationConsumer): Promise<ConsumerSight> {
  const wanted = wantedOf(turn, consumer);
  if (wanted === undefined || isUnseen(consumer)) return { holds: "unknown" };
  return await turn.world.consumers.look(consumer, wanted.version, new Date(consumer.actedAt ?? wanted.since));
}

/** Them with what each holds now. */
export const looked = (turn: Turn, consumers: readonly RotationConsumer[]): Promise<RotationConsumer[]> =>
  pMap(consumers, async (one) => ({ ...one, ...seen(one, await sightOf(turn, one)) }), { concurrency: PARALLEL });

/** What a sight says of one that was not brought to the version step by step. */
export function seen(consumer: RotationConsumer, { holds, problem }: ConsumerSight): Partial<RotationConsumer> {
  const verified = holds === "new" && (consumer.state === "waiting" || consumer.state === "unverified");
  return { holds, problem, ...(verified && { state: "verified" }) };
}
