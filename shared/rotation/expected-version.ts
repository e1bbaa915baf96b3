import type { PlannedConsumer } from "./consumer.ts";
import { newValue } from "./new-value.ts";
import { placeOf, vaultOf } from "./publications.ts";
import type { Publication, RotationRecord } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";
import { RollBack } from "./step-errors.ts";

/** The version that a consumer should have now: the new one, or the previous one during a rollback. */
export interface ExpectedVersion {
  /** Version of the vault secret, or key ID of the client secret. */
  version: string;
  /** When the version was written. */
  since: string;
  value(): Promise<string>;
}

/**
 * Returns whether the consumer signs in as the application with its own copy of the client secret, and uses no key vault
 * secret.
 */
export const usesClientSecret = ({ vaultName }: Pick<PlannedConsumer, "vaultName">): boolean => vaultName.includes(".");

export const publicationOf = ({ publications }: RotationRecord, consumer: PlannedConsumer): Publication | undefined =>
  publications.find((one) => placeOf(one) === placeOf(consumer));

/** Returns undefined if there is no version yet that the consumer could take. */
export function expectedVersionOf(context: StepContext, consumer: PlannedConsumer): ExpectedVersion | undefined {
  const { record } = context;
  const back = record.ending !== undefined;
  if (usesClientSecret(consumer)) {
    const version = back ? record.oldKeyId : record.newKeyId;
    // Uses the version that was overwritten. A version that another writer created since is not the old client secret.
    const source = record.publications.find(({ kind, plannedVersion }) => kind === "match" && plannedVersion);
    const value = back
      ? async () => await valueAt(context, source, source?.plannedVersion)
      : async () => await newValueOrGoBack(context);
    return version === undefined ? undefined : { version, since: record.createdAt, value };
  }
  const found = publicationOf(record, consumer);
  const version = back ? beforeOf(found) : found?.writtenVersion;
  if (found === undefined || version === undefined) return undefined;
  const since = found.restoredAt ?? found.writtenAt ?? record.createdAt;
  return { version, since, value: async () => await valueAt(context, found, version) };
}

const beforeOf = (publication: Publication | undefined): string | undefined =>
  publication?.restoredVersion ?? publication?.plannedVersion;

async function newValueOrGoBack(context: StepContext): Promise<string> {
  return (await newValue(context)) ?? lost("The held copy of the new client secret was deleted.");
}

async function valueAt(
  context: StepContext,
  publication: Publication | undefined,
  version: string | undefined,
): Promise<string> {
  if (publication === undefined || version === undefined) return lost("No vault is known to have the previous value.");
  const found = await vaultOf(context, publication).read(publication.secretName, version);
  return found?.value ?? lost(`Version ${version} of ${placeOf(publication)} no longer exists.`);
}

function lost(message: string): never {
  throw new RollBack("valueLost", message, "Check who deleted it, and give the consumer a working value.");
}
