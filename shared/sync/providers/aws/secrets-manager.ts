import type { SecretsManagerClient } from "@aws-sdk/client-secrets-manager";
import type { ProviderCall } from "../failures.ts";
import { MANAGED_BY, markId } from "../ownership-mark.ts";
import { type Mark, SyncFailure, type SyncTarget, type TargetState, type Written } from "../provider.ts";
import { type AwsAddress, awsCall, clientOptions, ownerIn, tagsOf } from "./client.ts";
import type { AwsSecrets } from "./configuration.ts";

/**
 * Recovery window of deleted secrets in days, the longest possible.
 * https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_DeleteSecret.html
 */
const RECOVERY_DAYS = 30;

/** Label of the current version of a secret. */
const CURRENT = "AWSCURRENT";

type Sdk = typeof import("@aws-sdk/client-secrets-manager");

/**
 * Target in AWS Secrets Manager. A mark names the sync record and the source version of a write. The client request token,
 * which makes a write idempotent, becomes the `VersionId`. It is the mark's ID, so the list of versions shows the mark of the
 * current value (`currentMarkId`) without reading a value.
 */
export function secretsManager(address: AwsAddress, credentials: AwsSecrets): SyncTarget {
  let opened: Promise<[Sdk, SecretsManagerClient]> | undefined;
  const open = async (): Promise<[Sdk, SecretsManagerClient]> => {
    const sdk = await import("@aws-sdk/client-secrets-manager");
    return [sdk, new sdk.SecretsManagerClient(clientOptions(address, credentials))];
  };
  const call = async <T>(
    [operation, permission]: [operation: string, permission: string],
    name: string,
    send: (sdk: Sdk, client: SecretsManagerClient) => Promise<T>,
  ): Promise<T> => {
    opened ??= open();
    const [sdk, client] = await opened;
    const describedCall: ProviderCall = {
      operation: `${operation} the secret ${name}`,
      provider: `AWS Secrets Manager in ${address.region}`,
      grant: `secretsmanager:${permission} on this secret`,
    };
    return await awsCall(address, describedCall, () => send(sdk, client));
  };
  const abortOption = (signal: AbortSignal | undefined) => (signal ? { abortSignal: signal } : {});

  /** Returns undefined if the secret does not exist. */
  async function describeSecret(name: string, signal?: AbortSignal) {
    try {
      return await call(["inspect", "DescribeSecret"], name, (sdk, client) =>
        client.send(new sdk.DescribeSecretCommand({ SecretId: name }), abortOption(signal)),
      );
    } catch (error) {
      if (error instanceof SyncFailure && error.code === "notFound") return undefined;
      throw error;
    }
  }

  /** Moves the label of the current version to the version with this ID. Returns false if that version no longer exists. */
  async function makeCurrent(name: string, id: string, signal?: AbortSignal): Promise<boolean> {
    const current = currentVersion((await describeSecret(name, signal))?.VersionIdsToStages);
    if (current === id) return true;
    const move = {
      SecretId: name,
      VersionStage: CURRENT,
      MoveToVersionId: id,
      ...(current !== undefined && { RemoveFromVersionId: current }),
    };
    try {
      await call(["move the current version of", "UpdateSecretVersionStage"], name, (sdk, client) =>
        client.send(new sdk.UpdateSecretVersionStageCommand(move), abortOption(signal)),
      );
      return true;
    } catch (error) {
      if (!(error instanceof SyncFailure)) throw error;
      if (error.code === "notFound") return false;
      // This error also occurs if the answer of a first request was lost: the label has already been moved.
      if (error.code !== "targetRefused") throw error;
      if (currentVersion((await describeSecret(name, signal))?.VersionIdsToStages) === id) return true;
      throw error;
    }
  }

  return {
    async describe(name, signal) {
      const secret = await describeSecret(name, signal);
      if (!secret) return { exists: false };
      const version = currentVersion(secret.VersionIdsToStages);
      const ownedBy = ownerIn(secret.Tags ?? []);
      return {
        exists: secret.DeletedDate === undefined,
        ownedBy,
        // The version ID of a secret that belongs to no record comes from another writer and is no mark.
        currentMarkId: ownedBy === null ? undefined : version,
        version,
        deletedUntil: secret.DeletedDate?.toISOString(),
        refused: reasonNotWritable(secret, address.region),
      };
    },

    // Secrets Manager has no conditional write, so of `expected` only `exists` counts.
    async put(name, value, mark, expected, signal): Promise<Written> {
      const version = markId(mark);
      if (!expected.exists) {
        await call(["create", "CreateSecret and secretsmanager:TagResource"], name, (sdk, client) =>
          client.send(
            new sdk.CreateSecretCommand({
              Name: name,
              SecretString: value,
              ClientRequestToken: version,
              Description: `Kept in sync with ${mark.source} by ${MANAGED_BY}.`,
              Tags: tagsOf(mark),
            }),
            abortOption(signal),
          ),
        );
        return { version, created: true };
      }
      const written = await call(["write", "PutSecretValue"], name, (sdk, client) =>
        client.send(
          new sdk.PutSecretValueCommand({ SecretId: name, SecretString: value, ClientRequestToken: version }),
          abortOption(signal),
        ),
      );
      // An existing version is not changed, even if another version has become current since.
      if (!written.VersionStages?.includes(CURRENT)) await makeCurrent(name, version, signal);
      return { version, created: false };
    },

    async restoreVersion(name: string, mark: Mark, _expected: TargetState, signal?: AbortSignal) {
      const version = markId(mark);
      return (await makeCurrent(name, version, signal)) ? { version, created: false } : undefined;
    },

    async adopt(name, mark, signal) {
      await call(["tag", "TagResource"], name, (sdk, client) =>
        client.send(new sdk.TagResourceCommand({ SecretId: name, Tags: tagsOf(mark) }), abortOption(signal)),
      );
    },

    async undelete(name, signal) {
      await call(["restore", "RestoreSecret"], name, (sdk, client) =>
        client.send(new sdk.RestoreSecretCommand({ SecretId: name }), abortOption(signal)),
      );
    },

    async remove(name, signal) {
      try {
        await call(["delete", "DeleteSecret"], name, (sdk, client) =>
          client.send(
            new sdk.DeleteSecretCommand({ SecretId: name, RecoveryWindowInDays: RECOVERY_DAYS }),
            abortOption(signal),
          ),
        );
      } catch (error) {
        const gone = error instanceof SyncFailure && (error.code === "notFound" || error.code === "targetDeleted");
        if (!gone) throw error;
      }
    },
  };
}

const currentVersion = (stages: Record<string, string[]> | undefined): string | undefined =>
  Object.entries(stages ?? {}).find(([, labels]) => labels.includes(CURRENT))?.[0];

/** Returns why a secret can't be written; undefined if it can. */
function reasonNotWritable(
  { OwningService, PrimaryRegion }: { OwningService?: string | undefined; PrimaryRegion?: string | undefined },
  region: string,
): string | undefined {
  if (OwningService) return "another service of AWS manages it";
  if (PrimaryRegion && PrimaryRegion !== region)
    return `it is a copy of the secret in ${PrimaryRegion}, which alone can be written`;
  return undefined;
}
