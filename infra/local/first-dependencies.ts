import { setTimeout as delay } from "node:timers/promises";
import { type Api, signInAsAdministrator } from "./api.ts";
import { printTable } from "./table.ts";

// A step of `npm start -- --pro`: shows which resources use a secret.

/** A run of the dependency discovery. Counts are null until the run has ended. */
interface Run {
  runId: string;
  status: string;
  resources: number | null;
  edges: number | null;
  /** Number of scopes, such as resource groups, that the discovery could not read. */
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

const DEPENDENCIES_PATH = "/api/assets/dependencies";
/** Interval of the status requests. */
const POLL_MS = 1500;
/** Number of consumers to print. */
const PRINTED_CONSUMERS = 8;

/**
 * Runs a dependency discovery through the REST API. Prints the result, and the blast radius of the asset that most resources
 * reference.
 */
export async function runDependencyDiscovery(
  serviceUrl: string,
  administrator: { username: string; password: string },
): Promise<void> {
  const api = await signInAsAdministrator(serviceUrl, administrator);
  let run = await api<Run>("POST", `${DEPENDENCIES_PATH}/discover`);
  while (run.status === "queued" || run.status === "running") {
    await delay(POLL_MS);
    run = await api<Run>("GET", `${DEPENDENCIES_PATH}/runs/${run.runId}`);
  }
  const { status, resources, edges, notSeen } = run;
  console.log(
    `\nThe dependency discovery is ${status}: ${resources ?? 0} consumers with ${edges ?? 0} dependencies; ${notSeen ?? 0} scopes could not be read (${serviceUrl}/#/dependencies).`,
  );
  const secret = await findMostReferencedAsset(api);
  if (secret === undefined) return;
  const radius = await api<BlastRadius>("GET", `${DEPENDENCIES_PATH}/blast-radius/${encodeURIComponent(secret)}`);
  console.log(`\nBlast radius of ${secret}: ${radius.total} consumers, score ${radius.score} of 100\n`);
  printTable([
    ["consumer", "kind", "environment", "effect"],
    ...radius.consumers
      .slice(0, PRINTED_CONSUMERS)
      .map(({ resource: { name, kind, environment }, effect }) => [name, kind, environment ?? "-", effect]),
  ]);
}

/** Returns the ID of the asset that most resources reference. Undefined if no resource references an asset. */
async function findMostReferencedAsset(api: Api): Promise<string | undefined> {
  // `strength=references` leaves out resources that have access to a secret, but do not name it in their configuration.
  const { items } = await api<{ items: Dependency[] }>("GET", `${DEPENDENCIES_PATH}?strength=references&limit=1000`);
  const referenceCounts = new Map<string, number>();
  for (const { secret } of items)
    if (secret !== null) referenceCounts.set(secret, (referenceCounts.get(secret) ?? 0) + 1);
  return [...referenceCounts].sort((a, b) => b[1] - a[1])[0]?.[0];
}
