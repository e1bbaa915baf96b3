import { setTimeout as delay } from "node:timers/promises";
import { type Api, asAdministrator } from "./api.ts";
import { printTable } from "./table.ts";

interface Run {
  runId: string;
  status: string;
  resources: number | null;
  edges: number | null;
  notSeen: number | null;
}
interface Dependency {
  secret: string | null;
}
interface BlastRadius {
  score: number;
  total: number;
  consumers: { resource: { name: string; kind: string; environment: string | null }; effect: string }[];
}

const BASE = "/api/assets/dependencies";
const POLL_MS = 1500;
/** Number of consumers to print. */
const PRINTED_CONSUMERS = 8;

/**
 * Runs a dependency discovery through the REST API. Prints the result, and the blast radius of the asset that most resources
 * reference.
 */
export async function readDependencies(
  base: string,
  administrator: { username: string; password: string },
): Promise<void> {
  const api = await asAdministrator(base, administrator);
  let run = await api<Run>("POST", `${BASE}/discover`);
  while (run.status === "queued" || run.status === "running") {
    await delay(POLL_MS);
    run = await api<Run>("GET", `${BASE}/runs/${run.runId}`);
  }
  const { status, resources, edges, notSeen } = run;
  console.log(
    `\nThe dependency discovery is ${status}: ${resources ?? 0} consumers with ${edges ?? 0} dependencies; ${notSeen ?? 0} scopes could not be read (${base}${BASE}/coverage).`,
  );
  const secret = await mostUsed(api);
  if (secret === undefined) return;
  const radius = await api<BlastRadius>("GET", `${BASE}/blast-radius/${encodeURIComponent(secret)}`);
  console.log(`\nBlast radius of ${secret}: ${radius.total} consumers, score ${radius.score} of 100\n`);
  printTable([
    ["consumer", "kind", "environment", "effect"],
    ...radius.consumers
      .slice(0, PRINTED_CONSUMERS)
      .map(({ resource: { name, kind, environment }, effect }) => [name, kind, environment ?? "-", effect]),
  ]);
}

/** Returns the asset that most resources reference. */
async function mostUsed(api: Api): Promise<string | undefined> {
  const { items } = await api<{ items: Dependency[] }>("GET", `${BASE}?strength=references&limit=1000`);
  const uses = new Map<string, number>();
  for (const { secret } of items) if (secret !== null) uses.set(secret, (uses.get(secret) ?? 0) + 1);
  return [...uses].sort((a, b) => b[1] - a[1])[0]?.[0];
}
