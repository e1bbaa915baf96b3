import { CloudFailure, failure, TRANSIENT_CODES } from "../platform/azure/failure.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import { Problem, retryLater } from "../platform/http/problem.ts";

/** Seconds a caller is asked to wait when a service gave no time of its own. */
const RETRY_SECONDS = 10;

/** 409 for what does not go as things are. */
export const conflict = (detail: string): Problem => new Problem("conflict", detail);

/** 409 that names the rotation which is not over. */
export const rotationUnfinished = (rotationId: string): Problem =>
  new Problem("rotationUnfinished", `Rotation ${rotationId} of the same is not over. Follow, finish or cancel it.`, {
    members: { rotationId },
  });

/** 409 where a new secret could not be held. */
export const noServiceVault = (): Problem =>
  conflict("A new secret is held in the service's own key vault until it is in use. Set SERVICE_KEY_VAULT_URL.");

/** Where there is no vault nothing began that would need one. */
export const noVault: ServiceKeyVault = {
  readTags: () => Promise.reject(noServiceVault()),
  writeTags: () => Promise.reject(noServiceVault()),
  readSecret: () => Promise.reject(noServiceVault()),
  readNewest: () => Promise.reject(noServiceVault()),
  writeSecret: () => Promise.reject(noServiceVault()),
  removeSecret: () => Promise.reject(noServiceVault()),
};

/** What the cloud refuses while a caller waits. */
export function asProblem(error: unknown): never {
  if (!(error instanceof CloudFailure)) throw error;
  const detail = `Nothing was done. ${error.message} ${error.remedy}`;
  throw retryLater("unavailable", detail, error.retryAfterSeconds ?? RETRY_SECONDS);
}

const PASSING = new Set([...TRANSIENT_CODES, "badResponse", "conflict", "concurrency", "unauthenticated"]);
/** Whether the same call may succeed later without anybody's help. */
export const isPassing = ({ code }: CloudFailure): boolean => PASSING.has(code);

/** The failure of a sign-in whose answer says nothing about the secret. It is passing: the same sign-in may be answered later. */
export const signInUnclear = (appId: string): CloudFailure =>
  failure(
    "unreachable",
    { operation: "sign in with a client secret", resource: `application ${appId}` },
    "the sign-in service gave no clear answer",
    { remedy: "Look for an outage of Microsoft Entra at https://status.azure.com, then try again." },
  );
