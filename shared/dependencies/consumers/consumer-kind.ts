import { CloudFailure } from "../../platform/azure/failure.ts";
import type { ConsumerCheck, PlannedConsumer, RefreshRequest, RefreshResult } from "../../rotation/consumer.ts";
import type { Edge } from "../edge.ts";

/** Refreshes and checks the consumers of one kind. */
export interface KindOfConsumer {
  /** Returns whether `check` can verify this dependency. Otherwise the value that the consumer has is unknown. */
  canCheck(edge: Pick<Edge, "evidence">): boolean;
  /**
   * Makes the consumer read the current version. Safe to repeat. Left out if consumers of this kind can't be refreshed.
   *
   * @throws {CloudFailure} If it is not `unclear`, nothing was changed.
   */
  refresh?(consumer: PlannedConsumer, wanted: RefreshRequest): Promise<RefreshResult>;
  /** See `ConsumersOfSecrets`. @throws {CloudFailure} */
  check(consumer: PlannedConsumer, version: string, since: Date): Promise<ConsumerCheck>;
}

/** Separates the evidence of several uses of one secret by one resource. */
const SEPARATOR = ", ";
export const joinedEvidence = (names: readonly string[]): string => names.join(SEPARATOR);
/** Returns the names in a consumer's evidence `<list>/<name>`. Some services put the resource's own name in between. */
export const namesIn = ({ evidence }: Pick<PlannedConsumer, "evidence">, list: string): string[] =>
  evidence.split(SEPARATOR).flatMap((one) => (one.startsWith(`${list}/`) ? [one.split("/").at(-1)!] : []));

/** Returns whether a text of the consumer's configuration names the secret. */
export const namesSecret = (
  named: { vaultName: string; name?: string | undefined; type?: string | undefined } | undefined,
  { vaultName, secretName }: PlannedConsumer,
): boolean =>
  named?.type === "secret" &&
  named.vaultName.toLowerCase() === vaultName.toLowerCase() &&
  named.name?.toLowerCase() === secretName.toLowerCase();

/** Result of a refresh that can't overwrite changes of other writers. */
export const NOTHING_CHANGED: RefreshResult = { changedMeanwhile: [] };

/**
 * Marks failures as unclear if a part of the refresh was done before.
 *
 * @throws {CloudFailure} with `unclear` set; other errors unchanged.
 */
export function afterPart(error: unknown): never {
  if (!(error instanceof CloudFailure) || error.unclear) throw error;
  const { message, remedy, retryAfterSeconds } = error;
  throw new CloudFailure("timedOut", message, { remedy, retryAfterSeconds });
}
