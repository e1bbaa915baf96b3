import * as z from "zod";
import {
  ASSET_TYPES,
  assetId,
  credentialIds,
  isCredentialId,
  locationsOf,
  titleOfCredential,
} from "../inventory/asset.ts";
import { pageParameters } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import { queryBoolean } from "../platform/http/query-boolean.ts";
import { toSingleLine } from "../platform/http/single-line.ts";
import { type Consumer, DRIVERS } from "./blast-radius.ts";
import type { Coverage as CoverageRecord } from "./coverage.ts";
import type { Dependencies, BlastRadius as FoundBlastRadius } from "./dependencies.ts";
import { applicationVaultName, CONSUMER_KINDS } from "./edge.ts";
import { INCOMPLETE_REASONS } from "./incomplete.ts";
import type { EdgeFilter, FoundEdge } from "./query.ts";
import { type NotSeenRecord, RUN_STATUSES, type RunRecord } from "./rows.ts";

/**
 * API schemas of dependencies, and views: functions that convert stored records to the schemas. A dependency says that a
 * resource (consumer) uses an asset (secret, key or certificate of a vault).
 */

const instant = z.iso.datetime().meta({ description: "Time, ISO 8601 in UTC." });

const Resource = z
  .object({
    id: z.string().meta({
      description:
        "Azure resource ID. For other systems, an ID that starts with the system, such as `sync/<recordId>`.",
    }),
    kind: z.enum(CONSUMER_KINDS).meta({ description: "Kind of the resource." }),
    name: z.string(),
    subscriptionId: z.string().nullable(),
    environment: z.string().nullable().meta({ description: "Value of its tag `environment`, `env` or `stage`." }),
    identityOf: z.string().nullable().meta({
      description: "For a principal: ID of the resource whose system-assigned managed identity it is.",
    }),
    managedBy: z.string().nullable().meta({
      description: "Tool that also writes the settings, such as Terraform. It reverts manual changes.",
    }),
  })
  .meta({ id: "Consumer" });

const STRENGTHS = ["references", "entitled", "observed"] as const;
/**
 * How a consumer gets a new version: without help; after an action, such as a restart; at a time that can't be observed; or
 * never, because it names a version or stores a copy.
 */
const REFRESH_MODES = ["automatic", "action", "blind", "willBreak"] as const;

export const Dependency = z
  .object({
    secret: z.string().nullable().meta({
      description:
        "ID of the asset. Null when the consumer uses a whole vault, or any client secret of an application. For an application, `vaultName` is `entra.<tenantId>` and `name` is the client ID.",
      example: "kv-payments.secret.db-password",
    }),
    vaultName: z.string(),
    type: z
      .enum(ASSET_TYPES)
      .nullable()
      .meta({ description: "Whether the asset is a secret, a key or a certificate. Null for a whole vault." }),
    name: z.string().nullable(),
    resource: Resource,
    strength: z.enum(STRENGTHS).meta({
      description:
        "`references`: the configuration names the asset. `entitled`: the consumer has access; whether it uses the asset is unknown. `observed`: a log shows that it read the asset.",
    }),
    evidence: z.string().meta({
      description: "Name of the setting, variable, field, role or logged operations. Never a value.",
    }),
    pinned: z.string().nullable().meta({ description: "Version that the reference names. Null: the newest version." }),
    refresh: z
      .object({
        how: z.enum(REFRESH_MODES).meta({ description: "How the consumer picks up a new version." }),
        slowestSeconds: z.int().nullable().meta({ description: "Maximum delay of `automatic` in seconds." }),
      })
      .meta({
        id: "ConsumerRefresh",
        description:
          "Effect of a new version of the asset. `automatic`: the consumer uses it automatically. `action`: the consumer needs an update or restart. `blind`: the service can't tell when the consumer uses it. `willBreak`: the consumer keeps using the old value.",
      }),
    state: z
      .object({
        resolved: z.boolean(),
        status: z.string().meta({ description: "Status text of the platform, such as `AccessToKeyVaultDenied`." }),
        version: z.string().nullable(),
      })
      .nullable()
      .meta({
        description: "Whether the platform can resolve the reference now. Null when the platform does not report it.",
      }),
    copy: z.boolean().meta({ description: "The consumer holds a copy of the value that must be replaced manually." }),
    seenAt: instant.meta({ description: "Time of the last confirmation. For `observed`, the day of the last read." }),
  })
  .meta({ id: "Dependency" });

/** A coverage item: a scope that discovery could not read, and why. `NotLookedInto` is its published name. */
const NotSeen = z
  .object({
    scope: z.string().meta({ description: "Resource ID, subscription, or identifier in another system." }),
    source: z
      .string()
      .nullable()
      .meta({ description: "`azure`, `devops`, `sync`, `logs` or `literals` (plaintext copies in settings)." }),
    code: z.string(),
    message: z.string(),
    remedy: z.string(),
    since: instant.nullable(),
  })
  .meta({ id: "NotLookedInto" });

const lastFullAt = instant.nullable().meta({
  description:
    "Start of the oldest among the last complete runs over each unit, such as a subscription. Null while a unit was never read completely, or if there is none.",
});

const Coverage = z
  .object({
    items: z.array(NotSeen).meta({ description: "Up to 20; GET …/dependencies/coverage returns all." }),
    total: z.int(),
    lastFullAt,
  })
  .meta({
    id: "DependencyCoverage",
    description:
      "Resources that could not be read. Code that reads a vault directly, and workloads inside clusters or virtual machines, do not appear in any configuration: an asset without consumers here can still be in use.",
  });

const pageMembers = {
  total: z
    .int()
    .min(0)
    .nullable()
    .meta({ description: "Total number of items. Null when only a lower bound is known; see `totalAtLeast`." }),
  totalAtLeast: z.int().min(0).optional(),
  limit: z.int(),
  offset: z.int(),
  nextCursor: z.string().nullable().meta({ description: "Cursor of the next page. Null on the last page." }),
};

export const DependencyList = z
  .object({ items: z.array(Dependency), ...pageMembers, coverage: Coverage })
  .meta({ id: "DependencyList" });

export const CoverageList = z
  .object({ items: z.array(NotSeen), ...pageMembers, lastFullAt })
  .meta({ id: "DependencyCoverageList" });

export const DependencyQuery = z.strictObject({
  vault: z.string().min(1).max(127).optional().meta({ description: "Name of the vault." }),
  secret: z.string().min(1).max(127).optional().meta({ description: "Name of the secret, key or certificate." }),
  assetId: z.string().min(1).max(300).optional().meta({
    description:
      "Only consumers that name this asset, not those of its whole vault. For an application credential: consumers that use a client secret of the application, also if the credential is a certificate.",
    example: "kv-payments.secret.db-password",
  }),
  kind: z.enum(CONSUMER_KINDS).optional(),
  strength: z.enum(STRENGTHS).optional(),
  subscription: z.string().min(1).max(100).optional().meta({ description: "Subscription of the consumer." }),
  environment: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .meta({ description: "Environment of the consumer, not case-sensitive." }),
  resolved: queryBoolean().optional().meta({ description: "`false`: references that the platform can't resolve now." }),
  pinned: queryBoolean().optional().meta({ description: "`true`: references to a specific version." }),
  refresh: z.enum(REFRESH_MODES).optional(),
  ...pageParameters,
});

/**
 * Returns the filter of a query, with the vault, type and name of the asset that its `assetId` names.
 *
 * @throws {Problem} invalidRequest for a text that can't be an asset ID.
 */
export function filterOf(query: z.output<typeof DependencyQuery>): EdgeFilter {
  const { limit: _limit, offset: _offset, cursor: _cursor, assetId: id, ...filter } = query;
  if (id === undefined) return filter;
  // The ID of an application credential has two readings, for its two possible types. Both have the same name.
  const [asset] = locationsOf(id);
  // The ID is `entra.<tenant ID>.<client ID>.<key ID>`. Consumers name the application, not one of its credentials.
  const application = isCredentialId(id) && /^entra\./i.test(id) ? credentialIds(asset?.name ?? "") : undefined;
  if (application) {
    const vaultName = applicationVaultName(id.split(".")[1]!);
    return { ...filter, asset: { vaultName, type: "secret", name: application.appId } };
  }
  if (!asset) {
    throw new Problem("invalidRequest", "An asset's id is <vault>.<type>.<name>.", {
      errors: [{ path: "query.assetId", message: "must be an asset's id" }],
    });
  }
  return { ...filter, asset };
}

export function dependencyView({ edge, seenAt }: FoundEdge): z.infer<typeof Dependency> {
  const { vaultName, type, name, resource, strength, evidence, pinned, refresh, state, copy = false } = edge;
  const id = type !== undefined && name !== undefined ? assetId({ vaultName, type, name }) : "";
  return {
    // Null also for a consumer of an application: `entra.<tenant ID>.secret.<client ID>` is not the ID of an asset.
    secret: locationsOf(id).length > 0 ? id : null,
    vaultName,
    type: type ?? null,
    name: name ?? null,
    resource: resourceView(resource),
    strength,
    evidence,
    pinned: pinned ?? null,
    refresh: { how: refresh.how, slowestSeconds: refresh.slowestSeconds ?? null },
    state: state ? { ...state, version: state.version ?? null } : null,
    copy,
    seenAt,
  };
}

const resourceView = (resource: FoundEdge["edge"]["resource"]): z.infer<typeof Resource> => ({
  id: resource.id,
  kind: resource.kind,
  name: resource.name,
  subscriptionId: resource.subscriptionId ?? null,
  environment: resource.environment ?? null,
  identityOf: resource.identityOf ?? null,
  managedBy: resource.managedBy ?? null,
});

/**
 * Converts a coverage item. Before the first run, the coverage has one item, which says so. Its `source` and `since` are "",
 * which becomes null.
 */
export const notSeenView = (item: NotSeenRecord): z.infer<typeof NotSeen> => ({
  scope: item.scope,
  source: item.source || null,
  code: item.code,
  message: item.message,
  remedy: item.remedy,
  since: item.since || null,
});

export const coverageView = ({ items, total, lastFullAt }: CoverageRecord): z.infer<typeof Coverage> => ({
  items: items.map(notSeenView),
  total,
  lastFullAt: lastFullAt ?? null,
});

/** Maximum number of consumers in the list. */
const MAX_CONSUMERS = 500;
/** Maximum number of consumers in the graph. */
const MAX_NODES = 100;

const BlastConsumer = z
  .object({
    resource: Resource,
    strength: z.enum(STRENGTHS),
    evidence: z.array(z.string()).meta({ description: "Names of settings, variables, fields or roles, up to 20." }),
    refresh: z.enum(REFRESH_MODES).meta({
      description:
        "How the consumer gets a new version: automatically, after an update or restart, at an unknown time, or never.",
    }),
    pinned: z.string().nullable().meta({ description: "Version that the reference names. Null: the newest version." }),
    resolved: z.boolean().nullable(),
    effect: z.string().meta({ description: "Effect of a rotation on the consumer, in a sentence." }),
    weight: z.number().meta({ description: "Contribution to the score." }),
    seenAt: instant,
  })
  .meta({ id: "BlastRadiusConsumer" });

export const BlastRadius = z
  .object({
    secret: z
      .string()
      .meta({ description: "ID of the asset. For the secret or key behind a certificate, the ID of the certificate." }),
    score: z.int().min(0).max(100).meta({
      description:
        "0: no known consumers; see `incomplete`. Increases with each consumer by its weight; see docs/dependencies.md.",
    }),
    drivers: z
      .array(
        z.object({
          driver: z.enum(DRIVERS).meta({ description: "Reason that raises the score. `message` describes it." }),
          count: z.int().meta({ description: "Number of consumers that the driver covers." }),
          points: z.int().meta({ description: "Decrease of the score without this driver. Drivers overlap." }),
          message: z.string(),
        }),
      )
      .meta({ description: "Drivers of the score, largest first." }),
    total: z.int().meta({ description: "Number of consumers, including those that only have access." }),
    more: z.boolean().meta({
      description: "True when more consumers exist than are counted. The score would then be equal or higher.",
    }),
    incomplete: z.boolean().meta({
      description:
        "True when consumers may be missing. The score is then a lower bound, and a score of 0 does not mean that the asset is unused.",
    }),
    incompleteReason: z.enum(INCOMPLETE_REASONS).nullable().meta({
      description:
        "`undetectable`: the service can't find consumers of a B2C credential or of an application's certificate; `coverage` says what to check. `neverSearched`: a source was never read completely. `limit`: see `more`. `notAllSearched`: see `coverage`. Null when `incomplete` is false.",
    }),
    byKind: z.record(z.string(), z.int()).meta({ description: "Numbers of consumers by kind." }),
    byEnvironment: z.record(z.string(), z.int()).meta({ description: "`unknown`: no tag names the environment." }),
    consumers: z
      .array(BlastConsumer)
      .meta({ description: `Consumers with the highest weight, up to ${MAX_CONSUMERS}.` }),
    nodes: z
      .array(
        z.object({
          id: z.string(),
          kind: z.string().meta({ description: "Kind of the resource, or type of the asset." }),
          name: z.string(),
          environment: z.string().nullable(),
        }),
      )
      .meta({ description: "Nodes of the graph: the asset and its consumers." }),
    edges: z
      .array(
        z.object({
          from: z.string().meta({ description: "Node of the consumer." }),
          to: z.string().meta({ description: "Node of the asset." }),
          strength: z.enum(STRENGTHS),
          refresh: z.enum(REFRESH_MODES).meta({ description: "How the consumer picks up a new version." }),
        }),
      )
      .meta({ description: "Edges of the graph, from each consumer with a node to the asset." }),
    leftOut: z.int().meta({
      description: `Number of consumers without a node: the graph has the ${MAX_NODES} with the highest weight.`,
    }),
    coverage: Coverage,
  })
  .meta({ id: "BlastRadius" });

export function blastRadiusView(found: FoundBlastRadius): z.infer<typeof BlastRadius> {
  const { assetId: secret, asset, score, drivers, consumers, more, incompleteReason, coverage } = found;
  const shownConsumers = consumers.slice(0, MAX_NODES);
  return {
    secret,
    score,
    drivers,
    total: consumers.length,
    more,
    incomplete: incompleteReason !== undefined,
    incompleteReason: incompleteReason ?? null,
    byKind: countBy(consumers, ({ resource }) => resource.kind),
    byEnvironment: countBy(consumers, ({ resource }) => resource.environment?.toLowerCase() ?? "unknown"),
    consumers: consumers.slice(0, MAX_CONSUMERS).map(consumerView),
    nodes: [
      { id: secret, kind: asset.asset.type, name: nameOf(asset.asset), environment: null },
      ...shownConsumers.map(({ resource: { id, kind, name, environment } }) => {
        return { id, kind, name, environment: environment ?? null };
      }),
    ],
    // One edge for each consumer: its dependency with the highest weight, which comes first.
    edges: shownConsumers.map(({ resource, edges: [heaviest] }) => {
      const { strength, refresh } = heaviest!.edge;
      return { from: resource.id, to: secret, strength, refresh: refresh.how };
    }),
    leftOut: consumers.length - shownConsumers.length,
    coverage: coverageView(coverage),
  };
}

/** Returns the name to show. The stored name of an application credential consists of IDs, so its title is used. */
const nameOf = ({ name, credential }: FoundBlastRadius["asset"]["asset"]): string =>
  (credential && titleOfCredential(credential)) || name;

function consumerView({ resource, edges, effect, weight }: Consumer): z.infer<typeof BlastConsumer> {
  // The dependencies are sorted by weight, so the first one describes the consumer.
  const { edge, seenAt } = edges[0]!;
  return {
    resource: resourceView(resource),
    strength: edge.strength,
    evidence: [...new Set(edges.map((one) => one.edge.evidence))].slice(0, 20),
    refresh: edge.refresh.how,
    pinned: edge.pinned ?? null,
    resolved: edge.state?.resolved ?? null,
    effect,
    weight,
    seenAt,
  };
}

function countBy(consumers: readonly Consumer[], groupOf: (consumer: Consumer) => string): Record<string, number> {
  const counts = new Map<string, number>();
  for (const consumer of consumers) counts.set(groupOf(consumer), (counts.get(groupOf(consumer)) ?? 0) + 1);
  return Object.fromEntries([...counts].sort(([a], [b]) => (a < b ? -1 : 1)));
}

const SeenReader = z
  .object({
    id: z.string().meta({ description: "Object ID of the caller, if the log contains it." }),
    name: z.string().meta({ description: "Name of the user or application. Its ID if the log contains no name." }),
    kind: z.enum(["application", "person"]).meta({ description: "Whether the caller is an application or a user." }),
    appId: z.string().nullable(),
    identityOf: z.string().nullable().meta({ description: "Resource whose managed identity the caller is." }),
    operations: z.array(z.string()).meta({ description: "Key Vault operations, such as `SecretGet`." }),
    lastReadAt: instant,
    reads: z.int().meta({ description: "Number of reads in the last 30 days, within the period that the logs cover." }),
    versions: z
      .array(z.object({ version: z.string(), lastReadAt: instant }))
      .meta({ description: "Versions that were read, up to 10, most recent first." }),
    expected: z.boolean().nullable().meta({
      description:
        "Whether a role, an access policy or a known reference explained the read when it was first seen. Null until access data is available.",
    }),
  })
  .meta({ id: "AssetReader" });

export const AssetUsage = z
  .object({
    secret: z.string().meta({ description: "ID of the asset." }),
    lastReadAt: instant.nullable(),
    readers: z.array(SeenReader).meta({ description: "Readers, up to 200 per workspace, most recent first." }),
    more: z.boolean().meta({ description: "True when there are older readers that are not listed." }),
    lastSignInAt: instant.nullable().meta({ description: "For an application credential: its last logged sign-in." }),
    logs: z
      .array(
        z.object({
          workspaceId: z.string().meta({ description: "ID of the Log Analytics workspace." }),
          readFrom: instant
            .nullable()
            .meta({ description: "Start of the period read without gaps. Null if never read." }),
          readTo: instant.nullable().meta({ description: "End of the period read. Null if never read." }),
          vaultSince: instant
            .nullable()
            .meta({ description: "Time since when the log contains events of the vault. Null if it contains none." }),
          failure: z
            .object({ code: z.string(), message: z.string(), remedy: z.string(), at: instant })
            .nullable()
            .meta({ description: "Why the workspace can't be read now." }),
        }),
      )
      .meta({ description: "Configured workspaces. Without a workspace, no reads are known." }),
  })
  .meta({
    id: "AssetUsage",
    description:
      "Reads recorded in the vaults' logs, excluding reads by this service. Logs can lag or lack this vault, so no entries do not prove that the asset is unused.",
  });

export function usageView({
  assetId: secret,
  usage: { lastAt, readers, more, logs },
  lastSignIn,
}: Awaited<ReturnType<Dependencies["usage"]>>): z.infer<typeof AssetUsage> {
  return {
    secret,
    lastReadAt: lastAt ?? null,
    readers: readers.map((one) => ({
      id: one.id,
      name: toSingleLine(one.title),
      kind: one.userName === undefined ? "application" : "person",
      appId: one.appId ?? null,
      identityOf: one.identityOf ?? null,
      operations: one.operations,
      lastReadAt: one.lastAt,
      reads: one.uses,
      versions: one.versions.map(({ version, lastAt: lastReadAt }) => ({ version, lastReadAt })),
      expected: one.expected ?? null,
    })),
    more,
    lastSignInAt: lastSignIn?.toISOString() ?? null,
    logs: logs.map(({ workspaceId, readFrom, readTo, vaultSince, failure }) => ({
      workspaceId,
      readFrom: readFrom ?? null,
      readTo: readTo ?? null,
      vaultSince: vaultSince ?? null,
      failure: failure ?? null,
    })),
  };
}

export const DependencyRun = z
  .object({
    runId: z.string(),
    mode: z.enum(["full", "changes"]).meta({ description: "`changes` reads only possible changes." }),
    status: z.enum(RUN_STATUSES).meta({
      description: "`partial`: something could not be read; known entries are kept, and `failures` states the reason.",
    }),
    requestedBy: z.string(),
    createdAt: instant,
    finishedAt: instant.nullable(),
    units: z
      .int()
      .nullable()
      .meta({ description: "Number of units, such as subscriptions. Null until the run is planned." }),
    unitsFailed: z.int().nullable().meta({ description: "Number of failed units." }),
    resources: z
      .int()
      .nullable()
      .meta({ description: "Number of known consumers after the run. Null while it is in progress." }),
    edges: z
      .int()
      .nullable()
      .meta({ description: "Number of known dependencies after the run. Null while it is in progress." }),
    notSeen: z
      .int()
      .nullable()
      .meta({ description: "Number of resources that could not be read; see GET …/dependencies/coverage." }),
    changed: z.int().nullable().meta({ description: "Number of consumers that were changed, added or removed." }),
    failures: z
      .array(
        z.object({
          source: z.string().meta({ description: "Source: `azure`, `devops`, `sync`, `logs` or `literals`." }),
          unit: z.string().nullable().meta({ description: "Unit, such as a subscription. Null for the whole source." }),
          code: z.string(),
          message: z.string(),
          remedy: z.string(),
        }),
      )
      .meta({ description: "Units that could not be read, up to 100." }),
  })
  .meta({ id: "DependencyRun" });

export const runParams = z.object({ run_id: z.string().meta({ description: "ID of the dependency discovery run." }) });
export const secretParams = z.object({
  secret_id: z.string().meta({ description: "ID of the asset.", example: "kv-payments.secret.db-password" }),
});

export function runView(run: RunRecord): z.infer<typeof DependencyRun> {
  const { runId, mode, status, requestedBy, createdAt, failures } = run;
  return {
    runId,
    mode,
    status,
    requestedBy,
    createdAt,
    finishedAt: run.finishedAt ?? null,
    units: run.units ?? null,
    unitsFailed: run.unitsFailed ?? null,
    resources: run.resources ?? null,
    edges: run.edges ?? null,
    notSeen: run.notSeen ?? null,
    changed: run.changed ?? null,
    failures: failures.map(({ source, unit, code, message, remedy }) => {
      return { source, unit: unit ?? null, code, message, remedy };
    }),
  };
}
