import { invalidBody, Problem } from "../platform/http/problem.ts";
import type { ConsumersOfSecrets, PlannedConsumer } from "./consumer.ts";
import { placeOf } from "./publications.ts";
import type { RotationConsumer, RotationRecord } from "./rotation.ts";

/** What is asked for of those who use what is rotated. */
export interface ConsumersRequest {
  /** Ids of the only ones that may be acted on; all when left out. */
  includeResources?: readonly string[] | undefined;
  /** Has consumers acted on without waiting for what they hold. */
  skipVerification?: boolean | undefined;
  /** Whether apps that read their settings only when they start are restarted; they are when left out. */
  restartApps?: boolean | undefined;
}

/**
 * Characters of all consumers of one rotation as JSON: its row holds them all, a row is at most 1 MiB, and a character there
 * takes two bytes.
 */
const MAX_CHARACTERS = 400_000;
/** By how much one may grow while it is acted on and looked at. */
const GROWTH = 350;
/** Named in one text. */
const MAX_NAMED = 20;

/**
 * Those who use the places that are written, the smallest blast first: they are acted on in this order.
 *
 * @throws {Problem} willBreak when one that is included would be left with the old value; invalidRequest for an id that uses
 *   none of the places; notRotatable for too many.
 */
export async function planConsumers(
  known: Pick<ConsumersOfSecrets, "of">,
  what: Pick<RotationRecord, "publications" | "appId">,
  { includeResources }: ConsumersRequest,
): Promise<Required<Pick<RotationRecord, "consumers" | "coverage">>> {
  const { consumers: found, coverage } = await known.of(readBy(what));
  refuseTooMany(found);
  const included = only(found, includeResources);
  const consumers = found
    .map((one) => planned(one, included(one.id)))
    .sort((a, b) => a.blast - b.blast || (keyOf(a) < keyOf(b) ? -1 : 1));
  const broken = consumers.filter((one) => one.included && one.how === "willBreak");
  if (broken.length > 0) throw willBreak(broken);
  return { consumers, coverage };
}

/** @throws {Problem} notRotatable where the row of a rotation could not hold them all. */
export function refuseTooMany(consumers: readonly PlannedConsumer[]): void {
  if (JSON.stringify(consumers).length + GROWTH * consumers.length <= MAX_CHARACTERS) return;
  const text = `${consumers.length} consumers use it: more than one rotation can keep an account of.`;
  throw new Problem("notRotatable", `${text} Divide them among several secrets.`);
}

/** What consumers may use of what is written: nobody reads where a value is handed over. */
export const readBy = ({ publications, appId }: Pick<RotationRecord, "publications" | "appId">) => ({
  places: publications.filter(({ kind }) => kind !== "handover"),
  appId,
});

/** One of an earlier version's rotation, which asked for them when they were verified. */
export const planned = (consumer: PlannedConsumer, included: boolean): RotationConsumer => ({
  ...consumer,
  included,
  state: included && (consumer.how === "action" || consumer.how === "automatic") ? "waiting" : "unverified",
});

/** Tells consumers apart. */
export const keyOf = (one: Pick<PlannedConsumer, "id" | "vaultName" | "secretName">): string =>
  `${one.id.toLowerCase()} ${placeOf(one).toLowerCase()}`;

function only(found: readonly PlannedConsumer[], ids: readonly string[] | undefined): (id: string) => boolean {
  if (ids === undefined) return () => true;
  const known = new Set(found.map(({ id }) => id.toLowerCase()));
  const unknown = ids.filter((id) => !known.has(id.toLowerCase()));
  if (unknown.length > 0) {
    const named = unknown.slice(0, MAX_NAMED).join(", ");
    throw invalidBody("includeResources", `holds what is not known to use it: ${named}`);
  }
  const wanted = new Set(ids.map((id) => id.toLowerCase()));
  return (id) => wanted.has(id.toLowerCase());
}

function willBreak(consumers: readonly RotationConsumer[]): Problem {
  const named = consumers.slice(0, MAX_NAMED).map(({ kind, name, evidence }) => `${kind} ${name} (${evidence})`);
  const more = consumers.length > MAX_NAMED ? ` and ${consumers.length - MAX_NAMED} others` : "";
  const text = `${named.join(", ")}${more} would go on with the old value: pinned to a version, or a copy.`;
  return new Problem(
    "willBreak",
    `Nothing was done. ${text} Have them refer to the secret without a version, or leave them out with includeResources.`,
    { members: { resources: consumers.map(({ id }) => id) } },
  );
}
