import type { SSMClient } from "@aws-sdk/client-ssm";
import type { ProviderCall } from "../failures.ts";
import { MANAGED_BY, markId } from "../ownership-mark.ts";
import { type Mark, SyncFailure, type SyncTarget, type Written } from "../provider.ts";
import { type AwsAddress, awsCall, clientOptions, ownerIn, tagsOf } from "./client.ts";
import type { AwsSecrets } from "./configuration.ts";

type Sdk = typeof import("@aws-sdk/client-ssm");

/**
 * Target in AWS Systems Manager Parameter Store, as `SecureString`. A mark names the sync record and the source version of a
 * write. The parameter's description, which is written in one call with the value, contains the mark's ID and the number that
 * the new version gets. If another writer creates a version, the numbers differ, even if the description stays. The record that
 * owns the parameter is in its tags.
 */
export function parameterStore(address: AwsAddress, credentials: AwsSecrets): SyncTarget {
  let opened: Promise<[Sdk, SSMClient]> | undefined;
  const open = async (): Promise<[Sdk, SSMClient]> => {
    const sdk = await import("@aws-sdk/client-ssm");
    return [sdk, new sdk.SSMClient(clientOptions(address, credentials))];
  };
  /**
   * Returns a client without retries that knows the offset of this host's clock. The SDK learns the offset only from retries.
   */
  const withoutRetries = ([sdk, { config }]: [Sdk, SSMClient]) =>
    new sdk.SSMClient({ ...clientOptions(address, credentials, 1), systemClockOffset: config.systemClockOffset });
  const call = async <T>(
    [operation, permission]: [operation: string, permission: string],
    name: string,
    send: (sdk: Sdk, client: SSMClient) => Promise<T>,
  ): Promise<T> => {
    // A retry after a lost response would create a second version.
    const isWrite = operation === "write";
    opened ??= open();
    const sdkAndClient = await opened;
    const [sdk] = sdkAndClient;
    const client = isWrite ? withoutRetries(sdkAndClient) : sdkAndClient[1];
    const describedCall: ProviderCall = {
      operation: `${operation} the parameter ${name}`,
      provider: `AWS Parameter Store in ${address.region}`,
      grant: `ssm:${permission} on this parameter`,
    };
    return await awsCall(address, describedCall, () => send(sdk, client));
  };
  const abortOption = (signal: AbortSignal | undefined) => (signal ? { abortSignal: signal } : {});

  return {
    async describe(name, signal) {
      const { Parameters: parameters = [] } = await call(["inspect", "DescribeParameters"], name, (sdk, client) =>
        client.send(
          new sdk.DescribeParametersCommand({ ParameterFilters: [{ Key: "Name", Option: "Equals", Values: [name] }] }),
          abortOption(signal),
        ),
      );
      const parameter = parameters.find(({ Name }) => Name === name);
      if (!parameter) return { exists: false };
      const { TagList = [] } = await call(["inspect", "ListTagsForResource"], name, (sdk, client) =>
        client.send(
          new sdk.ListTagsForResourceCommand({ ResourceType: "Parameter", ResourceId: name }),
          abortOption(signal),
        ),
      );
      const version = String(parameter.Version ?? "");
      // If another writer has added a version, the description still names the older one.
      const noted = DESCRIPTION.exec(parameter.Description ?? "");
      return {
        exists: true,
        ownedBy: ownerIn(TagList),
        currentMarkId: noted?.[2] === version ? noted[1] : undefined,
        version,
        refused: parameter.Type === "SecureString" ? undefined : "it is not a SecureString",
      };
    },

    async put(name, value, mark, expected, signal): Promise<Written> {
      if (expected.currentMarkId === markId(mark)) return { version: expected.version, created: false };
      const next = expected.exists ? Number(expected.version) + 1 : 1;
      const { Version } = await call(["write", "PutParameter and ssm:AddTagsToResource"], name, (sdk, client) =>
        client.send(
          new sdk.PutParameterCommand({
            Name: name,
            Value: value,
            Type: "SecureString",
            Description: descriptionOf(mark, next),
            // Tags can only be set when a parameter is created.
            ...(expected.exists ? { Overwrite: true } : { Overwrite: false, Tags: tagsOf(mark) }),
          }),
          abortOption(signal),
        ),
      );
      return { version: String(Version ?? next), created: !expected.exists };
    },

    async adopt(name, mark, signal) {
      await call(["tag", "AddTagsToResource"], name, (sdk, client) =>
        client.send(
          new sdk.AddTagsToResourceCommand({ ResourceType: "Parameter", ResourceId: name, Tags: tagsOf(mark) }),
          abortOption(signal),
        ),
      );
    },

    async remove(name, signal) {
      try {
        await call(["delete", "DeleteParameter"], name, (sdk, client) =>
          client.send(new sdk.DeleteParameterCommand({ Name: name }), abortOption(signal)),
        );
      } catch (error) {
        if (!(error instanceof SyncFailure && error.code === "notFound")) throw error;
      }
    },
  };
}

/** Finds the mark's ID (group 1) and the version (group 2) in a description that `descriptionOf` has returned. */
const DESCRIPTION = /\bmark ([0-9a-f-]{36}), version (\d+)\b/;

/** Returns the description of a parameter. AWS allows 1,024 characters. */
const descriptionOf = (mark: Mark, version: number): string =>
  `Kept in sync with ${mark.source} by ${MANAGED_BY}: mark ${markId(mark)}, version ${version}`;
