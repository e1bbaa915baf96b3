import * as z from "zod";
import type { AppService } from "../../platform/azure/app-service.ts";
import type { ContainerApps } from "../../platform/azure/container-apps.ts";
import { CloudFailure } from "../../platform/azure/failure.ts";
import type { ResourceRow } from "../azure/finder.ts";

/** A setting of an app with its value: for local variables only. */
export interface Setting {
  /** The list and the name in it, such as `appsettings/DB_PASSWORD`. */
  evidence: string;
  value: string;
}

export interface Settings {
  settings: Setting[];
  /** Why some of its lists could not be read. */
  failures: CloudFailure[];
}

export interface SettingsClients {
  appService: Pick<AppService, "settings" | "connectionStrings">;
  containerApps: Pick<ContainerApps, "givenSecrets">;
}

/** Whose settings are read with their type alone, and whose with their properties. In lower case. */
export const SITE_TYPES = ["microsoft.web/sites", "microsoft.web/sites/slots"];
export const CONTAINER_APP_TYPES = ["microsoft.app/containerapps", "microsoft.app/jobs"];

/** What the settings of one app are. @throws {CloudFailure} notFound when there is no such app. */
export async function settingsOf(
  row: ResourceRow,
  clients: SettingsClients,
  signal: AbortSignal | undefined,
): Promise<Settings> {
  if (SITE_TYPES.includes(row.type)) {
    const { appService } = clients;
    return await lists({
      appsettings: async () => Object.entries(await appService.settings(row.id, signal)),
      connectionstrings: async () => Object.entries(await appService.connectionStrings(row.id, signal)),
    });
  }
  const given = await lists({
    secrets: async () => {
      const secrets = await clients.containerApps.givenSecrets(row.id, signal);
      return secrets.map(({ name, value }): [string, string] => [name, value]);
    },
  });
  return { ...given, settings: [...given.settings, ...variablesOf(row)] };
}

/** Each list with what became of it: one that can't be read hides no other. */
async function lists(read: Record<string, () => Promise<[name: string, value: string][]>>): Promise<Settings> {
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

/** The environment variables that its containers are given as they are, which Resource Graph has. */
function variablesOf(row: ResourceRow): Setting[] {
  const { template } = properties.safeParse(row.properties ?? {}).data ?? {};
  return [...(template?.containers ?? []), ...(template?.initContainers ?? [])].flatMap(({ name: container, env }) =>
    (env ?? []).flatMap(({ name, value }) => (value ? [{ evidence: `env/${container ?? "?"}/${name}`, value }] : [])),
  );
}
