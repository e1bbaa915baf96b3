import { CloudFailure } from "../platform/azure/failure.ts";
import type { Graph, GraphApplication } from "../platform/azure/graph.ts";
import { type ApplicationRecord, byKeyId, credentialsOf } from "./application.ts";

/** An application as it was read; when it was first seen is for the rows to say. */
export type ReadApplication = Omit<ApplicationRecord, "firstSeenAt" | "details">;

/** All that Graph lists; a list that could not be read to its end is a failure and says nothing. */
export interface Listing {
  applications: GraphApplication[] | CloudFailure;
  servicePrincipals: GraphApplication[] | CloudFailure;
  /** Object ids of those with federated credentials; undefined where Graph does not tell. */
  federated: ReadonlySet<string> | undefined;
}

/** One request a page. Both lists one after the other: Graph counts them together. */
export async function readAll(
  graph: Pick<Graph, "applications" | "servicePrincipals" | "federatedApplications">,
  signal: AbortSignal,
): Promise<Listing> {
  const applications = await listed(graph.applications(signal));
  // What the first list was refused for, such as a sign-in that fails, the second would be, too: it is asked all the same,
  // since it takes the same permission but not the same time.
  const servicePrincipals = await listed(graph.servicePrincipals(signal));
  const federated = await listed(graph.federatedApplications(signal));
  return {
    applications,
    servicePrincipals,
    // Not every tenant can answer this, and only a check of compliance asks it: it is no failure.
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

/** What changed since a delta link: by object id the newest state, or undefined where it is gone. */
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

/** Where the next reading of changes goes on; undefined where the identity may not ask for changes. */
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
 * An application and its service principal here as one: they share the client id. Either may be missing.
 *
 * @param known - From before, where this reading does not say.
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
