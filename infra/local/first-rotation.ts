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
 * Has the client secret of one application of the stand-in company rotated, over the REST API as an administrator would, and
 * prints each step when it is done. Nothing happens when one was rotated before.
 */
export async function runRotation(base: string, administrator: { username: string; password: string }): Promise<void> {
  const api = await asAdministrator(base, administrator);
  const history = await api<{ total: number }>("GET", "/api/automation/rotation/history?limit=1");
  if (history.total > 0) return;
  const begun = await begin(api);
  if (!begun) return;
  const { app, match } = begun;
  let { rotation } = begun;
  const path = `/api/automation/rotation/rotations/${rotation.rotationId}`;
  console.log(`\nRotating the client secret of ${app.displayName}, which ${match.assetId} holds: ${base}${path}`);
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

interface Begun {
  app: App;
  match: Match;
  rotation: Rotation;
}

/** Rotates the first application with one client secret whose vault secret can be told: its value signs in. */
async function begin(api: Api): Promise<Begun | undefined> {
  const { items } = await api<{ items: App[] }>("GET", "/api/automation/rotation/apps?rotatable=true&limit=100");
  const simple = items.filter(({ credentials }) => credentials.length === 1 && credentials[0]!.kind === "secret");
  for (const app of simple.slice(0, 10)) {
    const matches = await api<{ items: Match[] }>("GET", `/api/automation/rotation/apps/${app.appId}/matches`);
    // Another place that is likely to hold it would keep the old secret until a person says so.
    const [match, ...more] = matches.items.filter(({ confidence }) => confidence !== "possible");
    if (!match?.keyId || more.length > 0) continue;
    const verify = `/api/automation/rotation/apps/${app.appId}/matches/verify`;
    const { result } = await api<{ result: string }>("POST", verify, { assetId: match.assetId });
    if (result !== "accepted") continue;
    const body = { appId: app.appId, secretId: match.keyId, expiryDays: 180, updateKeyVaults: true, overlapDays: 0 };
    try {
      return { app, match, rotation: await api<Rotation>("POST", "/api/automation/rotation/rotate", body) };
    } catch (error) {
      // One of its consumers is pinned to a version.
      if (!(error instanceof Refused) || error.problem.code !== "willBreak") throw error;
    }
  }
  return undefined;
}
