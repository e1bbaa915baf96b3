import { Agent } from "node:https";
import { SECOND_MS } from "../../../platform/time.ts";
import type { ProviderCall } from "../failures.ts";
import { MANAGED_BY, ownerNamed } from "../ownership-mark.ts";
import type { Mark } from "../provider.ts";
import type { AwsSecrets } from "./configuration.ts";
import { awsFailure } from "./failures.ts";

/** The address to which requests are sent. */
export interface AwsAddress {
  region: string;
  /**
   * Whether the access key was tested in this region: the region of the configuration. In any other region an unknown key can
   * also mean that the region is not enabled in the account.
   */
  isTested: boolean;
  /** Address to use instead of the region's public address. */
  endpoint: string | undefined;
}

/** Connections to AWS, kept open briefly for the next calls. */
const connections = new Agent({ keepAlive: true, maxSockets: 8, timeout: 4 * SECOND_MS });

/**
 * Options for clients of the SDK. Throttled and unanswered requests are sent three times in all, within 2 seconds, unless
 * `maxAttempts` says otherwise.
 */
export const clientOptions = ({ region, endpoint }: AwsAddress, credentials: AwsSecrets, maxAttempts = 3) => ({
  region,
  credentials,
  ...(endpoint !== undefined && { endpoint }),
  retryMode: "standard" as const,
  maxAttempts,
  requestHandler: {
    httpsAgent: connections,
    connectionTimeout: 5 * SECOND_MS,
    requestTimeout: 30 * SECOND_MS,
    throwOnRequestTimeout: true,
  },
});

/** Sends a call and converts errors of the SDK. @throws {SyncFailure} for all errors. */
export async function awsCall<T>(address: AwsAddress, call: ProviderCall, send: () => Promise<T>): Promise<T> {
  try {
    return await send();
  } catch (error) {
    throw awsFailure(error, call, address.isTested);
  }
}

/** Key of the tag with the ID of the record that owns the target. */
export const RECORD_TAG = "sync-record";

/**
 * Returns a mark as tags. They are within the limits of AWS: keys of 128 characters, values of 256.
 * https://docs.aws.amazon.com/general/latest/gr/aws_tagging.html
 */
export const tagsOf = ({ recordId, source }: Mark) => [
  { Key: "managed-by", Value: MANAGED_BY },
  { Key: RECORD_TAG, Value: recordId },
  { Key: "sync-source", Value: source },
];

/** Returns the record that the tags name as the owner, or null. */
export const ownerIn = (tags: readonly { Key?: string | undefined; Value?: string | undefined }[]): string | null =>
  ownerNamed(tags.find(({ Key }) => Key === RECORD_TAG)?.Value);
