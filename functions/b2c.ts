import {
  NewTenant,
  runParams,
  runView,
  TenantChange,
  TenantRun,
  TenantTest,
  TenantView,
  tenantParams,
  tenantView,
  testView,
} from "../shared/b2c/api.ts";
import { QUEUE, TenantMessage } from "../shared/b2c/b2c.ts";
import { PageQuery, pageOf, pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { created, Deleted, deleted, ok, resource } from "../shared/platform/http/reply.ts";
import { endpoint, poison, queue, timer } from "./declare.ts";

/*
 * Endpoints, timers and queue handlers of the registry of B2C tenants: other Entra tenants, for example for an app's customers,
 * whose credentials are part of the inventory.
 */

const tag = "B2C";
const TENANTS = "b2c/tenants";
const READABLE_WITHOUT_LICENSE =
  "Without a PRO license, existing tenants can still be read; if there are none, returns 403.";

const registerTenant = endpoint({
  name: "registerB2cTenant",
  method: "POST",
  route: TENANTS,
  summary: "Register a B2C tenant",
  description:
    "The tenant is an Azure AD B2C tenant, a Microsoft Entra External ID tenant or another workforce tenant, with an application that can read it. The registration is not tested; use POST /b2c/tenants/test before it, or POST …/test after it. The client secret is stored in the service's key vault. Returns 409 if the service has no key vault, or if the tenant is the service's own.",
  tag,
  access: "admin",
  tier: "pro",
  body: NewTenant,
  problems: ["alreadyExists", "conflict"],
  example: {
    body: {
      tenantId: "c97a9dbf-bd9f-4433-aea9-295c8898e41d",
      tenantDomain: "acmepartners.onmicrosoft.com",
      displayName: "Acme Partners",
      clientId: "97471835-12cd-444d-ae9b-dc205f8336bf",
      clientSecret: "a client secret of that application",
      autoDiscover: false,
    },
  },
  responds: { 201: TenantView },
  repeat: {
    idOf: ({ tenantId }) => tenantId,
    answer: async ({ id, services }) => tenantView(await services.b2c.get(id)),
  },
  handle: async ({ body, caller, services }) => {
    const tenant = await services.b2c.register(body, caller);
    return created(tenantView(tenant), `/${TENANTS}/${tenant.row.tenantId}`);
  },
});

const listTenants = endpoint({
  name: "listB2cTenants",
  method: "GET",
  route: TENANTS,
  summary: "List registered B2C tenants by display name",
  description: READABLE_WITHOUT_LICENSE,
  tag,
  access: "user",
  tier: "core",
  query: PageQuery,
  problems: ["licenseRequired"],
  responds: { 200: pageOf(TenantView, "B2cTenantList") },
  handle: async ({ query, services }) => {
    const page = await services.b2c.list(pageRequest(query));
    return ok(pageView(page, tenantView));
  },
});

const getTenant = endpoint({
  name: "getB2cTenant",
  method: "GET",
  route: `${TENANTS}/{tenant_id}`,
  summary: "Get a B2C tenant",
  description: READABLE_WITHOUT_LICENSE,
  tag,
  access: "user",
  tier: "core",
  params: tenantParams,
  problems: ["conflict", "licenseRequired"],
  responds: { 200: TenantView },
  handle: async ({ params, services }) => resource(tenantView(await services.b2c.get(params.tenant_id))),
});

const changeTenant = endpoint({
  name: "changeB2cTenant",
  method: "PUT",
  route: `${TENANTS}/{tenant_id}`,
  summary: "Update the registration of a B2C tenant",
  description:
    "Accepts any subset of the fields except tenantId. A saved client secret is never sent for another application: a new clientId requires its clientSecret (400). A new client secret starts a discovery at once.",
  tag,
  access: "admin",
  tier: "pro",
  params: tenantParams,
  body: TenantChange,
  conditional: true,
  problems: ["conflict"],
  example: { body: { displayName: "Acme Shop" } },
  responds: { 200: TenantView },
  handle: async ({ params, body, caller, ifMatch, services }) =>
    resource(tenantView(await services.b2c.change(params.tenant_id, body, ifMatch, caller))),
});

const deleteTenant = endpoint({
  name: "deleteB2cTenant",
  method: "DELETE",
  route: `${TENANTS}/{tenant_id}`,
  summary: "Remove a B2C tenant from the registry",
  description: `Also removes the tenant's inventory, alert and compliance data, and the saved client secret. Changes nothing in the tenant. ${READABLE_WITHOUT_LICENSE}`,
  tag,
  access: "admin",
  tier: "core",
  params: tenantParams,
  conditional: true,
  problems: ["licenseRequired"],
  responds: { 200: Deleted },
  handle: async ({ params, caller, ifMatch, services }) => {
    await services.b2c.remove(params.tenant_id, ifMatch, caller);
    return deleted();
  },
});

const testTenant = endpoint({
  name: "testB2cTenant",
  method: "POST",
  route: `${TENANTS}/{tenant_id}/test`,
  summary: "Test the registration of a B2C tenant",
  description:
    "Signs in with the saved client secret, compares the tenant's ID, type and domains with the registration, and makes one inexpensive read for each kind of credential. Each check reports its failure or missing permission. Returns 200 even if checks fail.",
  tag,
  access: "operator",
  tier: "pro",
  params: tenantParams,
  problems: ["conflict"],
  harmlessRepeat: true,
  responds: { 200: TenantTest },
  handle: async ({ params, caller, services }) => ok(testView(await services.b2c.test(params.tenant_id, caller))),
});

const testNewTenant = endpoint({
  name: "testNewB2cTenant",
  method: "POST",
  route: `${TENANTS}/test`,
  summary: "Test a B2C tenant before its registration",
  description:
    "Like the test of a registered tenant, with the client secret of the request, which is not saved. Returns 200 even if checks fail.",
  tag,
  access: "admin",
  tier: "pro",
  harmlessRepeat: true,
  body: NewTenant,
  example: {
    body: {
      tenantId: "c97a9dbf-bd9f-4433-aea9-295c8898e41d",
      tenantDomain: "acmepartners.onmicrosoft.com",
      displayName: "Acme Partners",
      clientId: "97471835-12cd-444d-ae9b-dc205f8336bf",
      clientSecret: "a client secret of that application",
    },
  },
  responds: { 200: TenantTest },
  handle: async ({ body, caller, services }) => ok(testView(await services.b2c.testNew(body, caller))),
});

const discoverTenant = endpoint({
  name: "discoverB2cTenant",
  method: "POST",
  route: `${TENANTS}/{tenant_id}/discover`,
  summary: "Discover the credentials of a B2C tenant",
  description:
    "Reads the secrets and certificates of the tenant's applications, its policy keys and its identity providers into the inventory (`source=b2c`). Returns the completed run, or the run with status `running` after 20 seconds. If a run is already in progress, that run is returned. `failures` lists what could not be read.",
  tag,
  access: "operator",
  tier: "pro",
  params: tenantParams,
  problems: ["conflict"],
  responds: { 200: TenantRun, 201: TenantRun },
  repeat: {
    idOf: ({ runId }) => runId,
    answer: async ({ id, params, services }) => runView(await services.b2c.run(params.tenant_id, id)),
  },
  handle: async ({ params, caller, services }) => {
    const { run, isNew } = await services.b2c.discover(params.tenant_id, caller);
    return isNew ? created(runView(run), `/${TENANTS}/${run.tenantId}/runs/${run.runId}`) : ok(runView(run));
  },
});

const getRun = endpoint({
  name: "getB2cDiscovery",
  method: "GET",
  route: `${TENANTS}/{tenant_id}/runs/{run_id}`,
  summary: "Get a discovery run of a B2C tenant",
  description:
    "Runs are kept for 30 days. Works without a PRO license, so that you can follow runs that started under one.",
  tag,
  access: "user",
  tier: "core",
  params: runParams,
  problems: ["conflict"],
  responds: { 200: TenantRun },
  handle: async ({ params, services }) => ok(runView(await services.b2c.run(params.tenant_id, params.run_id))),
});

export const endpoints = [
  registerTenant,
  listTenants,
  getTenant,
  changeTenant,
  deleteTenant,
  testTenant,
  testNewTenant,
  discoverTenant,
  getRun,
];

export const timers = [
  timer({
    name: "discoverDueTenants",
    schedule: { setting: "B2C_SCHEDULE" },
    handle: ({ services }) => services.b2c.enqueueDue(),
  }),
  timer({
    name: "cleanUpTenants",
    schedule: "0 53 3 * * *",
    handle: ({ services, requestId }) => services.b2c.cleanUp(system(requestId)),
  }),
];

/** The caller that the audit log records for work that no user started. */
const system = (requestId: string) => ({ actor: "system", requestId });

export const queues = [
  queue({
    name: "b2cTenantsQueue",
    queue: QUEUE,
    message: TenantMessage,
    handle: (message, { services, requestId }) => services.b2c.handle(message, system(requestId)),
  }),
  poison({
    name: "b2cTenantsFailed",
    of: QUEUE,
    message: TenantMessage,
    handle: (message, { services, requestId }) => services.b2c.failed(message, system(requestId)),
  }),
];
