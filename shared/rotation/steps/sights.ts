import pMap from "p-map";
import type { ConsumerSight } from "../consumer.ts";
import { keyOf, planned } from "../plan-consumers.ts";
import { versionAt } from "../publications.ts";
import type { RotationConsumer } from "../rotation.ts";
import type { Turn } from "../turn.ts";

// What the consumers of what is rotated hold.

/** Consumers that are looked at at once. */
const PARALLEL = 4;

/** Those of the plan, and who has come to use what is written since. */
export async function knownConsumers({ world, record }: Turn): Promise<RotationConsumer[]> {
  const places = record.publications.filter(({ kind }) => kind !== "handover");
  const before = record.consumers ?? [];
  if (places.length === 0) return before;
  const keys = new Set(before.map(keyOf));
  const { consumers } = await world.consumers.of(places);
  return [...before, ...consumers.filter((one) => !keys.has(keyOf(one))).map((one) => planned(one, false))];
}

/** What one holds of the new version. Nobody can see what a blind one holds. */
export async function sightOf(turn: Turn, consumer: RotationConsumer): Promise<ConsumerSight> {
  const { publication, version } = versionAt(turn.record, consumer);
  if (consumer.how === "blind" || publication === undefined || version === undefined) return { holds: "unknown" };
  const since = consumer.actedAt ?? publication.restoredAt ?? publication.writtenAt ?? turn.record.createdAt;
  return await turn.world.consumers.look(consumer, version, new Date(since));
}

/** Them with what each holds now. */
export const looked = (turn: Turn, consumers: readonly RotationConsumer[]): Promise<RotationConsumer[]> =>
  pMap(consumers, async (one) => ({ ...one, ...seen(one, await sightOf(turn, one)) }), { concurrency: PARALLEL });

/** What a sight says of one that was not brought to the version step by step. */
export function seen(consumer: RotationConsumer, { holds, problem }: ConsumerSight): Partial<RotationConsumer> {
  const verified = holds === "new" && (consumer.state === "waiting" || consumer.state === "unverified");
  return { holds, problem, ...(verified && { state: "verified" }) };
}
