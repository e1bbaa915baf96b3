import { CloudFailure } from "../platform/azure/failure.ts";
import type { Graph, GraphApplication } from "../platform/azure/graph.ts";
import { type ApplicationRecord, byKeyId, credentialsOf } from "./application.ts";

/** An application as it was read. The stored row adds when it was first seen. */
export type ReadApplication = Omit<ApplicationRecord, "firstSeenAt" | "details">;

/** Everything that Graph lists. A list that could not be read completely is a failure without data. */
export interface Listing {
  applications: GraphApplication[] | CloudFailure;
  servicePrincipals: GraphApplication[] | CloudFailure;
  /** Object IDs of applications with federated credentials. Undefined if Graph does not return them. */
  federated: ReadonlySet<string> | undefined;
}

/** Reads both lists one after the other, because Graph counts them together for throttling. One request per page. */
export async function readAll(
  graph: Pick<Graph, "applications" | "servicePrincipals" | "federatedApplications">,
  signal: AbortSignal,
): Promise<Listing> {
  const applications = await listed(graph.applications(signal));
  // The second list is requested even if the first failed. Some failures affect both, but one that depends on time may be over.
  const servicePrincipals = await listed(graph.servicePrincipals(signal));
  const federated = await listed(graph.federatedApplications(signal));
  return {
    applications,
    servicePrincipals,
    // Not every tenant supports this query, and only a compliance check needs it, so its failure is ignored.
    federated: federated instanceof CloudFailure ? undefined : new Set(federated),
  };
}

async function listed<T>(pages: AsyncGenerator<T[]>): Promise<T[] | CloudFailure> {
  const all: T[] = [];
  try {
    for await (const page of pages) all.push(...page);
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    return error;
  }
  return all;
}

/** Changes since a delta link: by object ID the newest state, or undefined if it was deleted. */
export interface Changes {
  applications: Map<string, GraphApplication | undefined>;
  deltaLink: string;
}

/** @throws {CloudFailure} */
export async function readChanges(graph: Pick<Graph, "changes">, link: string, signal: AbortSignal): Promise<Changes> {
  const applications = new Map<string, GraphApplication | undefined>();
  let deltaLink = link;
  for await (const page of graph.changes(link, signal)) {
    for (const one of page.changed) applications.set(one.objectId, one);
    for (const objectId of page.removed) applications.set(objectId, undefined);
    deltaLink = page.deltaLink ?? deltaLink;
  }
  return { applications, deltaLink };
}

/** The next delta link. Undefined if the identity may not read changes. */
export async function startOfChanges(graph: Pick<Graph, "changes">, signal: AbortSignal): Promise<string | undefined> {
  try {
    let link: string | undefined;
    for await (const { deltaLink } of graph.changes(undefined, signal)) link = deltaLink ?? link;
    return link;
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    return undefined;
  }
}

/**
 * Joins an application and its service principal in this tenant, which share the client ID. Either may be missing.
 *
 * @param known - The stored application, for data that this reading does not contain.
 */
export function merged(
  application: GraphApplication | undefined,
  servicePrincipal:
    | (Pick<GraphApplication, "objectId" | "appId" | "displayName"> & {
        credentials: ApplicationRecord["credentials"];
      })
    | undefined,
  known: Pick<ApplicationRecord, "federated" | "owners">,
): ReadApplication | undefined {
  const main = application ?? servicePrincipal;
  if (!main) return undefined;
  const own = application ? credentialsOf(application) : [];
  const keyIds = new Set(own.map(({ keyId }) => keyId));
  const beside = servicePrincipal?.credentials.filter(({ keyId }) => !keyIds.has(keyId)) ?? [];
  const owners = application?.owners ?? known.owners;
  return {
    appId: main.appId,
    objectId: main.objectId,
    kind: application ? "application" : "servicePrincipal",
    displayName: main.displayName,
    ...(application?.signInAudience === undefined ? {} : { signInAudience: application.signInAudience }),
    ...(application?.createdOn === undefined ? {} : { createdOn: application.createdOn }),
    ...(owners === undefined ? {} : { owners: [...owners].sort((a, b) => (a.id < b.id ? -1 : 1)) }),
    ...(known.federated === undefined ? {} : { federated: known.federated }),
    credentials: [...own, ...beside].sort(byKeyId),
  };
}
