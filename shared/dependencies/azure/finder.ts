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

/** A resource as Resource Graph has it. */
export interface ResourceRow {
  id: string;
  /** In lower case. */
  type: string;
  name: string;
  /** Such as `functionapp,linux`. */
  kind: string;
  tags: Record<string, string>;
  /** The name of its pricing tier, where it has one. */
  sku: string;
  properties: unknown;
}

/** One use of one asset, or of a whole vault, by the resource. */
export interface Use {
  asset: NamedAsset;
  evidence: string;
  refresh: Refresh;
  /** Default `references`. */
  strength?: Edge["strength"];
  state?: Edge["state"];
}

export interface Found {
  uses: Use[];
  /** Why some of its configuration could not be read. */
  failures?: CloudFailure[];
}

/** What finders ask beside the row itself. */
export interface FinderContext {
  names: KeyVaultNames;
  appService: AppService;
  appConfiguration: AppConfigurationReferences;
  apiManagement: ApiManagement;
  dataFactory: DataFactory;
  frontDoor: FrontDoor;
  sql: Sql;
  /** Which vault a connection of Logic Apps opens, by its resource id; undefined for any other connection. */
  vaultOfConnection(connectionId: string): Promise<string | undefined>;
  /** What an identity may read, by its object id. */
  entitledTo(principalId: string): Promise<EntitledAsset[]>;
  signal?: AbortSignal | undefined;
}

/** Finds out what one kind of resource uses. */
export interface Finder {
  /** Types of the resource manager, in lower case. */
  types: readonly string[];
  /** Other types below these: when one changes, the resource that it is part of is looked into again. */
  parts?: readonly string[];
  kind(row: ResourceRow): ConsumerKind;
  /** Which properties it is asked with. `namingVault`: with all, and one whose properties name no vault uses none. */
  properties: "none" | "all" | "namingVault";
  /** @throws {CloudFailure} when the resource can't be looked into. */
  find(row: ResourceRow, context: FinderContext): Found | Promise<Found>;
}

/**
 * The resource's properties, as `schema` describes them.
 * @throws {CloudFailure} badResponse when they are not what the service documents.
 */
export function propertiesOf<T>(row: ResourceRow, schema: z.ZodType<T>): T {
  const { success, data, error } = schema.safeParse(row.properties ?? {});
  if (success) return data;
  throw undocumented({ operation: "read the properties", resource: resourceName(row.id) }, error);
}

/** A place of a resource's configuration that may name an asset. */
export interface Place {
  /** Such as `appsettings/DB_PASSWORD`: the list and the name in it. */
  evidence: string;
  /** What stands there; nothing: it names none. */
  text: unknown;
  /** What becomes of a reference that follows the newest version; one that names a version stays with it. */
  refresh: Refresh;
  /** It follows the newest version although it names one. */
  follows?: boolean | null | undefined;
  state?: Edge["state"];
}

/** The uses that these places name. Those in a spelling that is none are a failure, which hides none of the others. */
export function usesIn(
  row: ResourceRow,
  places: readonly Place[],
  read: (text: unknown) => NamedAsset | undefined,
): Required<Found> {
  const uses: Use[] = [];
  const wrong: string[] = [];
  for (const { evidence, text, refresh, follows, state } of places) {
    if (text === undefined || text === null || text === "") continue;
    const named = read(text);
    if (!named) {
      wrong.push(evidence);
      continue;
    }
    const { version, ...rest } = named;
    const isPinned = version !== undefined && !follows;
    const asset = isPinned ? named : rest;
    uses.push({ asset, evidence, refresh: isPinned ? { how: "willBreak" } : refresh, ...(state && { state }) });
  }
  return { uses, failures: wrong.length > 0 ? [unreadableReferences(row, wrong)] : [] };
}

/** The failure does not show the text: people put secrets in the place of references. */
function unreadableReferences(row: ResourceRow, places: readonly string[]): CloudFailure {
  const named = places.slice(0, 5).join(", ").slice(0, 500);
  const rest = places.length > 5 ? ` and ${places.length - 5} more` : "";
  const resource = resourceName(row.id);
  return new CloudFailure(
    "invalidReference",
    `Could not read the key vault reference in ${named}${rest} (${resource}): it names no asset of a key vault of this cloud.`,
    {
      remedy:
        "Correct the reference, or remove it. The documentation of the service that reads it shows how it is written.",
    },
  );
}
