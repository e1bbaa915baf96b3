import type { CallLimits } from "../platform/azure/calls.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { Identity } from "../platform/azure/identity.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem, retryLater } from "../platform/http/problem.ts";
import { toSingleLine } from "../platform/http/single-line.ts";
import type { Logger } from "../platform/runtime.ts";
import type { DevopsProject, DevopsSettingsView, DevopsTest } from "./api.ts";
import type { Changed } from "./change-resource.ts";
import { createDevopsClient, type DevopsClient } from "./client.ts";
import { createConnectionProofs } from "./connection-proofs.ts";
import { chosenProjects, testOrganization } from "./connection-test.ts";
import { organizationAddress } from "./org-url.ts";
import type { Project } from "./response-schemas.ts";
import type { ConnectionPlace, ReplacedCredential, VariablePlace } from "./secret-locations.ts";
import { replaceConnectionSecret, signsIn } from "./service-connections.ts";
import {
  createDevopsSettings,
  type DevopsSettings,
  type SettingsChange,
  type SettingsDependencies,
  type VariableCopy,
} from "./settings.ts";
import { hasSecretVariable, replaceVariable } from "./variable-groups.ts";
import { settingsView } from "./views.ts";

export type { Changed } from "./change-resource.ts";
export type { DevopsClient } from "./client.ts";
export type { Project, ServiceConnection, VariableGroup } from "./response-schemas.ts";

/** The configured organization, for dependency discovery and rotations. */
export interface DevopsOrganization {
  /** The organization's name: lower-case letters, digits and dashes. */
  name: string;
  client: DevopsClient;
  /** Lists the projects that are scanned. @throws {CloudFailure} */
  projects(signal?: AbortSignal): Promise<Project[]>;
  /** Secret variables that contain a copy of a key vault secret. */
  copies: readonly VariableCopy[];
  /** See `replaceVariable`. */
  replaceVariable(place: VariablePlace, value: string): Promise<Changed>;
  /** Returns true if a group has this secret variable. Its value can't be read. @throws {CloudFailure} */
  hasSecretVariable(place: VariablePlace): Promise<boolean>;
  /** See `replaceConnectionSecret`. */
  replaceConnectionSecret(place: ConnectionPlace, of: ReplacedCredential, secret: string): Promise<Changed>;
  /**
   * Returns true if a connection signs in as the application. Undefined if it contains no secret of the application any more.
   * @throws {CloudFailure}
   */
  signsIn(place: ConnectionPlace, of: ReplacedCredential): Promise<boolean | undefined>;
}

/** The Azure DevOps integration: its settings, the connection test, and the configured organization. */
export interface Devops {
  settings(): Promise<DevopsSettingsView>;
  /** @throws {Problem} invalidRequest for a URL that is not of Azure DevOps; conflict; preconditionFailed */
  configure(change: SettingsChange, ifMatch: string | undefined, caller: Caller): Promise<DevopsSettingsView>;
  /**
   * Lists all projects that the service can see. @throws {Problem} conflict while the integration is turned off; unavailable
   */
  projects(): Promise<DevopsProject[]>;
  /** Tests the connection and returns what is missing. @throws {Problem} conflict while the integration is turned off */
  test(): Promise<DevopsTest>;
  /** Returns the organization. Undefined while the integration is turned off. */
  organization(): Promise<DevopsOrganization | undefined>;
}

export interface DevopsDependencies extends SettingsDependencies {
  config: Pick<Config, "AZURE_DEVOPS_ENDPOINT" | "SERVICE_KEY_VAULT_URL" | "cloud">;
  identity: Identity;
  log: Logger;
  limits?: Partial<CallLimits>;
}

/** The Azure DevOps integration: its settings, the connection test, and the configured organization. */
export function createDevops(deps: DevopsDependencies): Devops {
  const store = createDevopsSettings(deps);
  const proofs = createConnectionProofs(deps);
  // Besides the public host names, the configured endpoint is allowed.
  const resourceManagers = [...RESOURCE_MANAGERS, deps.config.cloud.resourceManager];
  /** One client per process, so that all callers share its rate limit. */
  const clients = new Map<string, DevopsClient>();

  function clientOf({ orgUrl }: DevopsSettings): { address: string; client: DevopsClient } | undefined {
    // Check again: the URL may have been saved while another endpoint was configured.
    const address = orgUrl === undefined ? undefined : organizationAddress(orgUrl, deps.config);
    if (address === undefined) return undefined;
    const client = clients.get(address) ?? createDevopsClient({ ...deps, address });
    clients.set(address, client);
    return { address, client };
  }

  async function opened() {
    const settings = await store.read();
    const found = clientOf(settings);
    if (!found) {
      throw new Problem(
        "conflict",
        "The DevOps integration is turned off: PUT orgUrl to /api/settings/integrations/devops.",
      );
    }
    return { ...found, settings };
  }

  return {
    settings: async () => settingsView(await store.read()),
    configure: async (change, ifMatch, caller) => settingsView(await store.change(change, ifMatch, caller)),

    async projects() {
      const { client, settings } = await opened();
      try {
        const visible = await allOf(client.projects());
        const selected = new Set(chosenProjects(visible, settings.projectIds).projects);
        return visible.map((one) => ({ id: one.id, name: toSingleLine(one.name), selected: selected.has(one) }));
      } catch (error) {
        if (!(error instanceof CloudFailure)) throw error;
        throw retryLater("unavailable", `${error.message} ${error.remedy}`, error.retryAfterSeconds ?? RETRY_SECONDS);
      }
    },

    async test() {
      const { client, settings } = await opened();
      const { orgUrl = "", projectIds } = settings;
      return await testOrganization(client, { orgUrl, projectIds, now: deps.clock.now() });
    },

    async organization() {
      const settings = await store.read();
      const found = clientOf(settings);
      if (!found) return undefined;
      const { address, client } = found;
      return {
        name: nameIn(address),
        client,
        copies: settings.copies,
        replaceVariable: (place, value) => replaceVariable(client, place, value),
        hasSecretVariable: (place) => hasSecretVariable(client, place),
        replaceConnectionSecret: (place, of, secret) =>
          replaceConnectionSecret({ client, proofs: proofs.of(address), resourceManagers }, place, of, secret),
        signsIn: (place, of) => signsIn(client, place, of),
        projects: async (signal) => chosenProjects(await allOf(client.projects(signal)), settings.projectIds).projects,
      };
    },
  };
}

/** Addresses of the public cloud's Resource Manager: the one that the portal writes into connections, and an older one. */
const RESOURCE_MANAGERS = ["https://management.azure.com", "https://management.core.windows.net"];

/** Returns the last segment of a URL, or its host if it has no path. */
function nameIn(address: string): string {
  const { pathname, hostname } = new URL(address);
  const name = pathname.split("/").at(-1) || hostname;
  return name.toLowerCase().replace(/[^a-z0-9-]/g, "-");
}

/** Seconds of `Retry-After` if DevOps did not specify a time. */
const RETRY_SECONDS = 10;

async function allOf<T>(pages: AsyncGenerator<T[]>): Promise<T[]> {
  const all: T[] = [];
  for await (const page of pages) all.push(...page);
  return all;
}
