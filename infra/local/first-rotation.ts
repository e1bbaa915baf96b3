import { setTimeout as delay } from "node:timers/promises";
import { type Api, ApiError, signInAsAdministrator } from "./api.ts";

// A step of `npm start -- --pro`: rotates a key of a storage account and a client secret of the simulated company.

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

/** A pair of keys of an Azure resource, of which vault secrets store one. */
interface KeyCredential {
  credentialId: string;
  resourceName: string;
  keyInUse: string | null;
  places: { assetId: string }[];
}
interface StartedRun {
  runId: string;
  status: string;
  links: number;
}

const FINAL_STATUSES = ["completed", "failed", "cancelled", "rolledBack", "needsAttention"];
/** Interval of the status requests. */
const POLL_MS = 5_000;
/** Each tried application costs several requests, and the API limits requests per minute. */
const MAX_TRIED_APPS = 10;

/**
 * Rotates a key of a storage account and the client secret of one application of the simulated company through the REST API, and
 * prints each completed step. Does not repeat a rotation that is in the history.
 */
export async function runRotations(
  serviceUrl: string,
  administrator: { username: string; password: string },
): Promise<void> {
  const api = await signInAsAdministrator(serviceUrl, administrator);
  const history = await api<{ items: { appId: string | null; resourceId: string | null }[] }>(
    "GET",
    "/api/automation/rotation/history?limit=100",
  );
  if (!history.items.some(({ resourceId }) => resourceId !== null)) await rotateStorageKey(api, serviceUrl);
  if (!history.items.some(({ appId }) => appId !== null)) await rotateClientSecret(api, serviceUrl);
}

/** Finds the vault secrets that store keys, and rotates the storage account's key that expires first. */
async function rotateStorageKey(api: Api, serviceUrl: string): Promise<void> {
  const path = "/api/automation/rotation/credentials";
  let run = await api<StartedRun>("POST", `${path}/discover`);
  while (run.status === "running") {
    await delay(POLL_MS);
    run = await api<StartedRun>("GET", `${path}/runs/${run.runId}`);
  }
  const { items } = await api<{ items: KeyCredential[] }>("GET", `${path}?kind=storage&due=30`);
  const credential = items.find(({ keyInUse }) => keyInUse !== null);
  if (credential === undefined) return;
  const { credentialId, resourceName, keyInUse, places } = credential;
  const rotation = await api<Rotation>("POST", `${path}/${credentialId}/rotate`, {
    targets: places.map(({ assetId }) => assetId),
    // The service can't read all vaults of the company. None of them stores the other key.
    acceptUnread: true,
  });
  console.log(
    `\nRotating ${keyInUse} of the storage account ${resourceName}, stored in ${places.map(({ assetId }) => assetId).join(", ")}: ${serviceUrl}/#/rotation/${rotation.rotationId}`,
  );
  // In the overlap period, all consumers have the new key.
  await printSteps(api, rotation, [...FINAL_STATUSES, "overlapping"]);
}

async function rotateClientSecret(api: Api, serviceUrl: string): Promise<void> {
  const startedRotation = await startRotation(api);
  if (!startedRotation) return;
  const { app, match, rotation } = startedRotation;
  console.log(
    `\nRotating the client secret of ${app.displayName}, stored in ${match.assetId}: ${serviceUrl}/#/rotation/${rotation.rotationId}`,
  );
  await printSteps(api, rotation, FINAL_STATUSES);
}

/** Prints each completed step of a rotation until it has one of the statuses, or waits for a user. */
async function printSteps(api: Api, started: Rotation, untilStatuses: readonly string[]): Promise<void> {
  let rotation = started;
  const path = `/api/automation/rotation/rotations/${rotation.rotationId}`;
  const printedSteps = new Set<string>();
  for (;;) {
    for (const { name, status } of rotation.steps) {
      if (status !== "done" || printedSteps.has(name)) continue;
      printedSteps.add(name);
      console.log(`  ✓ ${name}`);
    }
    if (untilStatuses.includes(rotation.status) || rotation.needsConfirmation) break;
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
