import type { Connection } from "simulated-cloud/devops/organization.ts";
import { createAzureEdges } from "../../shared/dependencies/azure/source.ts";
import { createConsumersOfSecrets } from "../../shared/dependencies/consumers/consumers.ts";
import { createDependencies } from "../../shared/dependencies/dependencies.ts";
import { devopsSource } from "../../shared/dependencies/devops/source.ts";
import { createDevops } from "../../shared/devops/devops.ts";
import { createAppConfigurationReferences } from "../../shared/platform/azure/app-configuration-references.ts";
import { createArm } from "../../shared/platform/azure/arm.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { SHORT_WAITS } from "../azure/services.ts";
import { BOSS, type World } from "./world.ts";

/**
 * Lets the rotations of a world find and refresh their consumers in Azure and in Azure DevOps.
 *
 * @param subscriptions - IDs of the subscriptions whose resources are read.
 */
export async function connectAzureAndDevops(world: World, subscriptions: readonly string[]) {
  const { config, log, clock } = world;
  const tables = world.tables();
  const identity = createIdentity(config);
  const randomness = systemRandomness();
  const services = { config, identity, log, limits: SHORT_WAITS };
  const arm = createArm(services);
  const audit = { append: async () => {} };
  const devops = createDevops({ ...services, tables, audit, clock, randomness });
  const { organization } = world.cloud.control.devops;
  await devops.configure({ orgUrl: `https://dev.azure.com/${organization.name}` }, undefined, BOSS);
  const tenantId = async () => world.cloud.app.tenantId;
  const dependencies = createDependencies({
    tables,
    queues: { send: async () => {}, checkReachable: async () => {} },
    audit,
    config,
    sources: [
      createAzureEdges({
        config,
        clock,
        arm,
        appConfiguration: createAppConfigurationReferences(services),
        resourceManager: createResourceManager(services),
        watched: async () => ({ all: false, named: [...subscriptions] }),
      }),
      devopsSource({ devops, tenantId }),
    ],
    usage: undefined as never,
    inventory: undefined as never,
    referencesChanged: async () => {},
    ended: async () => {},
    licensed: async () => true,
    clock,
    randomness,
    log,
  });
  world.consumers = createConsumersOfSecrets({
    dependencies,
    arm,
    devops,
    sync: undefined as never,
    config,
    clock,
    tenantId,
  });
  return {
    /** Runs dependency discovery, as the daily timer does. */
    async discover(): Promise<void> {
      const { run } = await dependencies.discover(BOSS);
      if (run.status !== "completed")
        throw new Error(`Dependency discovery ended with ${run.status}: ${JSON.stringify(run.failures)}`);
    },
  };
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
