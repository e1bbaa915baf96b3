import * as z from "zod";
import { pageParameters } from "../http/paging.ts";
import { Problem } from "../http/problem.ts";
import { onOneLine } from "../http/text.ts";
import { ASSET_TYPES, assetId, credentialIds, isCredentialId, placesOf } from "../inventory/asset.ts";
import { type Consumer, DRIVERS } from "./blast-radius.ts";
import type { Coverage as CoverageRecord } from "./coverage.ts";
import type { Dependencies, BlastRadius as FoundBlastRadius } from "./dependencies.ts";
import { applicationHolder, CONSUMER_KINDS } from "./edge.ts";
import type { EdgeFilter, FoundEdge } from "./query.ts";
import { type NotSeenRecord, RUN_STATUSES, type RunRecord } from "./rows.ts";

/** Dependencies as the API shows them. */

const instant = z.iso.datetime().meta({ description: "ISO 8601 in UTC." });

const Resource = z
  .object({
    id: z.string().meta({
      description:
        "The Azure resource id; of other systems an id that names the system first, such as `sync/<recordId>`.",
    }),
    kind: z.enum(CONSUMER_KINDS).meta({ description: "What kind of resource it is." }),
    name: z.string(),
    subscriptionId: z.string().nullable(),
    environment: z.string().nullable().meta({ description: "Its tag `environment`, `env` or `stage`." }),
    identityOf: z.string().nullable().meta({
      description: "Of a principal that a log has seen: the id of the resource whose managed identity it is.",
    }),
    managedBy: z.string().nullable().meta({
      description: "What else writes its settings, such as Terraform: a change by hand comes back.",
    }),
  })
  .meta({ id: "Consumer" });

const STRENGTHS = ["references", "entitled", "observed"] as const;
const HOW = ["automatic", "action", "blind", "willBreak"] as const;

export const Dependency = z
  .object({
    secret: z.string().nullable().meta({
      description:
        "The id of the asset that is used; null where all of the vault is meant, or an application by any of its secrets (`vaultName` is then `entra.<tenantId>`, `name` the client id).",
      example: "kv-payments.secret.db-password",
    }),
    vaultName: z.string(),
    type: z
      .enum(ASSET_TYPES)
      .nullable()
      .meta({ description: "Whether it is a secret, a key or a certificate; null where all of the vault is meant." }),
    name: z.string().nullable(),
    resource: Resource,
    strength: z.enum(STRENGTHS).meta({
      description:
        "`references`: its configuration names the asset. `entitled`: it may read it, whether it does is not known. `observed`: a log has seen it read.",
    }),
    evidence: z.string().meta({
      description:
        "The name of the setting, variable, field or role that says so, or of the operations that a log has seen; never a value.",
    }),
    pinned: z.string().nullable().meta({ description: "The version that it names; null: it takes the newest." }),
    refresh: z
      .object({
        how: z.enum(HOW).meta({ description: "How it takes a new version." }),
        slowestSeconds: z.int().nullable().meta({ description: "The longest that `automatic` takes." }),
      })
      .meta({
        id: "ConsumerRefresh",
        description:
          "What becomes of it when the asset has a new version. `automatic`: it takes it by itself. `action`: once it is told to. `blind`: nobody can see when. `willBreak`: it goes on with the old value.",
      }),
    state: z
      .object({
        resolved: z.boolean(),
        status: z.string().meta({ description: "The platform's own word, such as `AccessToKeyVaultDenied`." }),
        version: z.string().nullable(),
      })
      .nullable()
      .meta({ description: "Whether the platform can follow the reference now; null where it does not say." }),
    copy: z
      .boolean()
      .meta({ description: "It holds a copy of the value, which only somebody who changes it replaces." }),
    seenAt: instant.meta({ description: "When this was last seen to be so; of `observed` the day of the last read." }),
  })
  .meta({ id: "Dependency" });

const NotSeen = z
  .object({
    scope: z.string().meta({ description: "A resource's id, a subscription, or what another system calls it." }),
    source: z
      .string()
      .nullable()
      .meta({ description: "`azure`, `devops`, `sync`, `logs` or `literals` (copies in settings)." }),
    code: z.string(),
    message: z.string(),
    remedy: z.string(),
    since: instant.nullable(),
  })
  .meta({ id: "NotLookedInto" });

const lastFullAt = instant
  .nullable()
  .meta({ description: "The oldest of the last full readings; null while something was never read in full." });

const Coverage = z
  .object({
    items: z.array(NotSeen).meta({ description: "At most 20; all are in GET …/dependencies/coverage." }),
    total: z.int(),
    lastFullAt,
  })
  .meta({
    id: "DependencyCoverage",
    description:
      "What could not be looked into. Code that reads a vault by itself, and what runs inside of a cluster or of a machine, is seen by no reading of configuration: without a consumer here an asset may still be used.",
  });

const pageMembers = {
  total: z.int().min(0).nullable().meta({ description: "How many there are in all; null beside totalAtLeast." }),
  totalAtLeast: z.int().min(0).optional(),
  limit: z.int(),
  offset: z.int(),
  nextCursor: z.string().nullable().meta({ description: "Send it as cursor for what follows; null at the end." }),
};

export const DependencyList = z
  .object({ items: z.array(Dependency), ...pageMembers, coverage: Coverage })
  .meta({ id: "DependencyList" });

export const CoverageList = z
  .object({ items: z.array(NotSeen), ...pageMembers, lastFullAt })
  .meta({ id: "DependencyCoverageList" });

const flag = z.enum(["true", "false"]).transform((value) => value === "true");

export const DependencyQuery = z.strictObject({
  vault: z.string().min(1).max(127).optional().meta({ description: "The vault's name." }),
  secret: z.string().min(1).max(127).optional().meta({ description: "The name of the secret, key or certificate." }),
  assetId: z.string().min(1).max(300).optional().meta({
    description:
      "Only edges that name this asset, not those of its whole vault; of an application's credential those that name the application.",
    example: "kv-payments.secret.db-password",
  }),
  kind: z.enum(CONSUMER_KINDS).optional(),
  strength: z.enum(STRENGTHS).optional(),
  subscription: z.string().min(1).max(100).optional().meta({ description: "The consumer's subscription." }),
  environment: z.string().min(1).max(256).optional().meta({ description: "The consumer's environment, in any case." }),
  resolved: flag.optional().meta({ description: "false: references that the platform can't follow now." }),
  pinned: flag.optional().meta({ description: "true: those that name a version." }),
  refresh: z.enum(HOW).optional(),
  ...pageParameters,
});

/** @throws {Problem} invalidRequest for what can't be an asset's id. */
export function filterOf(query: z.output<typeof DependencyQuery>): EdgeFilter {
  const { limit: _limit, offset: _offset, cursor: _cursor, assetId: id, ...filter } = query;
  if (id === undefined) return filter;
  const [place] = placesOf(id);
  // What uses an application names it, and none of its credentials.
  const application = isCredentialId(id) && /^entra\./i.test(id) ? credentialIds(place?.name ?? "") : undefined;
  if (application) {
    const vaultName = applicationHolder(id.split(".")[1]!);
    return { ...filter, place: { vaultName, type: "secret", name: application.appId } };
  }
  if (!place) {
    throw new Problem("invalidRequest", "An asset's id is <vault>.<type>.<name>.", {
      errors: [{ path: "query.assetId", message: "must be an asset's id" }],
    });
  }
  return { ...filter, place };
}

export function dependencyView({ edge, seenAt }: FoundEdge): z.infer<typeof Dependency> {
  const { vaultName, type, name, resource, strength, evidence, pinned, refresh, state, copy = false } = edge;
  const id = type !== undefined && name !== undefined ? assetId({ vaultName, type, name }) : "";
  return {
    // What names an application names none of its secrets.
    secret: placesOf(id).length > 0 ? id : null,
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

export const notSeenView = (one: NotSeenRecord): z.infer<typeof NotSeen> => ({
  scope: one.scope,
  source: one.source || null,
  code: one.code,
  message: one.message,
  remedy: one.remedy,
  since: one.since || null,
});

export const coverageView = ({ items, total, lastFullAt }: CoverageRecord): z.infer<typeof Coverage> => ({
  items: items.map(notSeenView),
  total,
  lastFullAt: lastFullAt ?? null,
});

/** Consumers that are listed, and drawn as nodes: more than a person looks through. */
const MAX_CONSUMERS = 500;
const MAX_NODES = 100;

const BlastConsumer = z
  .object({
    resource: Resource,
    strength: z.enum(STRENGTHS),
    evidence: z.array(z.string()).meta({ description: "At most 20 names of settings, variables, fields or roles." }),
    refresh: z.enum(HOW).meta({
      description: "How it takes a new version: by itself, once it is told, when nobody can see it, or never.",
    }),
    pinned: z.string().nullable().meta({ description: "The version that it names; null: it takes the newest." }),
    resolved: z.boolean().nullable(),
    effect: z.string().meta({ description: "What a rotation does to it, in a sentence." }),
    weight: z.number().meta({ description: "Its part in the score." }),
    seenAt: instant,
  })
  .meta({ id: "BlastRadiusConsumer" });

export const BlastRadius = z
  .object({
    secret: z.string().meta({ description: "The asset's id; of what backs a certificate that certificate's." }),
    score: z.int().min(0).max(100).meta({
      description: "0: nobody is known to use it. Grows with each consumer by its weight; docs/dependencies.md.",
    }),
    drivers: z
      .array(
        z.object({
          driver: z.enum(DRIVERS).meta({ description: "What it is." }),
          count: z.int().meta({ description: "How many consumers it is about." }),
          points: z.int().meta({ description: "By how much the score would be lower without it; they overlap." }),
          message: z.string(),
        }),
      )
      .meta({ description: "What makes the score what it is, the largest first." }),
    total: z.int().meta({ description: "Consumers in all, those that only may read it among them." }),
    more: z
      .boolean()
      .meta({ description: "There are more than are counted here; with them the score would be as high or higher." }),
    byKind: z.record(z.string(), z.int()).meta({ description: "How many consumers, by kind." }),
    byEnvironment: z.record(z.string(), z.int()).meta({ description: "`unknown`: no tag says which." }),
    consumers: z.array(BlastConsumer).meta({ description: `The heaviest first, at most ${MAX_CONSUMERS}.` }),
    nodes: z
      .array(
        z.object({
          id: z.string(),
          kind: z.string().meta({ description: "What kind of resource it is, or of what type the asset." }),
          name: z.string(),
          environment: z.string().nullable(),
        }),
      )
      .meta({ description: "The asset and its consumers, for a picture." }),
    edges: z
      .array(
        z.object({
          from: z.string().meta({ description: "The consumer's node." }),
          to: z.string().meta({ description: "The asset's node." }),
          strength: z.enum(STRENGTHS),
          refresh: z.enum(HOW).meta({ description: "How it takes a new version." }),
        }),
      )
      .meta({ description: "Who uses the asset, for a picture." }),
    leftOut: z.int().meta({ description: `Consumers without a node: the heaviest ${MAX_NODES} have one.` }),
    coverage: Coverage,
  })
  .meta({ id: "BlastRadius" });

export function blastRadiusView(found: FoundBlastRadius): z.infer<typeof BlastRadius> {
  const { assetId: secret, asset, score, drivers, consumers, more, coverage } = found;
  const drawn = consumers.slice(0, MAX_NODES);
  return {
    secret,
    score,
    drivers,
    total: consumers.length,
    more,
    byKind: countBy(consumers, ({ resource }) => resource.kind),
    byEnvironment: countBy(consumers, ({ resource }) => resource.environment?.toLowerCase() ?? "unknown"),
    consumers: consumers.slice(0, MAX_CONSUMERS).map(consumerView),
    nodes: [
      { id: secret, kind: asset.asset.type, name: asset.asset.name, environment: null },
      ...drawn.map(({ resource: { id, kind, name, environment } }) => {
        return { id, kind, name, environment: environment ?? null };
      }),
    ],
    edges: drawn.map(({ resource, edges: [first] }) => {
      const { strength, refresh } = first!.edge;
      return { from: resource.id, to: secret, strength, refresh: refresh.how };
    }),
    leftOut: consumers.length - drawn.length,
    coverage: coverageView(coverage),
  };
}

function consumerView({ resource, edges, effect, weight }: Consumer): z.infer<typeof BlastConsumer> {
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

function countBy(consumers: readonly Consumer[], of: (consumer: Consumer) => string): Record<string, number> {
  const counts = new Map<string, number>();
  for (const consumer of consumers) counts.set(of(consumer), (counts.get(of(consumer)) ?? 0) + 1);
  return Object.fromEntries([...counts].sort(([a], [b]) => (a < b ? -1 : 1)));
}

const SeenReader = z
  .object({
    id: z.string().meta({ description: "The caller's object id, where the log has it." }),
    name: z.string().meta({ description: "Of the person or the application; its id where no log names it." }),
    kind: z.enum(["application", "person"]).meta({ description: "Whether it is a program or a person." }),
    appId: z.string().nullable(),
    identityOf: z.string().nullable().meta({ description: "The resource whose managed identity it is." }),
    operations: z.array(z.string()).meta({ description: "Of Key Vault, such as `SecretGet`." }),
    lastReadAt: instant,
    reads: z.int().meta({ description: "In the last 30 days, as far as the logs were read." }),
    versions: z
      .array(z.object({ version: z.string(), lastReadAt: instant }))
      .meta({ description: "At most 10, the last read first." }),
    expected: z.boolean().nullable().meta({
      description:
        "Whether a role, an access policy or a known reference let one expect this, when it was first seen; null until who may read is known.",
    }),
  })
  .meta({ id: "AssetReader" });

export const AssetUsage = z
  .object({
    secret: z.string().meta({ description: "The asset's id." }),
    lastReadAt: instant.nullable(),
    readers: z.array(SeenReader).meta({ description: "At most 200 a workspace, the last to read first." }),
    more: z.boolean().meta({ description: "There were others, longer ago." }),
    lastSignInAt: instant
      .nullable()
      .meta({ description: "Of an application's credential: its last sign-in that a log has." }),
    logs: z
      .array(
        z.object({
          workspaceId: z.string().meta({ description: "The Log Analytics workspace's id." }),
          readFrom: instant.nullable().meta({ description: "Read without a gap from here; null: never yet." }),
          readTo: instant.nullable().meta({ description: "Read up to here; null: never yet." }),
          vaultSince: instant
            .nullable()
            .meta({ description: "Since when the log has the vault's events; null: it has none of it." }),
          failure: z
            .object({ code: z.string(), message: z.string(), remedy: z.string(), at: instant })
            .nullable()
            .meta({ description: "Why it can't be read now." }),
        }),
      )
      .meta({ description: "Each workspace that is named; without one nothing is known here." }),
  })
  .meta({
    id: "AssetUsage",
    description:
      "What the vaults' logs have seen, without this service's own reads. That they show nothing proves nothing: a log may be late, or not have this vault's events.",
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
      name: onOneLine(one.title),
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
    mode: z.enum(["full", "changes"]).meta({ description: "`changes` reads what may have changed since." }),
    status: z.enum(RUN_STATUSES).meta({
      description: "`partial`: something could not be read; what was known of it stays, and `failures` says why.",
    }),
    requestedBy: z.string(),
    createdAt: instant,
    finishedAt: instant.nullable(),
    units: z.int().nullable().meta({ description: "Pieces of work, such as subscriptions; null until it is planned." }),
    unitsFailed: z.int().nullable().meta({ description: "How many pieces of work failed." }),
    resources: z.int().nullable().meta({ description: "Consumers that are known after it; null while it runs." }),
    edges: z.int().nullable().meta({ description: "How many uses are known after it; null while it runs." }),
    notSeen: z
      .int()
      .nullable()
      .meta({ description: "What could not be looked into; see GET …/dependencies/coverage." }),
    changed: z.int().nullable().meta({ description: "Consumers that it found changed, new or gone." }),
    failures: z
      .array(
        z.object({
          source: z
            .string()
            .meta({ description: "Where it was looked: `azure`, `devops`, `sync`, `logs` or `literals`." }),
          unit: z
            .string()
            .nullable()
            .meta({ description: "The piece of work, such as a subscription; null where all of the source is meant." }),
          code: z.string(),
          message: z.string(),
          remedy: z.string(),
        }),
      )
      .meta({ description: "What could not be read as a whole; at most 100." }),
  })
  .meta({ id: "DependencyRun" });

export const runParams = z.object({ run_id: z.string().meta({ description: "The runId of the reading." }) });
export const secretParams = z.object({
  secret_id: z.string().meta({ description: "The asset's id.", example: "kv-payments.secret.db-password" }),
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
