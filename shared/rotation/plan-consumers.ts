import pMap from "p-map";
import { CloudFailure } from "../platform/azure/failure.ts";
import { invalidBody, Problem } from "../platform/http/problem.ts";
import type { ConsumersOfSecrets, PlannedConsumer } from "./consumer.ts";
import { failureIfDenied } from "./match-verification.ts";
import { placeOf } from "./publications.ts";
import type { RotationConsumer, RotationRecord } from "./rotation.ts";

/** The parts of a request that concern consumers. */
export interface ConsumersRequest {
  /** IDs of the only consumers to refresh. Default: all. */
  includeResources?: readonly string[] | undefined;
  /** If true, consumers are refreshed without a check of the value they have. */
  skipVerification?: boolean | undefined;
  /** Whether to restart apps that read their settings only when they start. Default: true. */
  restartApps?: boolean | undefined;
}

/**
 * Maximum length of a rotation's consumers as JSON. One row stores them all, a row has at most 1 MiB, and a character takes two
 * bytes.
 */
const MAX_CHARACTERS = 400_000;
/** Characters by which the record of a consumer may grow during the rotation. */
const GROWTH_CHARACTERS = 350;
/** Number of consumers that are read concurrently. */
const PARALLEL = 4;
/** Maximum number of names in one message. */
const MAX_NAMED = 20;

/**
 * Plans the consumers of the written places, smallest blast radius first: the order of their refresh. Reads each consumer that
 * the rotation depends on: the included ones, and for a client secret all.
 *
 * @throws {Problem} willBreak if an included consumer would keep the old value; invalidRequest for an ID that uses none of the
 * places; notRotatable if there are too many.
 * @throws {CloudFailure} if a consumer can't be read for a moment.
 */
export async function planConsumers(
  consumersOfSecrets: Pick<ConsumersOfSecrets, "findConsumers" | "currentProblem">,
  rotation: Pick<RotationRecord, "publications" | "appId">,
  { includeResources }: ConsumersRequest,
): Promise<Required<Pick<RotationRecord, "consumers" | "coverage">>> {
  const { consumers: found, coverage } = await consumersOfSecrets.findConsumers(placesToRead(rotation));
  requireConsumersFit(found);
  const included = createInclusionFilter(found, includeResources);
  const planned = found.map((one) => toRotationConsumer(one, included(one.id)));
  const consumers = await pMap(
    planned,
    async (one) => (one.included || rotation.appId !== undefined ? await markIfBroken(consumersOfSecrets, one) : one),
    { concurrency: PARALLEL },
  );
  consumers.sort((a, b) => a.blast - b.blast || (consumerKey(a) < consumerKey(b) ? -1 : 1));
  const pinned = consumers.filter((one) => one.included && one.how === "willBreak" && !one.brokenBefore);
  if (pinned.length > 0) throw willBreak(pinned);
  return { consumers, coverage };
}

/**
 * Marks a consumer that can't use the secret now. A consumer that the service may not read is not marked.
 *
 * @throws {CloudFailure} transient
 */
export async function markIfBroken(
  consumersOfSecrets: Pick<ConsumersOfSecrets, "currentProblem">,
  consumer: RotationConsumer,
): Promise<RotationConsumer> {
  const problem = await failureIfDenied(consumersOfSecrets.currentProblem(consumer));
  if (problem === undefined || problem instanceof CloudFailure) return consumer;
  return { ...consumer, brokenBefore: true, state: "unverified", problem };
}

/**
 * Reads the marked consumers again, and removes the mark of each one that can use the secret now, so that it counts. A consumer
 * that the service may no longer read keeps its mark.
 *
 * @throws {CloudFailure} transient
 */
export const unmarkRecovered = (
  consumersOfSecrets: Pick<ConsumersOfSecrets, "currentProblem">,
  consumers: readonly RotationConsumer[],
): Promise<RotationConsumer[]> =>
  pMap(
    consumers,
    async (one) => {
      if (!one.brokenBefore) return one;
      const problem = await failureIfDenied(consumersOfSecrets.currentProblem(one));
      if (problem instanceof CloudFailure) return one;
      return { ...one, problem, brokenBefore: problem !== undefined };
    },
    { concurrency: PARALLEL },
  );

/** @throws {Problem} notRotatable if the row of a rotation can't store all consumers. */
export function requireConsumersFit(consumers: readonly PlannedConsumer[]): void {
  if (JSON.stringify(consumers).length + GROWTH_CHARACTERS * consumers.length <= MAX_CHARACTERS) return;
  const text = `${consumers.length} consumers use it, more than one rotation can store.`;
  throw new Problem("notRotatable", `${text} Divide them among several secrets.`);
}

/** Returns the places that consumers can read. The handover vault has no consumers. */
export const placesToRead = ({ publications, appId }: Pick<RotationRecord, "publications" | "appId">) => ({
  places: publications.filter(({ kind }) => kind !== "handover"),
  appId,
});

/** Returns a planned consumer with its first state. */
export const toRotationConsumer = (consumer: PlannedConsumer, included: boolean): RotationConsumer => ({
  ...consumer,
  included,
  state: included && (consumer.how === "action" || consumer.how === "automatic") ? "waiting" : "unverified",
});

/** Returns a key that identifies a consumer within a rotation. */
export const consumerKey = (one: Pick<PlannedConsumer, "id" | "vaultName" | "secretName">): string =>
  `${one.id.toLowerCase()} ${placeOf(one).toLowerCase()}`;

function createInclusionFilter(
  found: readonly PlannedConsumer[],
  ids: readonly string[] | undefined,
): (id: string) => boolean {
  if (ids === undefined) return () => true;
  const knownIds = new Set(found.map(({ id }) => id.toLowerCase()));
  const unknown = ids.filter((id) => !knownIds.has(id.toLowerCase()));
  if (unknown.length > 0) {
    const named = unknown.slice(0, MAX_NAMED).join(", ");
    throw invalidBody("includeResources", `contains IDs that are no known consumers: ${named}`);
  }
  const wanted = new Set(ids.map((id) => id.toLowerCase()));
  return (id) => wanted.has(id.toLowerCase());
}

function willBreak(consumers: readonly RotationConsumer[]): Problem {
  const named = consumers.slice(0, MAX_NAMED).map(({ kind, name, evidence }) => `${kind} ${name} (${evidence})`);
  const more = consumers.length > MAX_NAMED ? ` and ${consumers.length - MAX_NAMED} others` : "";
  const text = `${named.join(", ")}${more} would keep the old value: pinned to a version, or a copy.`;
  return new Problem(
    "willBreak",
    `Nothing was changed. ${text} Remove the version from their references to the secret, or exclude these consumers (includeResources).`,
    { members: { resources: consumers.map(({ id }) => id) } },
  );
}
