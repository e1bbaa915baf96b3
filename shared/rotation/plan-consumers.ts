import pMap from "p-map";
import { CloudFailure } from "../platform/azure/failure.ts";
import { invalidBody, Problem } from "../platform/http/problem.ts";
import type { ConsumersOfSecrets, PlannedConsumer } from "./consumer.ts";
import { failureIfDenied } from "./match-verification.ts";
import { type OnObstacle, throwObstacle } from "./obstacles.ts";
import { placeOf } from "./publications.ts";
import { isVaultSecret, type RotationConsumer, type RotationRecord } from "./rotation.ts";

/** The parts of a request that concern consumers. */
export interface ConsumersRequest {
  /** IDs of the only consumers to refresh. Default: all. */
  includeResources?: readonly string[] | undefined;
  /** If true, consumers are refreshed without a check of the value they have. */
  skipVerification?: boolean | undefined;
  /** Whether to restart apps that read their settings only when they start. Default: true. */
  restartApps?: boolean | undefined;
  /** Whether a policy starts the rotation. No user then sees a rejected plan. */
  automatic?: boolean | undefined;
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
 * @param onObstacle - Called if included consumers would keep the old value (willBreak), or there are too many (notRotatable).
 * @throws {Problem} invalidRequest for an ID that uses none of the places.
 * @throws {CloudFailure} if a consumer can't be read now.
 */
export async function planConsumers(
  consumersOfSecrets: Pick<ConsumersOfSecrets, "findConsumers" | "currentProblem">,
  rotation: Pick<RotationRecord, "publications" | "appId" | "assetId" | "issuer">,
  { includeResources, automatic = false }: ConsumersRequest,
  onObstacle: OnObstacle,
): Promise<Required<Pick<RotationRecord, "consumers" | "coverage">>> {
  const { consumers: knownConsumers, coverage } = await consumersOfSecrets.findConsumers(placesToRead(rotation));
  const included = createInclusionFilter(knownConsumers, includeResources);
  const isNamed = (one: PlannedConsumer) => includeResources !== undefined && included(one.id);
  // Without a user who sees the plan, a consumer that would keep the old value does not stop the rotation. It later keeps the
  // old client secret from being removed.
  // A copy with `newPlace` may be an attacker's, so only a request that names it includes it.
  const isLeftOut = (one: PlannedConsumer) => one.newPlace === true || (automatic && one.how === "willBreak");
  const planned = knownConsumers.map((one) =>
    toRotationConsumer(one, included(one.id) && (isNamed(one) || !isLeftOut(one))),
  );
  const checked = await pMap(
    planned,
    async (one) =>
      one.included || !isVaultSecret(rotation) ? await withCurrentProblem(consumersOfSecrets, one, isNamed(one)) : one,
    { concurrency: PARALLEL },
  );
  const consumers = storableConsumers(checked);
  requireConsumersFit(consumers, onObstacle);
  consumers.sort((a, b) => a.blast - b.blast || (consumerKey(a) < consumerKey(b) ? -1 : 1));
  const breaking = consumers.filter((one) => one.included && one.how === "willBreak" && !one.brokenBefore);
  if (breaking.length > 0) onObstacle(willBreak(breaking, consumers));
  const unlisted = checked.length - consumers.length;
  const text = `${unlisted} consumers that can't use the secret are not listed, because there are too many.`;
  return { consumers, coverage: unlisted > 0 ? [text, ...coverage] : coverage };
}

/**
 * Reads whether a consumer can use the secret, before the rotation writes anything. Sets `brokenBefore` if it certainly can't. Sets
 * `unclearBefore` if its problem can pass without a user, or if the service may not read the consumer. Otherwise returns it
 * unchanged.
 *
 * @param isNamed - Whether the request names the consumer. The user then vouches for it, so `unclearBefore` is never set.
 * @throws {CloudFailure} if the failure is transient.
 */
export async function withCurrentProblem(
  consumersOfSecrets: Pick<ConsumersOfSecrets, "currentProblem">,
  consumer: RotationConsumer,
  isNamed = false,
): Promise<RotationConsumer> {
  const problem = await failureIfDenied(consumersOfSecrets.currentProblem(consumer));
  if (problem === undefined) return consumer;
  if (problem instanceof CloudFailure || problem.isTemporary)
    return isNamed ? consumer : { ...consumer, unclearBefore: true };
  return { ...consumer, brokenBefore: true, state: "unverified", problem: problem.text };
}

/**
 * Reads the consumers with `brokenBefore` or `unclearBefore` again. Both are removed from a consumer that can use the secret now. A
 * consumer with `unclearBefore` that still has a problem gets `brokenBefore`. A consumer that the service may not read stays as it
 * is.
 *
 * @throws {CloudFailure} if the failure is transient.
 */
export const recheckProblems = (
  consumersOfSecrets: Pick<ConsumersOfSecrets, "currentProblem">,
  consumers: readonly RotationConsumer[],
): Promise<RotationConsumer[]> =>
  pMap(
    consumers,
    async (one) => {
      if (!one.brokenBefore && !one.unclearBefore) return one;
      const problem = await failureIfDenied(consumersOfSecrets.currentProblem(one));
      if (problem instanceof CloudFailure) return one;
      const isBroken = problem !== undefined;
      return { ...one, problem: problem?.text, brokenBefore: isBroken, unclearBefore: isBroken && one.unclearBefore };
    },
    { concurrency: PARALLEL },
  );

const canStore = (consumers: readonly PlannedConsumer[]): boolean =>
  JSON.stringify(consumers).length + GROWTH_CHARACTERS * consumers.length <= MAX_CHARACTERS;

/**
 * Returns the consumers that the row of a rotation stores. If there are too many, those that can't use the secret are left out,
 * because anyone can create any number of them.
 */
export const storableConsumers = (consumers: RotationConsumer[]): RotationConsumer[] =>
  canStore(consumers) ? consumers : consumers.filter(({ brokenBefore }) => !brokenBefore);

/** Reports notRotatable if the row of a rotation can't store all consumers. */
export function requireConsumersFit(
  consumers: readonly PlannedConsumer[],
  onObstacle: OnObstacle = throwObstacle,
): void {
  if (canStore(consumers)) return;
  const text = `${consumers.length} consumers use it, more than one rotation can store.`;
  onObstacle(new Problem("notRotatable", `${text} Divide them among several secrets.`));
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
  ...(consumer.newPlace && !included && { problem: NEW_PLACE_TEXT }),
});

const NEW_PLACE_TEXT =
  "It has a copy of the client secret, and no rotation has written it. If it belongs to the application, select it for a rotation (includeResources), or set the new secret there.";

/** Returns a key that identifies a consumer within a rotation. */
export const consumerKey = (one: Pick<PlannedConsumer, "id" | "vaultName" | "secretName">): string =>
  `${one.id.toLowerCase()} ${placeOf(one).toLowerCase()}`;

/**
 * Returns the function that says whether the request includes a consumer. Without `ids`, it includes all.
 *
 * @throws {Problem} invalidRequest if an ID is that of no known consumer.
 */
function createInclusionFilter(
  knownConsumers: readonly PlannedConsumer[],
  ids: readonly string[] | undefined,
): (id: string) => boolean {
  if (ids === undefined) return () => true;
  const knownIds = new Set(knownConsumers.map(({ id }) => id.toLowerCase()));
  const unknown = ids.filter((id) => !knownIds.has(id.toLowerCase()));
  if (unknown.length > 0) {
    const named = unknown.slice(0, MAX_NAMED).join(", ");
    throw invalidBody("includeResources", `contains IDs that are no known consumers: ${named}`);
  }
  const requestedIds = new Set(ids.map((id) => id.toLowerCase()));
  return (id) => requestedIds.has(id.toLowerCase());
}

/**
 * Returns the problem of consumers that would keep the old value.
 *
 * @param all - All consumers of the plan. The problem proposes to include only the ones that would not keep the old value.
 */
function willBreak(consumers: readonly RotationConsumer[], all: readonly RotationConsumer[]): Problem {
  const resources = consumers.map(({ id }) => id);
  const others = all.filter(({ id, included }) => included && !resources.includes(id)).map(({ id }) => id);
  const named = consumers.slice(0, MAX_NAMED).map(({ kind, name, evidence }) => `${kind} ${name} (${evidence})`);
  const more = consumers.length > MAX_NAMED ? ` and ${consumers.length - MAX_NAMED} others` : "";
  const text = `${named.join(", ")}${more} would keep the old value: pinned to a version, or a copy.`;
  return new Problem(
    "willBreak",
    `Nothing was changed. ${text} Remove the version from their references to the secret, or exclude these consumers (includeResources).`,
    { members: { resources, send: [{ includeResources: [...new Set(others)] }] } },
  );
}
