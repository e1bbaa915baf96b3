import * as z from "zod";
import { type ResourceGraph, toQueryLiteral } from "../platform/azure/resource-graph.ts";

/**
 * Reads from Azure which issuers and subjects a consumer can present. Members that Azure does not show are absent. Azure Resource
 * Graph can be some minutes old, and has no row for a resource that the identity can't read.
 */
export interface WorkloadClaims {
  issuers?: string[];
  subjects?: string[];
}

/** Kinds of consumers whose user-assigned identities are the subjects of their tokens. */
const WITH_IDENTITIES: readonly string[] = [
  "webApp",
  "functionApp",
  "containerApp",
  "containerAppJob",
  "virtualMachine",
];

const Row = z.looseObject({
  id: z.string(),
  identities: z.record(z.string(), z.looseObject({ principalId: z.string().nullish() })).nullish(),
  issuer: z.string().nullish(),
});

/** @throws {CloudFailure} */
export async function readWorkloadClaims(
  resourceGraph: ResourceGraph,
  { id, kind }: { id: string; kind: string },
): Promise<WorkloadClaims> {
  if (!WITH_IDENTITIES.includes(kind) && kind !== "kubernetesCluster") return {};
  const query = `resources
| where id =~ ${toQueryLiteral(id)}
| project id, identities = identity.userAssignedIdentities, issuer = tostring(properties.oidcIssuerProfile.issuerUrl)`;
  for await (const rows of resourceGraph.query(query, undefined)) {
    const row = rows.flatMap((one) => Row.safeParse(one).data ?? [])[0];
    if (row === undefined) continue;
    if (kind === "kubernetesCluster") return row.issuer ? { issuers: [row.issuer] } : {};
    const principals = Object.values(row.identities ?? {}).flatMap(({ principalId }) => principalId ?? []);
    return { subjects: principals.map((one) => one.toLowerCase()) };
  }
  return {};
}
