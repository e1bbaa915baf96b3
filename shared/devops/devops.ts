import type { CallLimits } from "../platform/azure/calls.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { Identity } from "../platform/azure/identity.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem, retryLater } from "../platform/http/problem.ts";
import { toSingleLine } from "../platform/http/single-line.ts";
import type { Logger } from "../platform/runtime.ts";
import type { Project } from "./answers.ts";
import type { DevopsProject, DevopsSettingsView, DevopsTest } from "./api.ts";
import type { Changed } from "./change.ts";
import { createDevopsClient, type DevopsClient } from "./client.ts";
import { organizationAddress } from "./org-url.ts";
import type { ConnectionPlace, ReplacedCredential, VariablePlace } from "./places.ts";
import { createConnectionProofs } from "./proofs.ts";
import { replaceConnectionSecret, signsIn } from "./service-connections.ts";
import {
  createDevopsSettings,
  type DevopsSettings,
  type SettingsChange,
  type SettingsDependencies,
  type VariableCopy,
} from "./settings.ts";
import { chosenProjects, testOrganization } from "./test.ts";
import { hasSecretVariable, replaceVariable } from "./variable-groups.ts";
import { settingsView } from "./views.ts";

export type { Project, ServiceConnection, VariableGroup } from "./answers.ts";
export type { Changed } from "./change.ts";
export type { DevopsClient } from "./client.ts";

/** The organization that is configured, for those who look for dependencies in it or rotate what it holds. */
export interface DevopsOrganization {
  /** The organization's name: lower-case letters, digits and dashes. */
  name: string;
  client: DevopsClient;
  /** The projects that are scanned. @throws {CloudFailure} */
  projects(signal?: AbortSignal): Promise<Project[]>;
  /** Secret variables that hold a copy of a key vault's secret. */
  copies: readonly VariableCopy[];
  /** See `replaceVariable`. */
  replaceVariable(place: VariablePlace, value: string): Promise<Changed>;
  /** Whether a group has such a secret variable; what it holds shows nowhere. @throws {CloudFailure} */
  hasSecretVariable(place: VariablePlace): Promise<boolean>;
  /** See `replaceConnectionSecret`. */
  replaceConnectionSecret(place: ConnectionPlace, of: ReplacedCredential, secret: string): Promise<Changed>;
  /** Whether a connection signs in as the application; undefined when it holds no secret of it any more. @throws {CloudFailure} */
  signsIn(place: ConnectionPlace, of: ReplacedCredential): Promise<boolean | undefined>;
}

export interface Devops {
  settings(): Promise<DevopsSettingsView>;
  /** @throws {Problem} invalidRequest for an address that is not Azure DevOps'; conflict; preconditionFailed */
  configure(change: SettingsChange, ifMatch: string | undefined, caller: Caller): Promise<DevopsSettingsView>;
  /** All projects that the service may see. @throws {Problem} conflict while it is switched off; unavailable */
  projects(): Promise<DevopsProject[]>;
  /** Says what is missing. @throws {Problem} conflict while it is switched off */
  test(): Promise<DevopsTest>;
  /** Undefined while it is switched off. */
  organization(): Promise<DevopsOrganization | undefined>;
}

export interface DevopsDependencies extends SettingsDependencies {
  config: Pick<Config, "AZURE_DEVOPS_ENDPOINT" | "SERVICE_KEY_VAULT_URL" | "cloud">;
  identity: Identity;
  log: Logger;
  limits?: Partial<CallLimits>;
}

/** Azure DevOps: where it is, and what the service may do there. */
export function createDevops(deps: DevopsDependencies): Devops {
  const store = createDevopsSettings(deps);
  const proofs = createConnectionProofs(deps);
  // Beside its public names that which the configuration has.
  const resourceManagers = [...RESOURCE_MANAGERS, deps.config.cloud.resourceManager];
  /** Of this process, so that it keeps to the pace that DevOps asks for. */
  const clients = new Map<string, DevopsClient>();

  function clientOf({ orgUrl }: DevopsSettings): { address: string; client: DevopsClient } | undefined {
    // Looked at again: it may have been stored under another endpoint.
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
        "The DevOps integration is switched off: PUT orgUrl to /api/settings/integrations/devops.",
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

/** The address of the public cloud's resource manager, which the portal writes into connections, and its older one. */
const RESOURCE_MANAGERS = ["https://management.azure.com", "https://management.core.windows.net"];

/** The last part of an address, or its host where it has no path. */
function nameIn(address: string): string {
  const { pathname, hostname } = new URL(address);
  const name = pathname.split("/").at(-1) || hostname;
  return name.toLowerCase().replace(/[^a-z0-9-]/g, "-");
}

/** Seconds a caller is asked to wait when DevOps gave no time of its own. */
const RETRY_SECONDS = 10;

async function allOf<T>(pages: AsyncGenerator<T[]>): Promise<T[]> {
  const all: T[] = [];
  for await (const page of pages) all.push(...page);
  return all;
}
