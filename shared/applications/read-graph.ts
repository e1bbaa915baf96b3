import { CloudFailure } from "../platform/azure/failure.ts";
import type { Graph, GraphApplication } from "../platform/azure/graph.ts";
import { type ApplicationRecord, byKeyId, credentialsOf, joinSigningCertificates } from "./application.ts";

// Reads applications and service principals from Microsoft Graph and joins them.

/** An application as read from Graph. The stored row adds the time when it was first seen, and details. */
export type ReadApplication = Omit<ApplicationRecord, "firstSeenAt" | "details">;

/** The result of listing all applications. A list that could not be read completely is a failure without data. */
export interface Listing {
  applications: GraphApplication[] | CloudFailure;
  servicePrincipals: GraphApplication[] | CloudFailure;
  /** Object IDs of applications with federated credentials. Undefined if Graph does not return them. */
  federated: ReadonlySet<string> | undefined;
}

/** Reads the three lists one after the other, because Graph counts them together for throttling. One request per page. */
export async function readAll(
  graph: Pick<Graph, "applications" | "servicePrincipals" | "federatedApplications">,
  signal: AbortSignal,
): Promise<Listing> {
  const applications = await readAllPages(graph.applications(signal));
  // The second list is requested even if the first failed, because the failure may be temporary.
  const servicePrincipals = await readAllPages(graph.servicePrincipals(signal));
  const federated = await readAllPages(graph.federatedApplications(signal));
  return {
    applications,
    servicePrincipals,
    // Not every tenant supports this query, and only a compliance check needs it, so its failure is ignored.
    federated: federated instanceof CloudFailure ? undefined : new Set(federated),
  };
}

async function readAllPages<T>(pages: AsyncGenerator<T[]>): Promise<T[] | CloudFailure> {
  const items: T[] = [];
  try {
    for await (const page of pages) items.push(...page);
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    return error;
  }
  return items;
}

/** Changes since a delta link. */
export interface Changes {
  /** The newest state of each changed application by object ID. Undefined if the application was deleted. */
  applications: Map<string, GraphApplication | undefined>;
  /** The delta link for the next reading. */
  deltaLink: string;
}

/** Reads the changes since a delta link. @throws {CloudFailure} */
export async function readChanges(graph: Pick<Graph, "changes">, link: string, signal: AbortSignal): Promise<Changes> {
  const applications = new Map<string, GraphApplication | undefined>();
  let deltaLink = link;
  for await (const page of graph.changes(link, signal)) {
    for (const application of page.changed) applications.set(application.objectId, application);
    for (const objectId of page.removed) applications.set(objectId, undefined);
    deltaLink = page.deltaLink ?? deltaLink;
  }
  return { applications, deltaLink };
}

/** Returns a delta link for changes from now. Undefined if the identity has no permission to read changes. */
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
export function joinApplication(
  application: GraphApplication | undefined,
  servicePrincipal:
    | (Pick<GraphApplication, "objectId" | "appId" | "displayName"> & {
        credentials: ApplicationRecord["credentials"];
      })
    | undefined,
  known: Pick<ApplicationRecord, "federated" | "owners">,
): ReadApplication | undefined {
  const primary = application ?? servicePrincipal;
  if (!primary) return undefined;
  const ownCredentials = application ? credentialsOf(application) : [];
  // A credential that Graph lists for both belongs to the application.
  const keyIds = new Set(ownCredentials.map(({ keyId }) => keyId));
  const principalCredentials = servicePrincipal?.credentials.filter(({ keyId }) => !keyIds.has(keyId)) ?? [];
  const owners = application?.owners ?? known.owners;
  return {
    appId: primary.appId,
    objectId: primary.objectId,
    kind: application ? "application" : "servicePrincipal",
    displayName: primary.displayName,
    ...(application?.signInAudience === undefined ? {} : { signInAudience: application.signInAudience }),
    ...(application?.createdOn === undefined ? {} : { createdOn: application.createdOn }),
    ...(owners === undefined ? {} : { owners: [...owners].sort((a, b) => (a.id < b.id ? -1 : 1)) }),
    ...(known.federated === undefined ? {} : { federated: known.federated }),
    credentials: joinSigningCertificates([...ownCredentials, ...principalCredentials]).sort(byKeyId),
  };
}
