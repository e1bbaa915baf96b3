import * as z from "zod";
import {
  DevopsCopiesChange,
  DevopsProject,
  DevopsProjectsChange,
  DevopsSettingsChange,
  DevopsSettingsView,
  DevopsTest,
} from "../shared/devops/api.ts";
import type { Endpoint } from "../shared/http/endpoint.ts";
import { pageOf, pageOfAll, pageParameters, pageRequest } from "../shared/http/paging.ts";
import { ok, resource } from "../shared/http/reply.ts";
import { endpoint } from "./kit.ts";
import type { Services } from "./services.ts";

const tag = "DevOps integration";
const route = "api/settings/integrations/devops";

const getSettings = endpoint({
  name: "getDevopsSettings",
  method: "GET",
  route,
  summary: "The settings of the DevOps integration",
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
  summary: "Name the organization of Azure DevOps",
  description:
    "The service's token goes to this address. null switches the integration off and keeps the projects. Whether it works is what POST …/test tells. Needs the service's own key vault (409).",
  tag,
  access: "admin",
  tier: "core",
  conditional: true,
  body: DevopsSettingsChange,
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
  summary: "Say what the service's identity can do in the organization",
  description:
    "Tries what finding dependencies needs and names what is missing: that the identity is a user of the organization, and its rights in each project. Changes nothing, and reads no value of a variable or connection. 409 while the integration is switched off.",
  tag,
  access: "admin",
  tier: "core",
  responds: { 200: DevopsTest },
  problems: ["conflict"],
  handle: async ({ services }) => ok(await services.devops.test()),
});

const listProjects = endpoint({
  name: "listDevopsProjects",
  method: "GET",
  route: `${route}/projects`,
  summary: "List the projects that the service may see",
  description: "By name, read from Azure DevOps now. 409 while the integration is switched off.",
  tag,
  access: "admin",
  tier: "core",
  query: z.strictObject(pageParameters),
  responds: { 200: pageOf(DevopsProject, "DevopsProjectList") },
  problems: ["conflict", "unavailable"],
  handle: async ({ query, services }) =>
    ok(pageOfAll(await services.devops.projects(), pageRequest(query), ({ name, id }) => `${name} ${id}`)),
});

const putProjects = endpoint({
  name: "putDevopsProjects",
  method: "PUT",
  route: `${route}/projects`,
  summary: "Choose the projects that are scanned",
  description: "What names no project that the service may see is found by POST …/test.",
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
  summary: "Say which secret variables are copies of a key vault's secret",
  description:
    "DevOps shows no secret's value, so that nobody can find that out. They become consumers of the secret: a full-stack rotation writes its new value into them. 409 serviceVault for the service's own key vault.",
  tag,
  access: "admin",
  tier: "core",
  conditional: true,
  body: DevopsCopiesChange,
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
