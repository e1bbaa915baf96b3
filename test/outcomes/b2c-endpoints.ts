import { randomUUID } from "node:crypto";
import type { ChangingEndpoint } from "./changing-endpoint.ts";
import type { EndpointContext } from "./endpoint-context.ts";

/**
 * Returns the entries for B2C tenants. outcomes.test.ts sends their requests during faults of storage, and once more if the outcome
 * is unknown (`allowedOnRepeat`). `state` reads whether the change happened.
 */
export function b2cEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { call, nextNumber, uniqueName, stateIfExists, stateIfRemoved } = context;
  const newTenant = () => ({
    tenantId: randomUUID(),
    tenantDomain: `outcomes${nextNumber()}.onmicrosoft.com`,
    displayName: uniqueName("customers"),
    clientId: randomUUID(),
    clientSecret: "of outcomes",
    autoDiscover: false,
  });
  async function registerTenant(): Promise<string> {
    const { tenantId } = await call("POST", "/b2c/tenants", newTenant());
    return `/b2c/tenants/${tenantId}`;
  }
  return [
    {
      endpoint: "POST /b2c/tenants",
      async prepare() {
        const body = newTenant();
        return {
          method: "POST",
          path: "/b2c/tenants",
          options: { body },
          status: 201,
          allowedOnRepeat: [201, 409],
          state: stateIfExists(`/b2c/tenants/${body.tenantId}`),
          event: "b2cTenant.registered",
        };
      },
    },
    {
      endpoint: "PUT /b2c/tenants/{tenant_id}",
      async prepare() {
        const path = await registerTenant();
        const displayName = uniqueName("changed");
        return {
          method: "PUT",
          path,
          options: { body: { displayName, clientSecret: uniqueName("of outcomes, too") } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await call("GET", path)).displayName === displayName ? "done" : "undone"),
          event: "b2cTenant.changed",
        };
      },
    },
    {
      endpoint: "DELETE /b2c/tenants/{tenant_id}",
      async prepare() {
        const path = await registerTenant();
        return {
          method: "DELETE",
          path,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateIfRemoved(path),
          event: "b2cTenant.removed",
        };
      },
    },
  ];
}
