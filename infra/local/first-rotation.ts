import { setTimeout as delay } from "node:timers/promises";
import { type Api, asAdministrator, Refused } from "./api.ts";

interface App {
  appId: string;
  displayName: string;
  rotatable: boolean;
  credentials: { keyId: string; kind: string; status: string }[];
}
interface Match {
  assetId: string;
  keyId: string | null;
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

const ENDED = ["completed", "failed", "cancelled", "rolledBack", "needsAttention"];
const POLL_MS = 5_000;

/**
 * Rotates the client secret of one application of the simulated company through the REST API, and prints each completed step.
 * Does nothing if the rotation history is not empty.
 */
export async function runRotation(base: string, administrator: { username: string; password: string }): Promise<void> {
  const api = await asAdministrator(base, administrator);
  const history = await api<{ total: number }>("GET", "/api/automation/rotation/history?limit=1");
  if (history.total > 0) return;
  const started = await startRotation(api);
  if (!started) return;
  const { app, match } = started;
  let { rotation } = started;
  const path = `/api/automation/rotation/rotations/${rotation.rotationId}`;
  console.log(`\nRotating the client secret of ${app.displayName}, stored in ${match.assetId}: ${base}${path}`);
  const reported = new Set<string>();
  for (;;) {
    for (const { name, status } of rotation.steps) {
      if (status !== "done" || reported.has(name)) continue;
      reported.add(name);
      console.log(`  ✓ ${name}`);
    }
    if (ENDED.includes(rotation.status) || rotation.needsConfirmation) break;
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

/** Starts the rotation of the first application that has one client secret and a vault secret with the same value. */
async function startRotation(api: Api): Promise<StartedRotation | undefined> {
  const { items } = await api<{ items: App[] }>("GET", "/api/automation/rotation/apps?rotatable=true&limit=100");
  const simple = items.filter(({ credentials }) => credentials.length === 1 && credentials[0]!.kind === "secret");
  for (const app of simple.slice(0, 10)) {
    const matches = await api<{ items: Match[] }>("GET", `/api/automation/rotation/apps/${app.appId}/matches`);
    // A second likely match would keep the old secret until a user confirms it.
    const [match, ...more] = matches.items.filter(({ confidence }) => confidence !== "possible");
    if (!match?.keyId || more.length > 0) continue;
    const verify = `/api/automation/rotation/apps/${app.appId}/matches/verify`;
    const { result } = await api<{ result: string }>("POST", verify, { assetId: match.assetId });
    if (result !== "accepted") continue;
    const body = { appId: app.appId, secretId: match.keyId, expiryDays: 180, updateKeyVaults: true, overlapDays: 0 };
    try {
      return { app, match, rotation: await api<Rotation>("POST", "/api/automation/rotation/rotate", body) };
    } catch (error) {
      // The rotation is rejected because a consumer references a fixed version of the secret.
      if (!(error instanceof Refused) || error.problem.code !== "willBreak") throw error;
    }
  }
  return undefined;
}
