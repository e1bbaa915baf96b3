import type * as z from "zod";
import type { ApiManagement } from "../../platform/azure/api-management.ts";
import type { AppConfigurationReferences } from "../../platform/azure/app-configuration-references.ts";
import type { AppService } from "../../platform/azure/app-service.ts";
import { undocumented } from "../../platform/azure/calls.ts";
import type { DataFactory } from "../../platform/azure/data-factory.ts";
import { CloudFailure } from "../../platform/azure/failure.ts";
import type { FrontDoor } from "../../platform/azure/front-door.ts";
import { resourceName } from "../../platform/azure/resource-id.ts";
import type { Sql } from "../../platform/azure/sql.ts";
import type { ConsumerKind, Edge, Refresh } from "../edge.ts";
import type { EntitledAsset } from "./entitlements.ts";
import type { KeyVaultNames, NamedAsset } from "./key-vault-names.ts";

/** A resource as Resource Graph returns it. */
export interface ResourceRow {
  id: string;
  /** In lower case. */
  type: string;
  name: string;
  /** Kind, for example `functionapp,linux`. */
  kind: string;
  tags: Record<string, string>;
  /** Name of the pricing tier, if there is one. */
  sku: string;
  properties: unknown;
}

/** One use of an asset, or of a whole vault, by a resource. */
export interface Use {
  asset: NamedAsset;
  /** Name of the setting, field or role that shows the use, such as `appsettings/DB_PASSWORD`. */
  evidence: string;
  refresh: Refresh;
  /** Default: `references`. */
  strength?: Edge["strength"];
  state?: Edge["state"];
  /** For a certificate: the host names at which the resource serves it. */
  hosts?: string[];
}

/** Result of a finder for one resource. */
export interface Found {
  uses: Use[];
  /** Why some of the configuration could not be read. */
  failures?: CloudFailure[];
}

/** Services that finders use in addition to the row. */
export interface FinderContext {
  names: KeyVaultNames;
  appService: AppService;
  appConfiguration: AppConfigurationReferences;
  apiManagement: ApiManagement;
  dataFactory: DataFactory;
  frontDoor: FrontDoor;
  sql: Sql;
  /** Returns the vault that a Logic Apps connection opens, by resource ID; undefined for other connections. */
  vaultOfConnection(connectionId: string): Promise<string | undefined>;
  /** Returns the host names of web apps that serve the certificate with this thumbprint. */
  hostsServing(thumbprint: string): Promise<string[]>;
  /** Returns the assets that an identity may read, by object ID. */
  entitledTo(principalId: string): Promise<EntitledAsset[]>;
  signal?: AbortSignal | undefined;
}

/**
 * Finds the assets of key vaults that resources of one kind use. subscription-reading.ts queries the resources of all finders'
 * types from Azure Resource Graph and calls `find` for each row.
 */
export interface Finder {
  /** Resource types of Azure Resource Manager, in lower case. */
  types: readonly string[];
  /**
   * Types of child resources that contain references, in lower case. When a child changes, an incremental run reads its parent
   * again.
   */
  childTypes?: readonly string[];
  kind(row: ResourceRow): ConsumerKind;
  /** Properties to query. `namingVault`: all properties, only of resources whose properties name a vault. */
  properties: "none" | "all" | "namingVault";
  /** @throws {CloudFailure} if the resource can't be read. */
  find(row: ResourceRow, context: FinderContext): Found | Promise<Found>;
}

/**
 * Returns the resource's properties, validated by `schema`.
 * @throws {CloudFailure} badResponse if they differ from the documentation of the service.
 */
export function propertiesOf<T>(row: ResourceRow, schema: z.ZodType<T>): T {
  const { success, data, error } = schema.safeParse(row.properties ?? {});
  if (success) return data;
  throw undocumented({ operation: "read the properties", resource: resourceName(row.id) }, error);
}

/** A location in a resource's configuration that may reference an asset. */
export interface ConfigLocation {
  /** List and name, such as `appsettings/DB_PASSWORD`. */
  evidence: string;
  /**
   * The value at this location: a text, or an object if several fields make up the reference. `undefined`, null and ""
   * reference nothing.
   */
  text: unknown;
  /** How an unpinned reference gets a new version. A pinned reference keeps its version, so its use gets `willBreak`. */
  refresh: Refresh;
  /** Whether the resource uses the newest version although the reference names a version. Such a reference is not pinned. */
  usesNewestVersion?: boolean | null | undefined;
  state?: Edge["state"];
  /** For a certificate: the host names at which the resource serves it. Wildcards are left out. */
  hosts?: readonly (string | null | undefined)[] | undefined;
}

/**
 * Returns the uses in these locations. Invalid references give one failure and do not hide the others.
 *
 * @param parse - Parses the value of a location. Returns undefined for an invalid reference.
 */
export function usesIn(
  row: ResourceRow,
  locations: readonly ConfigLocation[],
  parse: (text: unknown) => NamedAsset | undefined,
): Required<Found> {
  const uses: Use[] = [];
  const invalid: string[] = [];
  for (const { evidence, text, refresh, usesNewestVersion, state, hosts } of locations) {
    if (text === undefined || text === null || text === "") continue;
    const named = parse(text);
    if (!named) {
      invalid.push(evidence);
      continue;
    }
    const { version, ...unversioned } = named;
    const isPinned = version !== undefined && !usesNewestVersion;
    const asset = isPinned ? named : unversioned;
    const names = servableHosts(hosts ?? []);
    uses.push({
      asset,
      evidence,
      refresh: isPinned ? { how: "willBreak" } : refresh,
      ...(state && { state }),
      ...(names.length > 0 && { hosts: names }),
    });
  }
  return { uses, failures: invalid.length > 0 ? [unreadableReferences(row, invalid)] : [] };
}

/** Maximum number of host names of a use. A certificate has no more discovered endpoints, and a row has room for them. */
const MAX_HOSTS = 50;
/** https://www.rfc-editor.org/rfc/rfc1035#section-2.3.4, without the length bytes of the first label and the root. */
const MAX_HOST_CHARACTERS = 253;

/** Returns the first host names in alphabetical order, once each, without wildcards, which no server has. */
export const servableHosts = (hosts: readonly (string | null | undefined)[]): string[] =>
  [...new Set(hosts)]
    .filter((host): host is string => !!host && host.length <= MAX_HOST_CHARACTERS && !host.includes("*"))
    .sort()
    .slice(0, MAX_HOSTS);

/**
 * Returns the failure for locations whose value is no valid reference. It does not contain the value, because people enter
 * secrets where a reference belongs.
 */
function unreadableReferences(row: ResourceRow, locations: readonly string[]): CloudFailure {
  const named = locations.slice(0, 5).join(", ").slice(0, 500);
  const rest = locations.length > 5 ? ` and ${locations.length - 5} more` : "";
  const resource = resourceName(row.id);
  return new CloudFailure(
    "invalidReference",
    `Could not read the key vault reference in ${named}${rest} (${resource}): it does not name an asset of a key vault of this cloud.`,
    {
      remedy: "Correct or remove the reference. The documentation of the service that reads it describes the notation.",
    },
  );
}
