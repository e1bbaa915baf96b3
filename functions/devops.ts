import {
  DevopsCopiesChange,
  DevopsProject,
  DevopsProjectsChange,
  DevopsSettingsChange,
  DevopsSettingsView,
  DevopsTest,
} from "../shared/devops/api.ts";
import type { Endpoint } from "../shared/platform/http/endpoint.ts";
import { PageQuery, pageOf, pageOfAll, pageRequest } from "../shared/platform/http/paging.ts";
import { ok, resource } from "../shared/platform/http/reply.ts";
import { endpoint } from "./declare.ts";
import type { Services } from "./services.ts";

// Endpoints of the integration with Azure DevOps, in which dependency discovery finds pipelines that use secrets.

const tag = "DevOps integration";
const route = "api/settings/integrations/devops";

const getSettings = endpoint({
  name: "getDevopsSettings",
  method: "GET",
  route,
  summary: "Get the Azure DevOps settings",
  tag,
  access: "admin",
  tier: "core",
  responds: { 200: DevopsSettingsView },
  handle: async ({ services }) => resource(await services.devops.settings()),
});

const putSettings = endpoint({
  name: "putDevopsSettings",
  method: "PUT",
  route,
  summary: "Set the Azure DevOps organization",
  description:
    "The service sends its token to this address. Null disables the integration and keeps the projects. Use POST …/test to test the connection. Requires the service's key vault (409).",
  tag,
  access: "admin",
  tier: "core",
  conditional: true,
  body: DevopsSettingsChange,
  // Guarded requests need the confirmations that the settings requireStepUp and requireApproval require. Null turns the
  // integration off.
  guarded: ({ body }) => body.orgUrl !== null,
  example: { body: { orgUrl: "https://dev.azure.com/acme" } },
  responds: { 200: DevopsSettingsView },
  problems: ["conflict"],
  handle: async ({ body, ifMatch, caller, services }) =>
    resource(await services.devops.configure(body, ifMatch, caller)),
});

const testIntegration = endpoint({
  name: "testDevops",
  method: "POST",
  route: `${route}/test`,
  summary: "Test the Azure DevOps connection",
  description:
    "Tests what dependency discovery needs and lists missing permissions: membership of the service's identity in the organization, and its permissions in each project. Changes nothing and reads no values of variables or connections. Returns 409 while the integration is disabled.",
  tag,
  access: "admin",
  tier: "core",
  harmlessRepeat: true,
  responds: { 200: DevopsTest },
  problems: ["conflict"],
  handle: async ({ services }) => ok(await services.devops.test()),
});

const listProjects = endpoint({
  name: "listDevopsProjects",
  method: "GET",
  route: `${route}/projects`,
  summary: "List projects that the service can access",
  description: "Reads the projects from Azure DevOps, ordered by name. Returns 409 while the integration is disabled.",
  tag,
  access: "admin",
  tier: "core",
  query: PageQuery,
  responds: { 200: pageOf(DevopsProject, "DevopsProjectList") },
  problems: ["conflict", "unavailable"],
  handle: async ({ query, services }) =>
    ok(pageOfAll(await services.devops.projects(), pageRequest(query), ({ name, id }) => `${name} ${id}`)),
});

const putProjects = endpoint({
  name: "putDevopsProjects",
  method: "PUT",
  route: `${route}/projects`,
  summary: "Select the projects to scan",
  description: "POST …/test reports entries that match no accessible project.",
  tag,
  access: "admin",
  tier: "core",
  conditional: true,
  body: DevopsProjectsChange,
  example: { body: { projectIds: [] } },
  responds: { 200: DevopsSettingsView },
  problems: ["conflict"],
  handle: async ({ body, ifMatch, caller, services }) =>
    resource(await services.devops.configure(body, ifMatch, caller)),
});

const putCopies = endpoint({
  name: "putDevopsCopies",
  method: "PUT",
  route: `${route}/copies`,
  summary: "Set which secret variables are copies of key vault secrets",
  description:
    "Azure DevOps never returns secret values, so the service can't detect copies. The variables become consumers of the secret: a full-stack rotation updates them. Returns 409 serviceVault for the service's own key vault.",
  tag,
  access: "admin",
  tier: "core",
  conditional: true,
  body: DevopsCopiesChange,
  guarded: ({ body }) => body.copies.length > 0,
  example: { body: { copies: [] } },
  responds: { 200: DevopsSettingsView },
  problems: ["conflict", "serviceVault"],
  handle: async ({ body, ifMatch, caller, services }) =>
    resource(await services.devops.configure(body, ifMatch, caller)),
});

export const endpoints: Endpoint<Services>[] = [
  getSettings,
  putSettings,
  testIntegration,
  listProjects,
  putProjects,
  putCopies,
];
