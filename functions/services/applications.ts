import type { Alerts } from "../../shared/alerts/alerts.ts";
import { type ApplicationsService, createApplications } from "../../shared/applications/applications.ts";
import { type B2c, createB2c } from "../../shared/b2c/b2c.ts";
import { createGraph } from "../../shared/platform/azure/graph.ts";
import { createRegistrationIdentity } from "../../shared/platform/azure/registration-identity.ts";
import { policyView } from "../../shared/rotation/views.ts";
import type { AutomationServices } from "./automation.ts";
import type { InventoryServices } from "./inventory.ts";
import type { Platform } from "./platform.ts";

/** The applications and credentials in the service's own Entra tenant, and in registered B2C tenants. */
export interface ApplicationServices {
  applications: ApplicationsService;
  b2c: B2c;
}

/** @param automation - Returns services that are created after these. It is called when applications are read. */
export function createApplicationServices(
  platform: Platform,
  { compliance, writer, inventory, alerts }: InventoryServices & { alerts: Alerts },
  automation: () => Pick<AutomationServices, "policies" | "logs">,
): ApplicationServices {
  const { config, clock, randomness, log, tables, queues, audit, licensed, graph, ownTenantId } = platform;
  const sharedDeps = {
    tables,
    queues,
    audit,
    // `prepareChange` evaluates the compliance of credentials that a discovery changed, before they are written.
    inventory: { writer, prepareChange: compliance.prepareChange },
    // `moment` returns the current time and the expiry thresholds, which decide the status of a credential.
    moment: () => inventory.moment(),
    licensed,
    // `ended` is called when a discovery has ended: changed credentials can cause alerts.
    ended: () => alerts.requestEvaluation(),
    clock,
    randomness,
    log,
  };
  const applications = createApplications({
    ...sharedDeps,
    graph,
    tenantId: ownTenantId,
    signInsOf: (appId) => automation().logs.usage.signInEvidence(appId),
    policiesOf: async (appIds) => {
      const policies = await automation().policies.getMany(appIds);
      return new Map([...policies].map(([appId, policy]) => [appId, policyView(policy)]));
    },
  });
  const b2c = createB2c({
    ...sharedDeps,
    vault: platform.serviceKeyVault,
    graphOf: (registration) => createGraph({ config, identity: createRegistrationIdentity(config, registration), log }),
    ownTenantId,
  });
  return { applications, b2c };
}
