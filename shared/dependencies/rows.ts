import { createHash } from "node:crypto";
import * as z from "zod";
import { ASSET_TYPES, type AssetType } from "../inventory/asset.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyEnd, keyText, keyTextOf } from "../platform/storage/keys.ts";
import { pack, packedMember, unpackBytes } from "../platform/storage/packed-members.ts";
import { fenceEntity } from "../platform/storage/tables.ts";
import { Edge } from "./edge.ts";

/**
 * Rows of dependencies. A source is a system that dependencies are read from, such as Azure resources. A unit is the part of a
 * source that is read in one step, such as a subscription.
 *
 * Runs are in the partition `runs`, and the work of each run is in a partition of its own. All other rows are in one partition,
 * so that a resource, its dependencies and the resulting events change in one transaction. Row keys in it:
 *
 * | key | rows |
 * |---|---|
 * | `e\|<vault>\|<type>\|<name>\|<resource hash>\|<hash>` | dependencies (edges), by asset. Whole vault: `*`, no name |
 * | `r\|<unit>\|<resource hash>` | resources, by unit. A unit in a key is `<source>\|<name>` |
 * | `u\|<unit>` | units |
 * | `f\|<unit>` | fences: rows whose ETag rejects the writes of earlier workers |
 * | `c\|<unit>\|<hash>` | coverage: items that could not be read, by unit |
 * | `o\|<ULID>` | events of unresolved references |
 * | `q\|<vault>\|<asset>` | assets that compliance must evaluate again, `*` for the vault itself |
 */
export const TABLE = "Dependencies";
export const DEPENDENCIES = "dependencies";

/** A stored dependency, by its asset. */
export const EdgeRecord = Edge.extend({
  /** Key of the unit that reported it. */
  unit: z.string(),
  /** When the dependency was last written, because its resource or another dependency of that resource changed. */
  toldAt: z.string(),
  /** When the dependency was last confirmed, if its resource could not be read since. Otherwise the unit's row has the time. */
  lastSeenAt: z.string().optional(),
});
export type EdgeRecord = z.infer<typeof EdgeRecord>;
export const Edges = entity(TABLE, EdgeRecord);

/** The dependencies of a resource by row key, compressed: a key of about 90 characters repeats most of the others. */
const PackedEdges = z.array(z.tuple([z.string(), z.union([z.literal(-1), z.literal(0), z.literal(1)])]));

/** Last state of a resource. If it is unchanged, no dependency is read or written. */
export const ResourceRecord = z.object({
  id: z.string(),
  /** Hash of the state; "" while its dependencies are being written. */
  hash: z.string(),
  /** Row keys of its dependencies with their `Resolved`, packed. */
  edges: packedMember(PackedEdges),
  count: z.int(),
  /** Whether the resource was only partly read, so that earlier dependencies were kept. */
  partial: z.boolean().optional(),
  /** When it was last confirmed, if it could not be read since. */
  lastSeenAt: z.string().optional(),
});
export type ResourceRecord = z.infer<typeof ResourceRecord>;
export const Resources = entity(TABLE, ResourceRecord);

export const Failure = z.object({ code: z.string(), message: z.string(), remedy: z.string() });
export type Failure = z.infer<typeof Failure>;

/** State of a unit after its last run. Written under the unit's fence. */
export const UnitRecord = z.object({
  source: z.string(),
  unit: z.string(),
  /** Start of the last completed full run. */
  lastFullAt: z.string().optional(),
  /** Start of the last completed run of any mode, from which the next incremental run continues. */
  lastReadAt: z.string().optional(),
  /** Why the last run failed as a whole. */
  lastFailure: Failure.extend({ at: z.string() }).optional(),
  resources: z.int(),
  edges: z.int(),
  /** Number of items that could not be read (in their own rows), and number of further items without a row. */
  notSeen: z.int(),
  notSeenLeftOut: z.int(),
});
export type UnitRecord = z.infer<typeof UnitRecord>;
export const Units = entity(TABLE, UnitRecord);
export const UnitFences = fenceEntity(TABLE);

/** A scope that could not be read. The API lists these rows as coverage. */
export const NotSeenRecord = Failure.extend({
  scope: z.string(),
  source: z.string(),
  unit: z.string(),
  /** Time of the first run that could not read it. */
  since: z.string(),
});
export type NotSeenRecord = z.infer<typeof NotSeenRecord>;
export const NotSeenRows = entity(TABLE, NotSeenRecord);

/** An event for alerts: a reference can't be resolved anymore. */
export const UnresolvedRecord = z.object({
  /** Unique ID, the same if a run writes the event twice. */
  id: z.string(),
  at: z.string(),
  /** Row key of the dependency. */
  edge: z.string(),
});
export type UnresolvedRecord = z.infer<typeof UnresolvedRecord>;
export const UnresolvedRows = entity(TABLE, UnresolvedRecord);

/** An asset whose references changed. Compliance must evaluate it again. */
export const OutdatedRecord = z.object({
  vaultName: z.string(),
  /** `<type>.<name>`. Absent for a whole vault. */
  asset: z.string().optional(),
});
export type OutdatedRecord = z.infer<typeof OutdatedRecord>;
export const Outdated = entity(TABLE, OutdatedRecord);

const text = (part: string): string => keyText(part.toLowerCase());
/** Returns a hash of this number of base64url characters, with 6 bits each. */
const hash = (content: string, length: number): string =>
  createHash("sha256").update(content).digest("base64url").slice(0, length);

export const EDGES = "e|";
export const UNITS = "u|";
export const NOT_SEEN = "c|";
export const UNRESOLVED = "o|";
export const OUTDATED = "q|";
export const rangeOf = (prefix: string) => ({ partitionKey: DEPENDENCIES, from: prefix, before: keyEnd(prefix) });

/** Used instead of a type for a whole vault. */
const WHOLE_VAULT = "*";
export const vaultPrefix = (vaultName: string): string => `${EDGES}${text(vaultName)}|`;
/** Returns a key prefix. Without a name: of dependencies on the whole vault. */
export const assetPrefix = (vaultName: string, type?: AssetType, name?: string): string =>
  `${vaultPrefix(vaultName)}${type === undefined || name === undefined ? WHOLE_VAULT : type}|${text(name ?? "")}|`;
/**
 * Returns the row key of a dependency. A resource can have one for each setting, variable, field or role.
 *
 * @param resource - The resource's `resourceHash`.
 */
export const edgeKey = ({ vaultName, type, name, strength, evidence }: Edge, resource: string): string =>
  `${assetPrefix(vaultName, type, name)}${resource}|${hash(`${type ?? ""}\n${strength}\n${evidence}`, 10)}`;

/** Returns the asset of a dependency from its row key. Without `asset`: the whole vault. */
export function assetOfEdge(rowKey: string): OutdatedRecord {
  const [vaultName, type, name] = rowKey.slice(EDGES.length).split("|").map(keyTextOf) as [string, string, string];
  const isAsset = (ASSET_TYPES as readonly string[]).includes(type);
  return { vaultName, ...(isAsset ? { asset: `${type}.${name}` } : {}) };
}

/** Returns the `resourceHash` of a dependency's resource from its row key. */
export const resourceOfEdge = (rowKey: string): string => rowKey.split("|")[4] ?? "";

export const unitKey = (source: string, unit: string): string => `${source}|${text(unit)}`;
/** Returns the row key of a unit. In this and the following functions, the parameter `unit` is the result of `unitKey`. */
export const unitRowKey = (unit: string): string => UNITS + unit;
export const fenceKey = (unit: string): string => `f|${unit}`;
export const RESOURCES = "r|";
export const resourcesPrefix = (unit: string): string => `${RESOURCES}${unit}|`;
/** Returns a key part that identifies a resource within a unit. */
export const resourceHash = (unit: string, id: string): string => hash(`${unit}\n${id.toLowerCase()}`, 22);
export const resourceKey = (unit: string, resource: string): string => resourcesPrefix(unit) + resource;
export const notSeenPrefix = (unit: string): string => `${NOT_SEEN}${unit}|`;
export const notSeenKey = (unit: string, { scope, code }: { scope: string; code: string }): string =>
  notSeenPrefix(unit) + hash(`${scope.toLowerCase()}\n${code}`, 22);
export const outdatedKey = ({ vaultName, asset }: OutdatedRecord): string =>
  `${OUTDATED}${text(vaultName)}|${text(asset ?? WHOLE_VAULT)}`;

/** Returns the asset of an `Outdated` row from its key, in lower case. */
export function assetOfOutdated(rowKey: string): OutdatedRecord {
  const [vaultName, asset] = rowKey.slice(OUTDATED.length).split("|").map(keyTextOf) as [string, string];
  return { vaultName, ...(asset !== WHOLE_VAULT && { asset }) };
}

/** Whether the platform can resolve a reference: 1 or 0, or -1 if it does not report that. */
export type Resolved = -1 | 0 | 1;
export const resolvedOf = ({ state }: Pick<Edge, "state">): Resolved =>
  state === undefined ? -1 : state.resolved ? 1 : 0;

export const packEdges = (edges: ReadonlyMap<string, Resolved>): Uint8Array<ArrayBuffer> => pack([...edges]);
export const unpackEdges = ({ edges }: ResourceRecord): Map<string, Resolved> =>
  new Map(unpackBytes(edges, PackedEdges));

export const RUN_STATUSES = ["queued", "running", "completed", "partial", "failed"] as const;
/** A run with its counts. */
export const RunRecord = z.object({
  runId: z.string(),
  /** `changes`: an incremental run, which reads only what may have changed since the last run. */
  mode: z.enum(["full", "changes"]),
  trigger: z.enum(["api", "schedule"]),
  requestedBy: z.string(),
  requestId: z.string(),
  status: z.enum(RUN_STATUSES),
  createdAt: z.string(),
  finishedAt: z.string().optional(),
  /** ID of the plan that the run uses. Two workers may plan concurrently, and the run ignores the other plan. */
  planId: z.string().optional(),
  units: z.int().optional(),
  unitsFailed: z.int().optional(),
  /** Totals after the run. Absent while it is in progress. */
  resources: z.int().optional(),
  edges: z.int().optional(),
  notSeen: z.int().optional(),
  /** Number of resources whose dependencies were written or deleted. */
  changed: z.int().optional(),
  /** The first sources that could not be listed and units that could not be read. */
  failures: z.array(Failure.extend({ source: z.string(), unit: z.string().optional() })),
  /** ID of its entry in the audit log, set when the end is decided. */
  entryId: z.string().optional(),
});
export type RunRecord = z.infer<typeof RunRecord>;
export const Runs = entity(TABLE, RunRecord);
export const RUNS = "runs";
/** Where a later worker continues a unit that took too long for one worker. */
export const ReadTo = z.object({
  /** The last `position` that the source reported. */
  place: z.string(),
  /** When the first worker started the unit. */
  startedAt: z.string(),
});
export type ReadTo = z.infer<typeof ReadTo>;
/** Work on one unit in a run, in the run's own partition. */
export const UnitWork = z.object({
  source: z.string(),
  unit: z.string(),
  /** `remove`: the unit no longer exists. */
  action: z.enum(["read", "remove"]),
  status: z.enum(["waiting", "running", "done", "failed"]),
  /** ID of the worker that has the lease. The age of the row decides whether the lease has expired. */
  worker: z.string().optional(),
  /** Number of workers that started the unit. */
  attempts: z.int(),
  /** Position from which the next worker continues. */
  readTo: ReadTo.optional(),
  changed: z.int().optional(),
  failure: Failure.optional(),
});
export type UnitWork = z.infer<typeof UnitWork>;
export const UnitWorks = entity(TABLE, UnitWork);
export const runPartition = (runId: string): string => `run:${runId}`;
export const workPrefix = (planId: string): string => `${planId}|`;
export const workKey = (planId: string, index: number): string =>
  `${workPrefix(planId)}${String(index).padStart(6, "0")}`;
