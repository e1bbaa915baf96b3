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
import { type ConnectionFederation, convertConnection, readFederation } from "./federation.ts";
import { organizationAddress } from "./org-url.ts";
import type { Project } from "./response-schemas.ts";
import type { ConnectionLocation, ReplacedCredential, VariableLocation } from "./secret-locations.ts";
import { replaceConnectionSecret, signInProblem, signsIn } from "./service-connections.ts";
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
export type { ConnectionFederation } from "./federation.ts";
export type { Project, ServiceConnection, VariableGroup } from "./response-schemas.ts";

/** The configured organization. Dependency discovery reads it, and rotations replace secrets in it. */
export interface DevopsOrganization {
  /** The organization's name: lower-case letters, digits and dashes. */
  name: string;
  client: DevopsClient;
  /** Lists the projects that are scanned. @throws {CloudFailure} */
  projects(signal?: AbortSignal): Promise<Project[]>;
  /** Secret variables that contain a copy of a key vault secret. */
  copies: readonly VariableCopy[];
  /** Writes a new value to a secret variable: see `replaceVariable` in variable-groups.ts. */
  replaceVariable(location: VariableLocation, value: string): Promise<Changed>;
  /** Returns true if a group has this secret variable. Its value can't be read. @throws {CloudFailure} */
  hasSecretVariable(location: VariableLocation): Promise<boolean>;
  /** Writes a new client secret to a connection: see `replaceConnectionSecret` in service-connections.ts. */
  replaceConnectionSecret(
    location: ConnectionLocation,
    credential: ReplacedCredential,
    secret: string,
  ): Promise<Changed>;
  /**
   * Returns true if a connection signs in as the application. Undefined if it no longer contains a secret of the application.
   * @throws {CloudFailure}
   */
  signsIn(location: ConnectionLocation, credential: ReplacedCredential): Promise<boolean | undefined>;
  /** Returns whether a rotation has written a client secret of the application into a connection. */
  wasWritten(location: ConnectionLocation, credential: ReplacedCredential): Promise<boolean>;
  /** Returns how a connection signs in, its issuer and its subject: see `readFederation` in federation.ts. */
  federation(location: ConnectionLocation, credential: ReplacedCredential): Promise<ConnectionFederation>;
  /** Converts a connection to workload identity federation, or back: see `convertConnection` in federation.ts. */
  convert(location: ConnectionLocation, credential: ReplacedCredential, to: "federation" | "secret"): Promise<void>;
  /** Returns why a connection does not sign in as the application: see `signInProblem` in service-connections.ts. */
  signInProblem(location: ConnectionLocation, credential: ReplacedCredential): Promise<string | undefined>;
}

/** The Azure DevOps integration: its settings, the connection test, and the configured organization. */
export interface Devops {
  /** Returns the settings. */
  settings(): Promise<DevopsSettingsView>;
  /** Changes the settings. @throws {Problem} invalidRequest for a URL outside Azure DevOps; conflict; preconditionFailed */
  configure(change: SettingsChange, ifMatch: string | undefined, caller: Caller): Promise<DevopsSettingsView>;
  /**
   * Lists all projects that the service can see.
   *
   * @throws {Problem} conflict while the integration is turned off; unavailable
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

/** Creates the Azure DevOps integration. */
export function createDevops(deps: DevopsDependencies): Devops {
  const store = createDevopsSettings(deps);
  const proofs = createConnectionProofs(deps);
  // Connections may target Azure Resource Manager at its public host names or at the configured endpoint.
  const resourceManagers = [...RESOURCE_MANAGERS, deps.config.cloud.resourceManager];
  /** One client per process, so that all callers share its rate limit. */
  const clients = new Map<string, DevopsClient>();

  function clientOf({ orgUrl }: DevopsSettings): { address: string; client: DevopsClient } | undefined {
    // The URL is checked again, because it may have been saved while another endpoint was configured.
    const address = orgUrl === undefined ? undefined : organizationAddress(orgUrl, deps.config);
    if (address === undefined) return undefined;
    const client = clients.get(address) ?? createDevopsClient({ ...deps, address });
    clients.set(address, client);
    return { address, client };
  }

  async function requireOrganization() {
    const settings = await store.read();
    const organization = clientOf(settings);
    if (!organization) {
      throw new Problem(
        "conflict",
        "The DevOps integration is turned off: PUT orgUrl to /api/settings/integrations/devops.",
      );
    }
    return { ...organization, settings };
  }

  return {
    settings: async () => settingsView(await store.read()),
    configure: async (change, ifMatch, caller) => settingsView(await store.change(change, ifMatch, caller)),

    async projects() {
      const { client, settings } = await requireOrganization();
      try {
        const visible = await readAllPages(client.projects());
        const selected = new Set(chosenProjects(visible, settings.projectIds).projects);
        return visible.map((project) => ({
          id: project.id,
          name: toSingleLine(project.name),
          selected: selected.has(project),
        }));
      } catch (error) {
        if (!(error instanceof CloudFailure)) throw error;
        throw retryLater("unavailable", `${error.message} ${error.remedy}`, error.retryAfterSeconds ?? RETRY_SECONDS);
      }
    },

    async test() {
      const { client, settings } = await requireOrganization();
      const { orgUrl = "", projectIds } = settings;
      return await testOrganization(client, { orgUrl, projectIds, now: deps.clock.now() });
    },

    async organization() {
      const settings = await store.read();
      const organization = clientOf(settings);
      if (!organization) return undefined;
      const { address, client } = organization;
      const ownProofs = proofs.inOrganization(address);
      return {
        name: nameIn(address),
        client,
        copies: settings.copies,
        replaceVariable: (location, value) => replaceVariable(client, location, value),
        hasSecretVariable: (location) => hasSecretVariable(client, location),
        replaceConnectionSecret: (location, credential, secret) =>
          replaceConnectionSecret({ client, proofs: ownProofs, resourceManagers }, location, credential, secret),
        signsIn: (location, credential) => signsIn(client, location, credential),
        wasWritten: (location, credential) => ownProofs.exists(location, credential),
        signInProblem: (location, credential) =>
          signInProblem({ client, proofs: ownProofs, resourceManagers }, location, credential),
        federation: (location, credential) => readFederation(client, location, credential),
        convert: (location, credential, to) =>
          convertConnection({ client, resourceManagers }, location, credential, to),
        projects: async (signal) =>
          chosenProjects(await readAllPages(client.projects(signal)), settings.projectIds).projects,
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

async function readAllPages<T>(pages: AsyncGenerator<T[]>): Promise<T[]> {
  const items: T[] = [];
  for await (const page of pages) items.push(...page);
  return items;
}
