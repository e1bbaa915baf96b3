import { SyncFailure, type SyncFailureCode } from "./provider.ts";

/** A call to a provider, described for failure messages. */
export interface ProviderCall {
  /** Completes "Could not …", such as `write the secret app/db`. */
  operation: string;
  /** The called service and where it is, such as `AWS Secrets Manager in eu-west-1`. */
  provider: string;
  /** Completes "Give the configured credential …". */
  grant: string;
}

interface Details {
  providerCode?: string | undefined;
  retryAfterSeconds?: number | undefined;
  /** Replaces the default remedy of the code. */
  remedy?: string | undefined;
}

const REMEDIES = {
  badCredentials: ({ provider }: ProviderCall) =>
    `Configure the provider again with credentials that ${provider} accepts. The service stops using these credentials until then.`,
  accessDenied: ({ grant }: ProviderCall) => `Give the configured credential ${grant}.`,
  throttled: () => "No action needed: the service retries later. If it persists, run fewer records per hour.",
  unreachable: ({ provider }: ProviderCall) =>
    `Check that ${provider} is available and reachable from this service. The service retries later.`,
  badResponse: ({ provider }: ProviderCall) =>
    `Check that ${provider} responds, and not a proxy or sign-in page in front of it. The service retries later.`,
  notFound: () => "The target may have been deleted in the meantime. The next run reads it again and creates it.",
  targetNotOwned: () => "Choose another target secret name, or allow the sync to overwrite an existing secret (adopt).",
  targetRefused: () => "Choose another target secret name.",
  targetDeleted: () => "The next run recovers it within its recovery window. After that it can be created again.",
  changedMeanwhile: () => "Someone else changed it at the same time. The next run checks again.",
  tooLarge: () => "Shorten the secret, or sync it to a provider with a higher limit.",
  invalidName: () => "Choose a name that the provider accepts.",
  limitReached: ({ provider }: ProviderCall) => `Delete unused items in ${provider}, or request a higher quota.`,
  encryption: () =>
    "Check the encryption key of the target: that it exists, is enabled, and may be used by the credential.",
} satisfies Partial<Record<SyncFailureCode, (call: ProviderCall) => string>>;

/** Codes of failed calls to a provider. The other codes describe records that could not be run. */
export type ProviderFailureCode = keyof typeof REMEDIES;

/**
 * Creates the failure of a call, with a reason that completes "Could not … (…): ". Contains nothing of the answer except the
 * provider's short code.
 */
export function syncFailure(
  code: ProviderFailureCode,
  call: ProviderCall,
  reason: string,
  { remedy, ...details }: Details = {},
): SyncFailure {
  const providerCode = shortCode(details.providerCode);
  const reasonText = providerCode === undefined ? reason : `${reason} (${providerCode})`;
  return new SyncFailure(code, `Could not ${call.operation} (${call.provider}): ${reasonText}.`, {
    ...details,
    providerCode,
    remedy: remedy ?? (REMEDIES[code] as (call: ProviderCall) => string)(call),
  });
}

/** Returns the provider's own code if it is as short as codes are. Other texts may contain anything and are dropped. */
const shortCode = (code: string | undefined): string | undefined =>
  code !== undefined && /^[A-Za-z][A-Za-z0-9_.-]{0,63}$/.test(code) ? code : undefined;
