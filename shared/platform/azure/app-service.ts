import * as z from "zod";
import type { Arm, ArmCall, ListResult } from "./arm.ts";
import { CloudFailure } from "./failure.ts";
import { resourceName, resourcePath } from "./resource-id.ts";
import { DEPENDENCY_READER } from "./watch-roles.ts";

/** A setting of a web app, function app or slot that references a key vault, without its value. */
export interface KeyVaultReference {
  list: ReferenceList;
  /** Name of the setting or connection string. */
  name: string;
  /** The reference as stored: `@Microsoft.KeyVault(…)`, followed by any text that a user entered. */
  reference: string;
  /** `Resolved`, or the reason for a failure, such as `AccessToKeyVaultDenied`. See `ResolveStatus` of the API. */
  status: string;
  /** The version that App Service uses now. */
  activeVersion?: string;
}

/** The two lists of a site that contain references. */
export const REFERENCE_LISTS = ["appsettings", "connectionstrings"] as const;
export type ReferenceList = (typeof REFERENCE_LISTS)[number];

/** Whether a site runs. */
export interface SiteState {
  /** `Running` or `Stopped`. Undefined if the answer has no state. */
  state?: string;
  /** `Normal`, `Limited` or `DisasterRecoveryMode`. Undefined if the answer has no availability. */
  availability?: string;
}

/**
 * Web apps, function apps and their slots, by the resource ID of the site or slot. Every method throws `CloudFailure`, with the
 * code `notFound` if there is no such site. https://learn.microsoft.com/rest/api/appservice/web-apps
 */
export interface AppService {
  /** Returns the references of both lists: one call each, or more for several pages. Needs only read access to the site. */
  references(siteId: string, signal?: AbortSignal): Promise<ListResult<KeyVaultReference>>;
  /**
   * Makes App Service read all references again at once. Otherwise it reads them once a day and after a change of a setting,
   * but not after a restart. The app gets a new value at its next start.
   */
  refresh(siteId: string): Promise<void>;
  /** Returns all app settings with their values. The values can be secrets: do not store or log them. */
  settings(siteId: string, signal?: AbortSignal): Promise<Record<string, string>>;
  /** Returns all connection strings by name. The values can be secrets: do not store or log them. */
  connectionStrings(siteId: string, signal?: AbortSignal): Promise<Record<string, string>>;
  /** Restarts the app. Retried only after a response that says that nothing was done. */
  restart(siteId: string): Promise<void>;
  state(siteId: string, signal?: AbortSignal): Promise<SiteState>;
}

const API_VERSION = "2024-04-01";

/** Resource types that the methods accept. */
const TYPES = ["microsoft.web/sites", "microsoft.web/sites/slots"] as const;
/** Completes "Give the service's identity …". */
const CONTRIBUTOR = "the role Website Contributor on the site";
const LISTER = "a role on the site that may list settings, such as Credential Lifecycle Literal Scanner";

const text = z.string().nullish();
const reference = z.object({
  name: z.string().min(1).max(512),
  properties: z.object({ reference: text, status: text, activeVersion: text }),
});
const settingsAnswer = z.object({ properties: z.record(z.string(), z.string()) });
const connectionStringsAnswer = z.object({ properties: z.record(z.string(), z.object({ value: text })) });
const siteAnswer = z.object({ properties: z.object({ state: text, availabilityState: text }) });

export function createAppService(arm: Arm): AppService {
  /** `below` is the path after that of the site. `grant` is what the remedy names if the call is denied. */
  const call = (siteId: string, below: string, operation: string, grant: string): ArmCall => ({
    path: `${resourcePath(siteId, ...TYPES)}${below}`,
    apiVersion: API_VERSION,
    target: { operation, resource: `site ${resourceName(siteId)}`, grant },
  });

  async function listReferences(siteId: string, list: ReferenceList, signal: AbortSignal | undefined) {
    const request = call(
      siteId,
      `/config/configreferences/${list}`,
      `read the key vault references of ${list}`,
      DEPENDENCY_READER,
    );
    try {
      const { entries, unreadable } = await arm.list({ ...request, signal }, reference);
      return { entries: entries.map((entry) => keyVaultReference(entry, list)), unreadable };
    } catch (error) {
      if (meansNoReferences(error)) return { entries: [], unreadable: [] };
      throw error;
    }
  }

  return {
    async references(siteId, signal) {
      const references: ListResult<KeyVaultReference> = { entries: [], unreadable: [] };
      for (const list of REFERENCE_LISTS) {
        const { entries, unreadable } = await listReferences(siteId, list, signal);
        references.entries.push(...entries);
        references.unreadable.push(...unreadable);
      }
      return references;
    },

    async refresh(siteId) {
      const below = "/config/configreferences/appsettings/refresh";
      await arm.execute({ ...call(siteId, below, "refresh the key vault references", CONTRIBUTOR), method: "POST" });
    },

    async settings(siteId, signal) {
      const request = call(siteId, "/config/appsettings/list", "read the app settings", LISTER);
      return (await arm.call({ ...request, method: "POST", signal }, settingsAnswer)).properties;
    },

    async connectionStrings(siteId, signal) {
      const request = call(siteId, "/config/connectionstrings/list", "read the connection strings", LISTER);
      const { properties } = await arm.call({ ...request, method: "POST", signal }, connectionStringsAnswer);
      return Object.fromEntries(Object.entries(properties).map(([name, { value }]) => [name, value ?? ""]));
    },

    async restart(siteId) {
      const request = call(siteId, "/restart", "restart the app", CONTRIBUTOR);
      // Without `softRestart`, App Service also provisions the app again. The response comes before the restart.
      const query = { softRestart: "true", synchronous: "false" };
      await arm.execute({ ...request, method: "POST", query, repeat: "afterRefusal" });
    },

    async state(siteId, signal) {
      const { properties } = await arm.call(
        { ...call(siteId, "", "read the app", DEPENDENCY_READER), signal },
        siteAnswer,
      );
      return {
        ...(properties.state && { state: properties.state }),
        ...(properties.availabilityState && { availability: properties.availabilityState }),
      };
    },
  };
}

/**
 * Returns whether the error means that the site has no references. For such a site App Service returns an empty list, 400 or
 * 404. A 404 with one of `SITE_MISSING_CODES` means that the site itself does not exist.
 */
function meansNoReferences(error: unknown): boolean {
  if (!(error instanceof CloudFailure)) return false;
  if (error.code === "notFound") return !SITE_MISSING_CODES.has(error.cloudCode ?? "");
  return error.code === "badResponse" && error.status === 400;
}

/** https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors */
const SITE_MISSING_CODES = new Set([
  "ResourceNotFound",
  "ResourceGroupNotFound",
  "ParentResourceNotFound",
  "SubscriptionNotFound",
]);

const keyVaultReference = (
  { name, properties }: z.infer<typeof reference>,
  list: ReferenceList,
): KeyVaultReference => ({
  list,
  name,
  reference: properties.reference ?? "",
  status: properties.status ?? "Unknown",
  ...(properties.activeVersion && { activeVersion: properties.activeVersion }),
});
