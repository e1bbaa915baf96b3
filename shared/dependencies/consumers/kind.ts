import { CloudFailure } from "../../platform/azure/failure.ts";
import type { Acted, ConsumerSight, PlannedConsumer, WantedVersion } from "../../rotation/consumer.ts";
import type { Edge } from "../edge.ts";

/** How consumers of one kind are brought to hold a version, and how that is seen. */
export interface KindOfConsumer {
  /** Whether `look` can see what an edge tells of: of any other nobody can see what it holds. */
  sees(edge: Pick<Edge, "evidence">): boolean;
  /**
   * Left out where nothing can be told to take a version. May be called again.
   *
   * @throws {CloudFailure}: one that is not `unclear` says that nothing was done.
   */
  act?(consumer: PlannedConsumer, wanted: WantedVersion): Promise<Acted>;
  /** See `ConsumersOfSecrets`. @throws {CloudFailure} */
  look(consumer: PlannedConsumer, version: string, since: Date): Promise<ConsumerSight>;
}

/** Between the evidence of several uses of one secret by one resource. */
const SEPARATOR = ", ";
export const joinedEvidence = (names: readonly string[]): string => names.join(SEPARATOR);
/** The names in the evidence `<list>/<name>` of a consumer; some services put the resource's own name between. */
export const namesIn = ({ evidence }: Pick<PlannedConsumer, "evidence">, list: string): string[] =>
  evidence.split(SEPARATOR).flatMap((one) => (one.startsWith(`${list}/`) ? [one.split("/").at(-1)!] : []));

/** Whether a text of a consumer's configuration names the secret that it uses. */
export const namesSecret = (
  named: { vaultName: string; name?: string | undefined; type?: string | undefined } | undefined,
  { vaultName, secretName }: PlannedConsumer,
): boolean =>
  named?.type === "secret" &&
  named.vaultName.toLowerCase() === vaultName.toLowerCase() &&
  named.name?.toLowerCase() === secretName.toLowerCase();

/** What an action answers by which nobody's change can be lost. */
export const NOTHING_CHANGED: Acted = { changedMeanwhile: [] };

/**
 * A part of the action was done before this failed, so that a refusal does not mean that nothing was.
 *
 * @throws {CloudFailure} that is `unclear`; what is no failure of the cloud as it is.
 */
export function afterPart(error: unknown): never {
  if (!(error instanceof CloudFailure) || error.unclear) throw error;
  const { message, remedy, retryAfterSeconds } = error;
  throw new CloudFailure("timedOut", message, { remedy, retryAfterSeconds });
}
