import { CloudFailure } from "../../platform/azure/failure.ts";
import type {
  ConsumerCheck,
  ConsumerProblem,
  PlannedConsumer,
  RefreshRequest,
  RefreshResult,
} from "../../rotation/consumer.ts";
import type { Edge } from "../edge.ts";

/**
 * Refreshes and checks the consumers of one kind. A rotation refreshes the consumers of the rotated secret, then checks which
 * version each of them has, and deletes the old version when no consumer has it.
 */
export interface KindOfConsumer {
  /** Returns whether `check` can verify this dependency. Otherwise the value that the consumer has is unknown. */
  canCheck(edge: Pick<Edge, "evidence">): boolean;
  /**
   * Returns why the consumer can't use the secret now, before a rotation writes anything. Undefined if it can. Left out if
   * the service can't see that for this kind.
   */
  currentProblem?(consumer: PlannedConsumer): Promise<ConsumerProblem | undefined>;
  /**
   * Returns whether the consumer stores a copy of a client secret that no rotation wrote (`PlannedConsumer.newPlace`). Left out
   * for consumers that store no copy of a client secret.
   */
  isNewPlace?(consumer: PlannedConsumer): Promise<boolean>;
  /**
   * Makes the consumer read the current version. Safe to repeat. Left out if consumers of this kind can't be refreshed.
   *
   * @throws {CloudFailure} `unclear` if the consumer may have changed in spite of the failure. Otherwise nothing was changed.
   */
  refresh?(consumer: PlannedConsumer, wanted: RefreshRequest): Promise<RefreshResult>;
  /**
   * Returns which version the consumer has, as `holds`: `new`, `old`, `unknown`, or `gone` if it no longer uses the secret.
   *
   * @param version - The new version.
   * @param since - When the new version was written, or the consumer was last refreshed.
   * @throws {CloudFailure}
   */
  check(consumer: PlannedConsumer, version: string, since: Date): Promise<ConsumerCheck>;
}

/** Separates the evidence of several uses of one secret by one resource. */
const SEPARATOR = ", ";
/** Returns the evidence of a consumer that uses a secret several times, such as `appsettings/A, appsettings/B`. */
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

/**
 * Result of a refresh that only asks the consumer to read again. It writes no properties, so it can't overwrite changes that
 * other writers make meanwhile.
 */
export const NOTHING_OVERWRITTEN: RefreshResult = { changedMeanwhile: [] };

/**
 * Error handler for the later steps of a refresh: marks a failure as unclear, because an earlier step has already changed the
 * consumer.
 *
 * @throws {CloudFailure} with `unclear` set; other errors unchanged.
 */
export function throwUnclear(error: unknown): never {
  if (!(error instanceof CloudFailure) || error.unclear) throw error;
  // `unclear` is computed from the code, and is true for `timedOut`.
  const { message, remedy, retryAfterSeconds } = error;
  throw new CloudFailure("timedOut", message, { remedy, retryAfterSeconds });
}
