import type { Devops, DevopsOrganization, ServiceConnection, VariableGroup } from "../../devops/devops.ts";
import { signInOf } from "../../devops/service-connections.ts";
import { isSecret } from "../../devops/variable-groups.ts";
import { CloudFailure } from "../../platform/azure/failure.ts";
import { toSingleLine } from "../../platform/http/single-line.ts";
import { applicationVaultName, type Edge, type Resource } from "../edge.ts";
import type { EdgeSource, NotSeen, ReadingItem } from "../edge-source.ts";
import { connectionId, connectionsOf, groupId, groupsOf } from "./ids.ts";

/** Names of vaults and secrets: https://learn.microsoft.com/azure/key-vault/general/about-keys-secrets-certificates#object-identifiers */
const VAULT_NAME = /^[A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9]$/;
const SECRET_NAME = /^[0-9A-Za-z-]{1,127}$/;

/**
 * Source of dependencies in Azure DevOps: variable groups that are linked to a key vault, and service connections that sign in
 * as an application. The units are project IDs. DevOps has no list of changes and a project takes two requests, so projects are
 * always read completely.
 *
 * @param deps.tenantId - The tenant whose applications are considered.
 */
export function devopsSource(deps: { devops: Pick<Devops, "organization">; tenantId(): Promise<string> }): EdgeSource {
  return {
    name: "devops",
    whole: true,

    async units() {
      const organization = await deps.devops.organization();
      return (await organization?.projects())?.map(({ id }) => id) ?? [];
    },

    async *read(unit, { signal }) {
      const organization = await deps.devops.organization();
      if (!organization) return;
      const tenantId = (await deps.tenantId()).toLowerCase();
      const project = { organization, projectId: unit, signal };
      yield* readList(project, "variableGroups", (group: VariableGroup) => itemsOfGroup(project, group));
      yield* readList(project, "connections", (connection: ServiceConnection) =>
        itemsOfConnection(project, connection, tenantId),
      );
    },
  };
}

/** The project that is read. */
interface ProjectContext {
  organization: DevopsOrganization;
  projectId: string;
  signal?: AbortSignal | undefined;
}

/**
 * Reads one list of a project. Failures in LASTING become coverage items: scopes that could not be read. Any other failure ends
 * the read of the project, so that the next run tries it again.
 */
async function* readList<T>(
  { organization, projectId, signal }: ProjectContext,
  list: "variableGroups" | "connections",
  itemsOf: (one: T) => ReadingItem[],
): AsyncGenerator<ReadingItem> {
  const scope = (list === "variableGroups" ? groupsOf : connectionsOf)(organization.name, projectId);
  const unreadable: NotSeen[] = [];
  const options = {
    signal,
    unreadable: (_: unknown, failure: CloudFailure) => void unreadable.push(notSeen(scope, failure)),
  };
  try {
    for await (const page of organization.client[list](projectId, options)) {
      for (const one of page as T[]) yield* itemsOf(one);
    }
  } catch (error) {
    if (!(error instanceof CloudFailure) || !LASTING.has(error.code)) throw error;
    yield { notSeen: notSeen(scope, error) };
  }
  for (const one of unreadable) yield { notSeen: one };
}

/** Failures that concern only this list and stay until a user fixes them. */
const LASTING = new Set<CloudFailure["code"]>(["accessDenied", "notFound", "refused", "badResponse"]);

const notSeen = (scope: string, { code, message, remedy }: CloudFailure): NotSeen => ({ scope, code, message, remedy });

function itemsOfGroup(project: ProjectContext, group: VariableGroup): ReadingItem[] {
  const resource: Resource = {
    id: groupId(project.organization.name, project.projectId, group.id),
    kind: "devopsVariableGroup",
    name: toSingleLine(group.name),
  };
  if (group.type !== "AzureKeyVault") return [{ resource, edges: copiesIn(project, resource, group) }];
  const vaultName = group.providerData?.vault ?? "";
  const names = Object.keys(group.variables ?? {});
  if (!VAULT_NAME.test(vaultName) || !names.every((name) => SECRET_NAME.test(name))) {
    const message =
      "The variable group is linked to a key vault, and its vault or secrets can't be read from the answer.";
    const remedy = "Look at the group in Azure DevOps: Pipelines, Library.";
    return [{ notSeen: { scope: resource.id, code: "badResponse", message, remedy } }];
  }
  return [{ resource, edges: names.map((name) => linkedEdge(resource, vaultName, name, group)) }];
}

/** Returns the use of a secret by a linked group. The group stores only its name, and each pipeline run reads the secret. */
function linkedEdge(resource: Resource, vaultName: string, name: string, group: VariableGroup): Edge {
  const disabled = group.variables![name]!.enabled === false;
  return {
    vaultName,
    type: "secret",
    name,
    resource,
    strength: "references",
    evidence: name,
    refresh: { how: "automatic", slowestSeconds: 0 },
    ...(disabled && { state: { resolved: false, status: "Disabled" } }),
  };
}

/** Returns the variables that an administrator listed as copies. Variables that do not exist or are not secret are skipped. */
function copiesIn({ organization, projectId }: ProjectContext, resource: Resource, group: VariableGroup): Edge[] {
  return organization.copies
    .filter((copy) => copy.groupId === group.id && copy.projectId === projectId.toLowerCase())
    .filter(({ variable }) => isSecret(group, variable))
    .map(({ vaultName, secretName, variable }) => ({
      vaultName,
      type: "secret",
      name: secretName,
      resource,
      strength: "references",
      evidence: variable,
      refresh: { how: "action" },
      copy: true,
    }));
}

function itemsOfConnection(project: ProjectContext, connection: ServiceConnection, tenantId: string): ReadingItem[] {
  const resource: Resource = {
    id: connectionId(project.organization.name, project.projectId, connection.id),
    kind: "devopsServiceConnection",
    name: toSingleLine(connection.name),
  };
  const signIn = signInOf(connection);
  // Connections with a certificate, a federated credential or a managed identity have no secret.
  if (signIn?.with !== "secret" || signIn.tenantId !== tenantId) return [{ resource, edges: [] }];
  const edge: Edge = {
    vaultName: applicationVaultName(tenantId),
    type: "secret",
    name: signIn.appId,
    resource,
    strength: "references",
    evidence: "serviceprincipalid",
    // `automatic`: Azure DevOps created the connection and accepts no secret from others, so a rotation can't update it.
    refresh: { how: signIn.automatic ? "willBreak" : "action" },
    copy: true,
  };
  return [{ resource, edges: [edge] }];
}
