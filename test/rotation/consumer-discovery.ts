import { createAzureEdges } from "../../shared/dependencies/azure/source.ts";
import { createConsumersOfSecrets } from "../../shared/dependencies/consumers/consumers.ts";
import { createDependencies } from "../../shared/dependencies/dependencies.ts";
import { devopsSource } from "../../shared/dependencies/devops/source.ts";
import type { Devops } from "../../shared/devops/devops.ts";
import { createAppConfigurationReferences } from "../../shared/platform/azure/app-configuration-references.ts";
import { createArm } from "../../shared/platform/azure/arm.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import type { ConsumersOfSecrets } from "../../shared/rotation/consumer.ts";
import { BOSS, type World } from "./world.ts";

/** Dependency discovery in the simulated cloud, and the consumers that it found. */
export interface ConsumerDiscovery {
  /** The consumers for the rotations of the world. Empty before `discover`. */
  consumers: ConsumersOfSecrets;
  /** Runs dependency discovery, as the daily timer does. */
  discover(): Promise<void>;
}

/**
 * Creates dependency discovery on the tables of a world.
 *
 * @param subscriptions - IDs of the subscriptions whose resources are read.
 * @param devops - The Azure DevOps integration. Undefined: only Azure resources are read.
 */
export function createConsumerDiscovery(
  world: World,
  subscriptions: readonly string[],
  devops?: Devops,
): ConsumerDiscovery {
  const { config, log, clock, limits } = world;
  const services = { config, identity: createIdentity(config), log, limits };
  const arm = createArm(services);
  const tenantId = async () => world.cloud.app.tenantId;
  const azure = createAzureEdges({
    config,
    clock,
    arm,
    appConfiguration: createAppConfigurationReferences(services),
    resourceManager: createResourceManager(services),
    watched: async () => ({ all: false, named: [...subscriptions] }),
  });
  const dependencies = createDependencies({
    tables: world.tables(),
    queues: { send: async () => {}, checkReachable: async () => {} },
    audit: { append: async () => {} },
    config,
    sources: devops === undefined ? [azure] : [azure, devopsSource({ devops, tenantId })],
    usage: undefined as never,
    inventory: undefined as never,
    referencesChanged: async () => {},
    ended: async () => {},
    licensed: async () => true,
    clock,
    randomness: systemRandomness(),
    log,
  });
  const consumers = createConsumersOfSecrets({
    dependencies,
    arm,
    devops: devops ?? { organization: async () => undefined },
    sync: undefined as never,
    config,
    clock,
    tenantId,
  });
  return {
    consumers,
    async discover() {
      const { run } = await dependencies.discover(BOSS);
      if (run.status !== "completed")
        throw new Error(`Dependency discovery ended with status ${run.status}: ${JSON.stringify(run.failures)}`);
    },
  };
}
