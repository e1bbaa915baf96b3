import { CloudFailure, type FailureCode } from "../../../platform/azure/failure.ts";
import { SyncFailure, type SyncFailureCode } from "../provider.ts";

/** Codes of sync failures by the codes of Azure failures. Codes that Key Vault does not cause are missing. */
const CODES: Partial<Record<FailureCode, SyncFailureCode>> = {
  accessDenied: "accessDenied",
  firewall: "accessDenied",
  notFound: "notFound",
  throttled: "throttled",
  unreachable: "unreachable",
  timedOut: "unreachable",
  badResponse: "badResponse",
  foreignHost: "targetRefused",
  unauthenticated: "badCredentials",
  deleted: "targetDeleted",
  disabled: "targetRefused",
  conflict: "changedMeanwhile",
};

/** Converts a failure of Key Vault into one of the sync target. @throws other errors unchanged. */
export function asSyncFailure(error: unknown): SyncFailure {
  if (error instanceof SyncFailure) return error;
  if (!(error instanceof CloudFailure)) throw error;
  const { message, remedy, cloudCode: providerCode, retryAfterSeconds } = error;
  return new SyncFailure(CODES[error.code] ?? "badResponse", message, { remedy, providerCode, retryAfterSeconds });
}
