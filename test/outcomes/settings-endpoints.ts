import { DELIVERY_ROW, Deliveries } from "../../shared/alerts/delivery.ts";
import type { ChangingEndpoint } from "./changing-endpoint.ts";
import type { EndpointContext } from "./endpoint-context.ts";
import { createOldDelivery } from "./stored-alerts.ts";

const DEVOPS = "/api/settings/integrations/devops";
const PROJECT = "aaaaaaaa-1111-4111-8111-111111111111";
/** For each endpoint of the Azure DevOps integration, a body that differs with each number. */
const devopsChanges: Record<string, (sequence: number) => object> = {
  "": (sequence) => ({ orgUrl: `https://dev.azure.com/acme-${sequence}` }),
  "/projects": (sequence) => ({ projectIds: [`Shop ${sequence}`] }),
  "/copies": (sequence) => ({
    copies: [{ projectId: PROJECT, groupId: sequence, variable: "DB", vaultName: "kv-one", secretName: "db" }],
  }),
};

/**
 * Returns the entries for settings. outcomes.test.ts sends their requests during faults of storage, and once more if the outcome is
 * unknown (`allowedOnRepeat`). `state` reads whether the change happened.
 */
export function settingsEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { call, nextNumber } = context;
  const readWorkersSetting = async () =>
    (await call("GET", "/api/settings/performance")).find(
      ({ key }: { key: string }) => key === "discoveryMaxWorkers",
    ) as { value: number; source: string };
  /** Returns a number of workers for an override: allowed, and never the default of 10. */
  const nextWorkers = () => 11 + (nextNumber() % 100);
  const setWorkers = (value: number) => call("PUT", "/api/settings/performance", { discoveryMaxWorkers: value });
  /** The state of removing an override: done if the setting's value no longer comes from an override. */
  const stateOfOverrideRemoval = async () =>
    (await readWorkersSetting()).source === "override" ? ("undone" as const) : ("done" as const);
  return [
    {
      endpoint: "PUT /api/settings/performance",
      async prepare() {
        const value = nextWorkers();
        return {
          method: "PUT",
          path: "/api/settings/performance",
          options: { body: { discoveryMaxWorkers: value } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await readWorkersSetting()).value === value ? "done" : "undone"),
          event: "settings.changed",
        };
      },
    },
    {
      endpoint: "DELETE /api/settings/{category}/{key}",
      async prepare() {
        await setWorkers(nextWorkers());
        return {
          method: "DELETE",
          path: "/api/settings/performance/discoveryMaxWorkers",
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateOfOverrideRemoval,
          event: "settings.changed",
        };
      },
    },
    {
      endpoint: "DELETE /api/settings/all",
      async prepare() {
        await setWorkers(nextWorkers());
        return {
          method: "DELETE",
          path: "/api/settings/all",
          status: 200,
          allowedOnRepeat: [200],
          state: stateOfOverrideRemoval,
          event: "settings.changed",
        };
      },
    },
  ];
}

/** Returns the entries for the deletion of old entries of histories. */
export function retentionEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { services } = context;
  const stateOfPurge = (deliveryId: string) => async () =>
    (await services().tables.get(Deliveries, deliveryId, DELIVERY_ROW)) ? ("undone" as const) : ("done" as const);
  return [
    {
      endpoint: "POST /api/settings/retention/purge",
      async prepare() {
        const deliveryId = await createOldDelivery(context);
        return {
          method: "POST",
          path: "/api/settings/retention/purge",
          status: 200,
          allowedOnRepeat: [200],
          state: stateOfPurge(deliveryId),
          event: "history.purged",
          // The request deletes from all histories, and the audit log has entries for each.
          belongsToRequest: ({ target }) => target?.id === "alerts",
        };
      },
    },
    {
      endpoint: "POST /api/settings/retention/purge/{history_type}",
      async prepare() {
        const deliveryId = await createOldDelivery(context);
        return {
          method: "POST",
          path: "/api/settings/retention/purge/alerts",
          status: 200,
          allowedOnRepeat: [200],
          state: stateOfPurge(deliveryId),
          event: "history.purged",
        };
      },
    },
  ];
}

/** Returns the entries for the Azure DevOps integration. */
export function devopsEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { call, nextNumber } = context;
  return Object.entries(devopsChanges).map(
    ([part, body]): ChangingEndpoint => ({
      endpoint: `PUT ${DEVOPS}${part}`,
      async prepare() {
        const options = { body: body(nextNumber()) };
        const [member, value] = Object.entries(options.body)[0]!;
        return {
          method: "PUT",
          path: `${DEVOPS}${part}`,
          options,
          status: 200,
          allowedOnRepeat: [200],
          state: async () => {
            const current = await call("GET", DEVOPS);
            return JSON.stringify(current[member]) === JSON.stringify(value) ? "done" : "undone";
          },
          event: "devops.configured",
        };
      },
    }),
  );
}
