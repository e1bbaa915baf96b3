import type { Connection } from "simulated-cloud/devops/organization.ts";
import { createDevops } from "../../shared/devops/devops.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createConsumerDiscovery } from "./consumer-discovery.ts";
import { BOSS, type World } from "./world.ts";

/**
 * Lets the rotations of a world find and refresh their consumers in Azure and in Azure DevOps.
 *
 * @param subscriptions - IDs of the subscriptions whose resources are read.
 */
export async function connectAzureAndDevops(world: World, subscriptions: readonly string[]) {
  const { config, log, clock, limits } = world;
  const devops = createDevops({
    config,
    identity: createIdentity(config),
    log,
    limits,
    tables: world.tables(),
    audit: { append: async () => {} },
    clock,
    randomness: systemRandomness(),
  });
  const { organization } = world.cloud.control.devops;
  await devops.configure({ orgUrl: `https://dev.azure.com/${organization.name}` }, undefined, BOSS);
  const discovery = createConsumerDiscovery(world, subscriptions, devops);
  world.consumers = discovery.consumers;
  return discovery;
}

/** Adds a service connection to a project of the simulated organization. Returns its ID. */
export function addConnection(
  { cloud }: World,
  connection: {
    project: string;
    appId: string;
    /** Client secret in the connection. */
    key: string;
    name: string;
    automatic?: boolean;
    scheme?: "ServicePrincipal" | "WorkloadIdentityFederation";
    url?: string;
  },
): string {
  const { organization } = cloud.control.devops;
  const { id: projectId, name: projectName } = organization.project(connection.project)!;
  const id = crypto.randomUUID();
  const added: Connection = {
    id,
    name: connection.name,
    type: "azurerm",
    url: connection.url ?? "https://management.azure.com/",
    authorization: {
      scheme: connection.scheme ?? "ServicePrincipal",
      parameters: {
        tenantid: cloud.app.tenantId,
        serviceprincipalid: connection.appId,
        authenticationType: "spnKey",
        serviceprincipalkey: connection.key,
      },
    },
    data: { environment: "AzureCloud", creationMode: connection.automatic ? "Automatic" : "Manual" },
    projects: [{ id: projectId, name: projectName }],
  };
  organization.connections.set(id, added);
  return id;
}
