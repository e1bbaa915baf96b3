import * as z from "zod";
import type { AppService } from "../../platform/azure/app-service.ts";
import type { ContainerApps } from "../../platform/azure/container-apps.ts";
import { CloudFailure } from "../../platform/azure/failure.ts";
import type { ResourceRow } from "../azure/finder.ts";

/** An app setting with its value. Never log, store or return it. */
export interface Setting {
  /** List and name, such as `appsettings/DB_PASSWORD`. */
  evidence: string;
  value: string;
}

/** Settings of one app. */
export interface Settings {
  settings: Setting[];
  /** Why some of the lists could not be read. */
  failures: CloudFailure[];
}

export interface SettingsClients {
  appService: Pick<AppService, "settings" | "connectionStrings">;
  containerApps: Pick<ContainerApps, "inlineSecrets">;
}

/**
 * Resource types in lower case. The settings of `SITE_TYPES` are read from the App Service API. The environment variables of
 * `CONTAINER_APP_TYPES` are properties in Resource Graph, and their secrets are read from the Container Apps API.
 */
export const SITE_TYPES = ["microsoft.web/sites", "microsoft.web/sites/slots"];
export const CONTAINER_APP_TYPES = ["microsoft.app/containerapps", "microsoft.app/jobs"];

/** Reads the settings of one app. @throws {CloudFailure} notFound if the app does not exist. */
export async function settingsOf(
  row: ResourceRow,
  clients: SettingsClients,
  signal: AbortSignal | undefined,
): Promise<Settings> {
  if (SITE_TYPES.includes(row.type)) {
    const { appService } = clients;
    return await readLists({
      appsettings: async () => Object.entries(await appService.settings(row.id, signal)),
      connectionstrings: async () => Object.entries(await appService.connectionStrings(row.id, signal)),
    });
  }
  const secretSettings = await readLists({
    secrets: async () => {
      const secrets = await clients.containerApps.inlineSecrets(row.id, signal);
      return secrets.map(({ name, value }): [string, string] => [name, value]);
    },
  });
  return { ...secretSettings, settings: [...secretSettings.settings, ...variablesOf(row)] };
}

/** Reads each list. A failure of one list does not hide the others. */
async function readLists(read: Record<string, () => Promise<[name: string, value: string][]>>): Promise<Settings> {
  const found: Settings = { settings: [], failures: [] };
  for (const [list, entries] of Object.entries(read)) {
    try {
      for (const [name, value] of await entries()) found.settings.push({ evidence: `${list}/${name}`, value });
    } catch (error) {
      if (!(error instanceof CloudFailure) || error.code === "notFound") throw error;
      found.failures.push(error);
    }
  }
  return found;
}

const containers = z
  .array(
    z.object({
      name: z.string().nullish(),
      env: z.array(z.object({ name: z.string(), value: z.string().nullish() })).nullish(),
    }),
  )
  .nullish();
const properties = z.object({ template: z.object({ containers, initContainers: containers }).nullish() });

/** Returns the plain environment variables of the containers, from Resource Graph. */
function variablesOf(row: ResourceRow): Setting[] {
  const { template } = properties.safeParse(row.properties ?? {}).data ?? {};
  return [...(template?.containers ?? []), ...(template?.initContainers ?? [])].flatMap(({ name: container, env }) =>
    (env ?? []).flatMap(({ name, value }) => (value ? [{ evidence: `env/${container ?? "?"}/${name}`, value }] : [])),
  );
}
