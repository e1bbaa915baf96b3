import { DAY_MS } from "../platform/time.ts";
import type { ApplicationCredential, ApplicationRecord } from "./application.ts";

// When client secrets were last used, as far as sign-in logs show it. Without complete logs, a secret is never said to be idle.

/** Sign-ins of applications with their own credentials, from the logs of the configured workspaces. */
export interface SignInEvidence {
  /** Number of configured workspaces. */
  workspaces: number;
  /**
   * Time since when at least one current log has the sign-ins of all applications. Undefined if no workspace is current or
   * contains sign-ins.
   */
  completeSince: string | undefined;
  /** Time until which that log was read. Later sign-ins are unknown. Undefined without `completeSince`. */
  completeUntil: string | undefined;
  /** Returns the time of the last logged sign-in with a credential. Undefined if no log has one. */
  lastSignIn(credential: { appId: string; keyId: string }): string | undefined;
}

/** Use of one client secret. Times are ISO 8601. */
export interface CredentialUsage {
  lastUsedAt: string | undefined;
  /** Number of whole days without use that complete logs prove. Undefined without such logs. */
  idleDays: number | undefined;
  /** Says what the logs show, in a sentence. */
  evidence: string;
}

/** Uses that the log of sign-ins never shows. */
export const BLIND_SPOTS = ["userSignIns", "logGaps"] as const;
export const BLIND_SPOT_TEXTS: Record<(typeof BLIND_SPOTS)[number], string> = {
  userSignIns:
    "sign-ins of users in which the application uses the secret (authorization code, on-behalf-of, resource owner password) are in other log tables, without the ID of the secret",
  logGaps: "a sign-in during a gap of the log of up to four days is missing",
};

/** Returns whether a credential is a client secret, whose use the log of sign-ins shows. */
export const isClientSecret = ({ kind }: Pick<ApplicationCredential, "kind">): boolean => kind === "secret";

/**
 * Returns the use of a client secret. The idle time starts at the latest of its creation, its last use and the log's start, and ends
 * when the log was last read.
 */
export function usageOf(
  { appId }: Pick<ApplicationRecord, "appId">,
  { keyId, startsOn }: Pick<ApplicationCredential, "keyId" | "startsOn">,
  evidence: SignInEvidence,
): CredentialUsage {
  const lastUsedAt = evidence.lastSignIn({ appId, keyId });
  const { completeSince, completeUntil } = evidence;
  if (completeSince === undefined || completeUntil === undefined)
    return { lastUsedAt, idleDays: undefined, evidence: withoutLog(evidence, lastUsedAt) };
  const idleSince = Math.max(Date.parse(completeSince), startsOn === undefined ? 0 : startsOn * 1000);
  const unusedSince = Math.max(idleSince, Date.parse(lastUsedAt ?? completeSince));
  const idleDays = Math.max(0, Math.floor((Date.parse(completeUntil) - unusedSince) / DAY_MS));
  const since = completeSince.slice(0, 10);
  const text =
    lastUsedAt === undefined
      ? `No sign-in with it is in the log, which is complete since ${since}.`
      : `The last sign-in with it in the log was on ${lastUsedAt.slice(0, 10)}. The log is complete since ${since}.`;
  return { lastUsedAt, idleDays, evidence: text };
}

function withoutLog({ workspaces }: SignInEvidence, lastUsedAt: string | undefined): string {
  if (workspaces === 0)
    return "Unknown: no Log Analytics workspace is configured. Send the category ServicePrincipalSignInLogs of Microsoft Entra to a workspace, and set LOG_ANALYTICS_WORKSPACE_IDS.";
  const last = lastUsedAt === undefined ? "" : ` The last known sign-in was on ${lastUsedAt.slice(0, 10)}.`;
  return `Unknown: no configured workspace has current sign-ins of applications. Check the category ServicePrincipalSignInLogs in the diagnostic settings of Microsoft Entra, and the coverage of dependencies.${last}`;
}
