import { CloudFailure, type FailureCode } from "../../../platform/azure/failure.ts";
import { SyncFailure, type SyncFailureCode } from "../provider.ts";

/** Those that Key Vault answers with; the others are Microsoft Graph's. */
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

/** A failure of Key Vault as one of a sync target. @throws the error itself when it is none. */
export function asSyncFailure(error: unknown): SyncFailure {
  if (error instanceof SyncFailure) return error;
  if (!(error instanceof CloudFailure)) throw error;
  const { message, remedy, cloudCode: providerCode, retryAfterSeconds } = error;
  return new SyncFailure(CODES[error.code] ?? "badResponse", message, { remedy, providerCode, retryAfterSeconds });
}
