import type { Alerts } from "../../shared/alerts/alerts.ts";
import { type ApplicationsRoom, createApplications } from "../../shared/applications/applications.ts";
import { type B2c, createB2c } from "../../shared/b2c/b2c.ts";
import { createGraph } from "../../shared/platform/azure/graph.ts";
import { createRegistrationIdentity } from "../../shared/platform/azure/registration-identity.ts";
import { policyView } from "../../shared/rotation/views.ts";
import type { AutomationServices } from "./automation.ts";
import type { InventoryServices } from "./inventory.ts";
import type { Platform } from "./platform.ts";

/** The applications of the own tenant and of B2C tenants. */
export interface ApplicationServices {
  applications: ApplicationsRoom;
  b2c: B2c;
}

/** @param automation - Returns services that are created later. Called when applications are read. */
export function createApplicationServices(
  platform: Platform,
  { compliance, writer, inventory, alerts }: InventoryServices & { alerts: Alerts },
  automation: () => Pick<AutomationServices, "policies">,
): ApplicationServices {
  const { config, clock, randomness, log, tables, queues, audit, licensed, graph, ownTenantId } = platform;
  const shared = {
    tables,
    queues,
    audit,
    inventory: { writer, prepareChange: compliance.prepareChange },
    moment: () => inventory.moment(),
    licensed,
    ended: () => alerts.requestEvaluation(),
    clock,
    randomness,
    log,
  };
  const applications = createApplications({
    ...shared,
    graph,
    tenantId: ownTenantId,
    policiesOf: async (appIds) => {
      const found = await automation().policies.of(appIds);
      return new Map([...found].map(([appId, policy]) => [appId, policyView(policy)]));
    },
  });
  const b2c = createB2c({
    ...shared,
    vault: platform.serviceKeyVault,
    graphOf: (registration) => createGraph({ config, identity: createRegistrationIdentity(config, registration), log }),
    ownTenantId,
  });
  return { applications, b2c };
}
