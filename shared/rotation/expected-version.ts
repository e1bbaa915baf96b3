import { CloudFailure } from "../platform/azure/failure.ts";
import type { PlannedConsumer } from "./consumer.ts";
import { readNewValue } from "./new-value.ts";
import { isTransientFailure } from "./problems.ts";
import { openVault, placeOf, readEnabledVersion, unlessDisabled } from "./publications.ts";
import type { Publication, RotationRecord } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";
import { RollBack } from "./step-errors.ts";

/** The version of a secret that a consumer should have now: the new one, or the previous one during a rollback. */
export interface ExpectedVersion {
  /** Version of the vault secret, or key ID of the client secret. */
  version: string;
  /** When the version was written. */
  since: string;
  value(): Promise<string>;
}

/**
 * Returns whether the consumer signs in as the application with its own copy of the client secret, and uses no key vault
 * secret. Its `vaultName` is then `entra.<tenant id>`. The name of a key vault contains no dot.
 */
export const usesClientSecret = ({ vaultName }: Pick<PlannedConsumer, "vaultName">): boolean => vaultName.includes(".");

/** Returns the publication that writes the vault secret which the consumer uses, or undefined if none does. */
export const publicationOf = ({ publications }: RotationRecord, consumer: PlannedConsumer): Publication | undefined =>
  publications.find((one) => placeOf(one) === placeOf(consumer));

/** Returns the version that a consumer should have, or undefined if that version does not exist yet. */
export function expectedVersionOf(context: StepContext, consumer: PlannedConsumer): ExpectedVersion | undefined {
  const { record } = context;
  const isRollback = record.ending !== undefined;
  if (usesClientSecret(consumer)) {
    const version = isRollback ? record.oldKeyId : record.newKeyId;
    // The old value is read from the version that this rotation overwrote, not from a later version of another writer.
    const source = record.publications.find(({ kind, plannedVersion }) => kind === "match" && plannedVersion);
    const value = isRollback
      ? async () => await readVersionValue(context, source, source?.plannedVersion)
      : async () => await requireNewValue(context);
    return version === undefined ? undefined : { version, since: record.createdAt, value };
  }
  const publication = publicationOf(record, consumer);
  const version = isRollback ? previousVersionOf(publication) : publication?.writtenVersion;
  if (publication === undefined || version === undefined) return undefined;
  const since = publication.restoredAt ?? publication.writtenAt ?? record.createdAt;
  return { version, since, value: async () => await readVersionValue(context, publication, version) };
}

/**
 * Returns the current version of a place if it is another one than `version`, with the same value. A write without a response is
 * repeated. If the first write takes effect after the second one, it adds such a version, and consumers read that one.
 *
 * @throws {CloudFailure} if a failure is transient.
 */
export async function laterVersionOf(
  context: StepContext,
  publication: Publication | undefined,
  version: string,
): Promise<string | undefined> {
  if (publication === undefined) return undefined;
  try {
    const current = await readEnabledVersion(context, publication);
    if (current === undefined || current.version === version) return undefined;
    const expected = await unlessDisabled(openVault(context, publication).read(publication.secretName, version));
    return expected?.value === current.value ? current.version : undefined;
  } catch (error) {
    // Without a right to read the vault, only the expected version is known.
    if (error instanceof CloudFailure && !isTransientFailure(error)) return undefined;
    throw error;
  }
}

const previousVersionOf = (publication: Publication | undefined): string | undefined =>
  publication?.restoredVersion ?? publication?.plannedVersion;

async function requireNewValue(context: StepContext): Promise<string> {
  return (await readNewValue(context)) ?? throwValueLost("The held copy of the new client secret was deleted.");
}

async function readVersionValue(
  context: StepContext,
  publication: Publication | undefined,
  version: string | undefined,
): Promise<string> {
  if (publication === undefined || version === undefined)
    return throwValueLost("No vault is known to have the previous value.");
  const secret = await openVault(context, publication).read(publication.secretName, version);
  return secret?.value ?? throwValueLost(`Version ${version} of ${placeOf(publication)} no longer exists.`);
}

function throwValueLost(message: string): never {
  throw new RollBack("valueLost", message, "Check who deleted it, and give the consumer a working value.");
}
