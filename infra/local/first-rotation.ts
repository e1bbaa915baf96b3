import { setTimeout as delay } from "node:timers/promises";
import { type Api, ApiError, signInAsAdministrator } from "./api.ts";

// A step of `npm start -- --pro`: rotates one client secret of the simulated company.

interface App {
  appId: string;
  displayName: string;
  rotatable: boolean;
  credentials: { keyId: string; kind: string; status: string }[];
}
/** A vault secret that probably contains the client secret of the application. */
interface Match {
  assetId: string;
  keyId: string | null;
  /** `certain`, `likely` or `possible`. */
  confidence: string;
}
interface Rotation {
  rotationId: string;
  status: string;
  newKeyId: string | null;
  steps: { name: string; status: string }[];
  needsConfirmation: boolean;
  reasons: string[];
}

const FINAL_STATUSES = ["completed", "failed", "cancelled", "rolledBack", "needsAttention"];
/** Interval of the status requests. */
const POLL_MS = 5_000;
/** Each tried application costs several requests, and the API limits requests per minute. */
const MAX_TRIED_APPS = 10;

/**
 * Rotates the client secret of one application of the simulated company through the REST API, and prints each completed step.
 * Does nothing if the rotation history is not empty.
 */
export async function runRotation(
  serviceUrl: string,
  administrator: { username: string; password: string },
): Promise<void> {
  const api = await signInAsAdministrator(serviceUrl, administrator);
  const history = await api<{ total: number }>("GET", "/api/automation/rotation/history?limit=1");
  if (history.total > 0) return;
  const startedRotation = await startRotation(api);
  if (!startedRotation) return;
  const { app, match } = startedRotation;
  let { rotation } = startedRotation;
  const path = `/api/automation/rotation/rotations/${rotation.rotationId}`;
  console.log(
    `\nRotating the client secret of ${app.displayName}, stored in ${match.assetId}: ${serviceUrl}/#/rotation/${rotation.rotationId}`,
  );
  const printedSteps = new Set<string>();
  for (;;) {
    for (const { name, status } of rotation.steps) {
      if (status !== "done" || printedSteps.has(name)) continue;
      printedSteps.add(name);
      console.log(`  ✓ ${name}`);
    }
    if (FINAL_STATUSES.includes(rotation.status) || rotation.needsConfirmation) break;
    await delay(POLL_MS);
    rotation = await api<Rotation>("GET", path);
  }
  for (const reason of rotation.reasons) console.log(`  ${reason}`);
  console.log(
    `  The rotation is ${rotation.status}${rotation.newKeyId ? `; the new key id is ${rotation.newKeyId}` : ""}.`,
  );
}

interface StartedRotation {
  app: App;
  match: Match;
  rotation: Rotation;
}

/**
 * Starts the rotation of the first suitable application: it has one client secret, and exactly one vault secret is known to
 * have the same value. Undefined if no application is suitable.
 */
async function startRotation(api: Api): Promise<StartedRotation | undefined> {
  const { items } = await api<{ items: App[] }>("GET", "/api/automation/rotation/apps?rotatable=true&limit=100");
  const appsWithOneSecret = items.filter(
    ({ credentials }) => credentials.length === 1 && credentials[0]!.kind === "secret",
  );
  for (const app of appsWithOneSecret.slice(0, MAX_TRIED_APPS)) {
    const matches = await api<{ items: Match[] }>("GET", `/api/automation/rotation/apps/${app.appId}/matches`);
    // With a second likely match, the rotation would wait until a user confirms that match.
    const [match, ...otherMatches] = matches.items.filter(({ confidence }) => confidence !== "possible");
    if (!match?.keyId || otherMatches.length > 0) continue;
    const verifyPath = `/api/automation/rotation/apps/${app.appId}/matches/verify`;
    const { result } = await api<{ result: string }>("POST", verifyPath, { assetId: match.assetId });
    if (result !== "accepted") continue;
    const body = { appId: app.appId, secretId: match.keyId, expiryDays: 180, updateKeyVaults: true, overlapDays: 0 };
    try {
      return { app, match, rotation: await api<Rotation>("POST", "/api/automation/rotation/rotate", body) };
    } catch (error) {
      // `willBreak`: the service rejects the rotation, because a consumer references a fixed version of the secret.
      if (!(error instanceof ApiError) || error.problem.code !== "willBreak") throw error;
    }
  }
  return undefined;
}
