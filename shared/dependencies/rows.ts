import { createHash } from "node:crypto";
import * as z from "zod";
import { ASSET_TYPES, type AssetType } from "../inventory/asset.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyEnd, keyText, keyTextOf } from "../platform/storage/keys.ts";
import { pack, unpackBytes, withCorruptRowErrors } from "../platform/storage/packed-members.ts";
import { fenceEntity } from "../platform/storage/tables.ts";
import { Edge } from "./edge.ts";

/**
 * Rows of dependencies. All but the runs stand in one partition, so that a resource changes with its edges, and with what
 * is to be told of them, in one transaction.
 */
export const TABLE = "Dependencies";
export const DEPENDENCIES = "dependencies";

/** An edge as it stands, by the asset that it names. */
export const EdgeRecord = Edge.extend({
  /** The key of the unit in which it was told. */
  unit: z.string(),
  /** When it was told as it is now. */
  toldAt: z.string(),
  /** When it was last seen, where its resource could not be looked into since; else its unit's row tells. */
  lastSeenAt: z.string().optional(),
});
export type EdgeRecord = z.infer<typeof EdgeRecord>;
export const Edges = entity(TABLE, EdgeRecord);

/** What was told of a resource: unchanged means that no edge is read or written. */
export const ResourceRecord = z.object({
  id: z.string(),
  /** Hash of what was told; "" while its edges are being written. */
  hash: z.string(),
  /** The keys of its edges with their `Resolved`, packed. */
  edges: z.instanceof(Uint8Array),
  count: z.int(),
  /** It was told in part, and edges of before are among them. */
  partial: z.boolean().optional(),
  /** When it was last seen, where it could not be looked into since. */
  lastSeenAt: z.string().optional(),
});
export type ResourceRecord = z.infer<typeof ResourceRecord>;
export const Resources = entity(TABLE, ResourceRecord);

export const Failure = z.object({ code: z.string(), message: z.string(), remedy: z.string() });
export type Failure = z.infer<typeof Failure>;

/** A unit of a source and how it was last read. Written under its fence. */
export const UnitRecord = z.object({
  source: z.string(),
  unit: z.string(),
  /** When the last reading of all of it began that came to its end. */
  lastFullAt: z.string().optional(),
  /** The same of any reading: where the next reading of changes goes on. */
  lastReadAt: z.string().optional(),
  /** The last reading failed as a whole. */
  lastFailure: Failure.extend({ at: z.string() }).optional(),
  resources: z.int(),
  edges: z.int(),
  /** What could not be looked into, in rows of their own, and how many found no room there. */
  notSeen: z.int(),
  notSeenLeftOut: z.int(),
});
export type UnitRecord = z.infer<typeof UnitRecord>;
export const Units = entity(TABLE, UnitRecord);
export const UnitFences = fenceEntity(TABLE);

/** Something that could not be looked into. */
export const NotSeenRecord = Failure.extend({
  scope: z.string(),
  source: z.string(),
  unit: z.string(),
  /** Since when. */
  since: z.string(),
});
export type NotSeenRecord = z.infer<typeof NotSeenRecord>;
export const NotSeenRows = entity(TABLE, NotSeenRecord);

/** That a reference can't be followed any more, for who tells people of it. */
export const UnresolvedRecord = z.object({
  /** Tells it apart from all others, and is the same when a run writes it twice. */
  id: z.string(),
  at: z.string(),
  /** The row key of the edge. */
  edge: z.string(),
});
export type UnresolvedRecord = z.infer<typeof UnresolvedRecord>;
export const UnresolvedRows = entity(TABLE, UnresolvedRecord);

/** An asset whose references changed: compliance is still to look at it again. */
export const OutdatedRecord = z.object({
  vaultName: z.string(),
  /** `<type>.<name>`; absent where the whole vault is named. */
  asset: z.string().optional(),
});
export type OutdatedRecord = z.infer<typeof OutdatedRecord>;
export const Outdated = entity(TABLE, OutdatedRecord);

const text = (part: string): string => keyText(part.toLowerCase());
const hash = (content: string, length: number): string =>
  createHash("sha256").update(content).digest("base64url").slice(0, length);

export const EDGES = "e|";
export const UNITS = "u|";
export const NOT_SEEN = "c|";
export const UNRESOLVED = "o|";
export const OUTDATED = "q|";
export const rangeOf = (prefix: string) => ({ partitionKey: DEPENDENCIES, from: prefix, before: keyEnd(prefix) });

/** In the place of a type: no asset is named, all of a vault are meant. */
const WHOLE_VAULT = "*";
export const vaultPrefix = (vaultName: string): string => `${EDGES}${text(vaultName)}|`;
/** Without a name: of the edges that name the whole vault. */
export const assetPrefix = (vaultName: string, type?: AssetType, name?: string): string =>
  `${vaultPrefix(vaultName)}${type === undefined || name === undefined ? WHOLE_VAULT : type}|${text(name ?? "")}|`;
/** Of one resource an asset is named once by each setting, variable, field or role. */
export const edgeKey = ({ vaultName, type, name, strength, evidence }: Edge, resource: string): string =>
  `${assetPrefix(vaultName, type, name)}${resource}|${hash(`${type ?? ""}\n${strength}\n${evidence}`, 10)}`;

/** What an edge names, by its row key. */
export function placeOfEdge(rowKey: string): OutdatedRecord {
  const [vaultName, type, name] = rowKey.slice(EDGES.length).split("|").map(keyTextOf) as [string, string, string];
  const isAsset = (ASSET_TYPES as readonly string[]).includes(type);
  return { vaultName, ...(isAsset ? { asset: `${type}.${name}` } : {}) };
}

export const unitKey = (source: string, unit: string): string => `${source}|${text(unit)}`;
export const unitRowKey = (unit: string): string => UNITS + unit;
export const fenceKey = (unit: string): string => `f|${unit}`;
export const resourcesPrefix = (unit: string): string => `r|${unit}|`;
/** Tells a resource of a unit apart from all others, in keys. */
export const resourceHash = (unit: string, id: string): string => hash(`${unit}\n${id.toLowerCase()}`, 22);
export const resourceKey = (unit: string, resource: string): string => resourcesPrefix(unit) + resource;
export const notSeenPrefix = (unit: string): string => `${NOT_SEEN}${unit}|`;
export const notSeenKey = (unit: string, { scope, code }: { scope: string; code: string }): string =>
  notSeenPrefix(unit) + hash(`${scope.toLowerCase()}\n${code}`, 22);
export const outdatedKey = ({ vaultName, asset }: OutdatedRecord): string =>
  `${OUTDATED}${text(vaultName)}|${text(asset ?? WHOLE_VAULT)}`;

/** Whether the platform can follow a reference: -1 where it does not say. */
export type Resolved = -1 | 0 | 1;
export const resolvedOf = ({ state }: Pick<Edge, "state">): Resolved =>
  state === undefined ? -1 : state.resolved ? 1 : 0;

/** Edges of a resource by row key, deflated: a key of some 90 characters repeats most of them. */
export const packEdges = (edges: ReadonlyMap<string, Resolved>): Uint8Array<ArrayBuffer> => pack([...edges]);
const Packed = z.array(z.tuple([z.string(), z.union([z.literal(-1), z.literal(0), z.literal(1)])]));
/** @param rowKey - The resource's. @throws StorageCorrupt when its row holds no edges. */
export const unpackEdges = (rowKey: string, { edges }: ResourceRecord): Map<string, Resolved> =>
  withCorruptRowErrors(
    Resources,
    { partitionKey: DEPENDENCIES, rowKey },
    "edges",
    () => new Map(edges.length === 0 ? [] : unpackBytes(edges, Packed)),
  );

export const RUN_STATUSES = ["queued", "running", "completed", "partial", "failed"] as const;
/** A run, or the counts of it so far. */
export const RunRecord = z.object({
  runId: z.string(),
  /** `changes` reads of each unit what may have changed since it was last read. */
  mode: z.enum(["full", "changes"]),
  trigger: z.enum(["api", "schedule"]),
  requestedBy: z.string(),
  requestId: z.string(),
  status: z.enum(RUN_STATUSES),
  createdAt: z.string(),
  finishedAt: z.string().optional(),
  /** Whose plan of units holds: two workers may plan at once. */
  planId: z.string().optional(),
  units: z.int().optional(),
  unitsFailed: z.int().optional(),
  /** What is known after it, in all; absent while it runs. */
  resources: z.int().optional(),
  edges: z.int().optional(),
  notSeen: z.int().optional(),
  /** Resources whose edges it wrote or took away. */
  changed: z.int().optional(),
  /** Sources that could not be listed and units that could not be read, the first of them. */
  failures: z.array(Failure.extend({ source: z.string(), unit: z.string().optional() })),
  /** The id of its entry in the audit log, once its end is decided. */
  entryId: z.string().optional(),
});
export type RunRecord = z.infer<typeof RunRecord>;
export const Runs = entity(TABLE, RunRecord);
export const RUNS = "runs";
/** How far the reading of a unit came that ran out of time. */
export const ReadTo = z.object({
  place: z.string(),
  /** When its first part began. */
  startedAt: z.string(),
});
export type ReadTo = z.infer<typeof ReadTo>;
/** One unit's work in a run. */
export const UnitWork = z.object({
  source: z.string(),
  unit: z.string(),
  /** `remove`: there is no such unit any more. */
  action: z.enum(["read", "remove"]),
  status: z.enum(["waiting", "running", "done", "failed"]),
  /** The worker that has it. How long it may is told by the age of this row. */
  worker: z.string().optional(),
  /** How many workers began it. */
  attempts: z.int(),
  /** The next worker goes on from there. */
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
