import pMap from "p-map";
import type { AuditRecorder } from "../../audit/event.ts";
import { Assets, sourceOf } from "../../inventory/asset.ts";
import { nameKey, namePrefix, nameRange, partitions } from "../../inventory/asset-keys.ts";
import { VAULTS, type VaultRecord, Vaults } from "../../inventory/vault.ts";
import { CloudFailure } from "../../platform/azure/failure.ts";
import { resourceName } from "../../platform/azure/resource-id.ts";
import { isServiceVault } from "../../platform/azure/service-key-vault.ts";
import type { VaultSecretsClients } from "../../platform/azure/vault-secrets.ts";
import type { Config } from "../../platform/config/config.ts";
import type { LeasedRun } from "../../platform/runs/discovery-runs.ts";
import { recordRunEnd } from "../../platform/runs/record-run-end.ts";
import type { Clock, Logger, Randomness } from "../../platform/runtime.ts";
import { withoutKeys } from "../../platform/storage/entity.ts";
import { keyEnd } from "../../platform/storage/keys.ts";
import type { StorageCorrupt, Tables } from "../../platform/storage/tables.ts";
import { MINUTE_MS } from "../../platform/time.ts";
import { matchKey } from "../match.ts";
import type { RunRecord } from "./discovery-run.ts";
import { createKeyIndex, type KeyIndex } from "./key-index.ts";
import type { KeysClient, TopLevelResource } from "./keys-client.ts";
import { KEY_KINDS, type KeyKind } from "./kinds.ts";
import {
  COMPARISONS,
  Comparisons,
  comparisonKey,
  KEY_LINKS,
  type KeyLink,
  type KeyLinkStore,
  KeyLinks,
  linkKey,
} from "./links.ts";
import { findHeldKey } from "./matching.ts";

/** Time limit of one message, below the maximum duration of an invocation (host.json). */
const TIMEOUT_MS = 9 * MINUTE_MS;
const RESOURCES_IN_BATCH = 40;
const RESOURCES_AT_ONCE = 4;
const SECRETS_AT_ONCE = 8;
/** After this many denials, the rest of a vault is skipped if no secret of it could be read. */
const MAX_DENIALS = 10;
/** Start of the name of a failed list: the secrets of a vault. */
const SECRETS_OF_VAULT = "secrets of key vault ";
/** Name of a failed list: the inventory's rows of secrets. */
const UNREADABLE_ROWS = "secrets in the inventory";
const UNREADABLE_ROW = {
  code: "rowUnreadable",
  message: "A secret was not compared, because its row in the inventory can't be read.",
  remedy: "Find the row in the audit log (storage.rowUnreadable) and restore it. Then start another discovery.",
};
/** Number of failures that a run lists. */
const MAX_FAILURES = 50;
/** https://learn.microsoft.com/azure/governance/resource-graph/concepts/guidance-for-throttled-requests */
const SUBSCRIPTIONS_IN_QUERY = 300;

export interface LinkDiscoveryLimits {
  /** Milliseconds after which a worker hands the run off to the next message, at the next saved position. */
  workMs: number;
  /** Number of resources whose keys are in memory at once. The last batch of a pass can exceed it. */
  resources: number;
  /** Number of secrets after which the position is saved. After a crash, the next worker compares at most these again. */
  secrets: number;
}

/**
 * Azure Resource Manager accepts ten list calls a second in one subscription, so listing the keys of a pass takes up to two
 * minutes: https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
 */
const LIMITS: LinkDiscoveryLimits = { workMs: 4 * MINUTE_MS, resources: 1000, secrets: 500 };

export interface LinkDiscoveryDependencies {
  tables: Tables;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  keys: KeysClient;
  vaults: VaultSecretsClients;
  links: Pick<KeyLinkStore, "store">;
  /** Returns the monitored subscriptions. @throws {CloudFailure} */
  units(): Promise<string[]>;
  audit: AuditRecorder;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
  /** Tests set them. */
  limits?: LinkDiscoveryLimits;
}

/** A pass: the keys of about 1,000 resources. `until`: ID of the last resource, in lower case. */
interface Pass {
  index: KeyIndex;
  until: string;
  isLast: boolean;
}

type Counts = Pick<RunRecord, "resources" | "resourcesDenied" | "secrets" | "secretsDenied" | "links" | "removed">;

/**
 * Finds the vault secrets that store keys of resources: lists the keys, reads the secrets, compares both in memory and stores
 * the links. Works in passes over the resources, and in each pass over the secrets, and saves the position after each batch of
 * secrets. So a crash repeats at most one batch, and a run can be longer than a message.
 *
 * @returns "more" if the run continues with another message.
 */
export async function discoverLinks(
  leasedRun: LeasedRun<RunRecord>,
  deps: LinkDiscoveryDependencies,
): Promise<"ended" | "more"> {
  // An earlier worker has decided the outcome and crashed before the end of the run was written.
  if (leasedRun.run.ending) return await finishRun(leasedRun, leasedRun.run.ending, deps);
  const startedAt = performance.now();
  const { workMs } = deps.limits ?? LIMITS;
  const signal = AbortSignal.any([leasedRun.signal, AbortSignal.timeout(TIMEOUT_MS)]);
  const failures = createFailures(leasedRun.run.failures, deps.clock);
  let listedResources: ListedResource[];
  try {
    listedResources = await listResources(deps, signal);
  } catch (error) {
    if (!(error instanceof CloudFailure) || signal.aborted) throw error;
    failures.add("resources", error);
    await leasedRun.change({ failures: failures.all });
    return await endRun(leasedRun, "failed", deps);
  }
  for (;;) {
    const pass = await listKeys(leasedRun, listedResources, failures, deps, signal);
    if (pass.index.size > 0) {
      const isDone = await compareSecrets(leasedRun, pass, failures, { deps, startedAt, signal });
      if (!isDone) return "more";
      await storeComparisons(leasedRun.run, pass, deps);
    }
    await leasedRun.change({ position: { after: pass.until }, failures: failures.all });
    if (pass.isLast) {
      await removeGoneLinks(leasedRun, listedResources, deps, signal);
      return await endRun(leasedRun, failures.all.length > 0 ? "partial" : "completed", deps);
    }
    if (performance.now() - startedAt > workMs) return "more";
  }
}

/** A resource of the list. `order`: its ID in lower case, by which the list is sorted. */
interface ListedResource extends TopLevelResource {
  order: string;
}

/** Returns the resources of all kinds in the monitored subscriptions. */
async function listResources(
  { keys, units }: LinkDiscoveryDependencies,
  signal: AbortSignal,
): Promise<ListedResource[]> {
  const subscriptions = await units();
  const listedResources = new Map<string, ListedResource>();
  for (let start = 0; start < subscriptions.length; start += SUBSCRIPTIONS_IN_QUERY) {
    const slice = subscriptions.slice(start, start + SUBSCRIPTIONS_IN_QUERY);
    for await (const page of keys.topLevelResources(slice, signal))
      for (const resource of page) {
        const order = resource.id.toLowerCase();
        listedResources.set(order, { ...resource, order });
      }
  }
  return [...listedResources.values()].sort((a, b) => (a.order < b.order ? -1 : 1));
}

/**
 * Lists the keys of the next pass, or of the pass that an earlier message or worker has started. A new pass ends when its resources
 * with keys reach the limit, and its last resource is then stored. A started pass lists the resources up to that one again.
 */
async function listKeys(
  leasedRun: LeasedRun<RunRecord>,
  listedResources: readonly ListedResource[],
  failures: Failures,
  deps: LinkDiscoveryDependencies,
  signal: AbortSignal,
): Promise<Pass> {
  const { position, resources, resourcesDenied } = leasedRun.run;
  const after = position?.after ?? "";
  const startedUntil = position?.until;
  const candidates = listedResources.filter(
    ({ order }) => order > after && (startedUntil === undefined || order <= startedUntil),
  );
  const { resources: maximum } = deps.limits ?? LIMITS;
  const batchSize = Math.min(RESOURCES_IN_BATCH, maximum);
  const index = createKeyIndex(deps.randomness);
  const denied = new Set<string>();
  let handled = 0;

  async function addKeys(resource: ListedResource): Promise<void> {
    for (const kind of kindsOf(resource)) {
      try {
        for (const id of await deps.keys.childrenOf(resource.id, kind, signal))
          index.add(id, kind, await deps.keys.keys(id, kind, signal));
      } catch (error) {
        if (!(error instanceof CloudFailure) || signal.aborted) throw error;
        // Resource Graph can list a resource for some minutes after its deletion.
        if (error.code === "notFound") continue;
        // The identity has a role only in the resource groups whose keys it may rotate.
        if (error.code === "accessDenied") denied.add(resource.order);
        else failures.add(`keys of ${kind.title} ${resourceName(resource.id)}`, error);
      }
    }
  }
  while (handled < candidates.length && (startedUntil !== undefined || index.size < maximum)) {
    await pMap(candidates.slice(handled, handled + batchSize), addKeys, { concurrency: RESOURCES_AT_ONCE });
    handled = Math.min(candidates.length, handled + batchSize);
  }
  const until = startedUntil ?? candidates[handled - 1]?.order ?? after;
  const isLast = (listedResources.at(-1)?.order ?? "") <= until;
  // The counts of a pass are those of its first listing.
  if (startedUntil === undefined) {
    await leasedRun.change({
      position: { after, until },
      resources: resources + index.size,
      resourcesDenied: resourcesDenied + denied.size,
      failures: failures.all,
    });
  }
  return { index, until, isLast };
}

/** Returns the kinds of a listed resource: of a namespace, the kinds of its rules and of its entities' rules. */
const kindsOf = ({ type }: TopLevelResource): KeyKind[] =>
  KEY_KINDS.filter(
    (kind) => kind.pairs.length > 0 && kind.type.toLowerCase().split("/").slice(0, 2).join("/") === type,
  );

type ReadableVault = Pick<
  VaultRecord,
  "id" | "name" | "vaultUri" | "subscriptionId" | "source" | "failures" | "listedAt"
>;

/** Compares the secrets of all vaults with the keys of a pass. @returns False if the time of the message is over. */
async function compareSecrets(
  leasedRun: LeasedRun<RunRecord>,
  pass: Pass,
  failures: Failures,
  { deps, startedAt, signal }: { deps: LinkDiscoveryDependencies; startedAt: number; signal: AbortSignal },
): Promise<boolean> {
  const { tables, limits = LIMITS } = deps;
  const vaults = await readableVaults(deps);
  const linksBySecret = await readLinks(deps);
  const after = leasedRun.run.position?.after ?? "";
  const isFirstPass = after === "";
  const lastCompared = leasedRun.run.position?.secret;
  const prefix = namePrefix("secret");
  // The other secrets are compared. The comparison then counts as incomplete.
  const onCorrupt = ({ message }: StorageCorrupt) => {
    deps.log.error(message);
    failures.add(UNREADABLE_ROWS, UNREADABLE_ROW);
  };
  const all = { partitionKey: partitions.all, from: prefix, before: keyEnd(prefix) };
  const range = { ...all, pageSize: limits.secrets, onCorrupt };
  const select = ["name", "vaultName", "enabled", "source"] as const;
  const secrets = tables.pages(Assets, {
    ...range,
    select: [...select],
    ...(lastCompared !== undefined && { after: lastCompared }),
  });
  for await (const rows of secrets) {
    const counts: Pick<Counts, "secrets" | "secretsDenied" | "links" | "removed"> = {
      secrets: 0,
      secretsDenied: 0,
      links: 0,
      removed: 0,
    };
    const readable = rows.flatMap(({ name, vaultName, enabled, source }) => {
      const vault = vaults.get(vaultName.toLowerCase());
      return vault && enabled && sourceOf({ source }) === "keyVault" ? [{ name, vault }] : [];
    });
    const compare = async ({ name, vault }: { name: string; vault: VaultAccess }) => {
      const linked = linksBySecret.get(matchKey(vault.name, name)) ?? [];
      await compareSecret({ leasedRun, name, vault, linked, pass, counts, failures, deps, signal });
    };
    await pMap(readable, compare, { concurrency: SECRETS_AT_ONCE });
    const { run } = leasedRun;
    await leasedRun.change({
      position: { after, until: pass.until, secret: rows.at(-1)?.rowKey ?? run.position?.secret },
      // Each pass reads all secrets again.
      ...(isFirstPass && {
        secrets: run.secrets + counts.secrets,
        secretsDenied: run.secretsDenied + counts.secretsDenied,
      }),
      links: run.links + counts.links,
      removed: run.removed + counts.removed,
      failures: failures.all,
    });
    if (performance.now() - startedAt > limits.workMs) return false;
  }
  return true;
}

/** Stores that the readable vault secrets were compared with the keys of a pass. */
async function storeComparisons(
  { createdAt: since, secretsDenied, failures }: RunRecord,
  { index }: Pass,
  deps: LinkDiscoveryDependencies,
): Promise<void> {
  const vaults = [...(await readableVaults(deps)).values()];
  const hasUnread =
    secretsDenied > 0 ||
    // A full list of failures leaves out the further ones.
    failures.length >= MAX_FAILURES ||
    failures.some(({ list }) => list.startsWith(SECRETS_OF_VAULT) || list === UNREADABLE_ROWS) ||
    // The inventory does not know all secrets of such a vault, so they were not read.
    vaults.some((vault) => vault.failures.secret !== undefined || vault.listedAt.secret === undefined);
  const store = (resourceId: string) =>
    deps.tables.put(Comparisons, COMPARISONS, comparisonKey(resourceId), { resourceId, since, hasUnread });
  await pMap(index.resourceIds(), store, { concurrency: SECRETS_AT_ONCE });
}

/** A vault whose secrets are read, with what this message has seen of its access. */
interface VaultAccess extends ReadableVault {
  read: number;
  denied: number;
  isSkipped: boolean;
}

/** Returns the vaults of the monitored subscriptions by name in lower case, without the service's own vault. */
async function readableVaults(deps: LinkDiscoveryDependencies): Promise<Map<string, VaultAccess>> {
  const { tables, config, units } = deps;
  const watched = new Set((await units()).map((id) => id.toLowerCase()));
  const vaults = new Map<string, VaultAccess>();
  const select = ["id", "name", "vaultUri", "subscriptionId", "source", "failures", "listedAt"] as const;
  for await (const rows of tables.pages(Vaults, { ...nameRange(VAULTS), select: [...select] }))
    for (const row of rows)
      if (
        sourceOf(row) === "keyVault" &&
        watched.has(row.subscriptionId.toLowerCase()) &&
        !isServiceVault(config, row.name)
      )
        vaults.set(row.name.toLowerCase(), { ...withoutKeys(row), read: 0, denied: 0, isSkipped: false });
  return vaults;
}

/** Returns all links by secret. An unreadable link counts as none, so it is written again. */
async function readLinks({ tables, log }: LinkDiscoveryDependencies): Promise<Map<string, KeyLink[]>> {
  const links = new Map<string, KeyLink[]>();
  const onCorrupt = ({ message }: { message: string }) => log.error(message);
  for await (const rows of tables.pages(KeyLinks, { partitionKey: KEY_LINKS, onCorrupt })) {
    for (const row of rows) {
      const key = matchKey(row.vaultName, row.secretName);
      links.set(key, [...(links.get(key) ?? []), withoutKeys(row)]);
    }
  }
  return links;
}

/** Reads one secret, compares its value, and stores or removes its links. The value is only in memory. */
async function compareSecret({
  leasedRun,
  name,
  vault,
  linked,
  pass: { index },
  counts,
  failures,
  deps,
  signal,
}: {
  leasedRun: LeasedRun<RunRecord>;
  name: string;
  vault: VaultAccess;
  linked: readonly KeyLink[];
  pass: Pass;
  counts: Pick<Counts, "secrets" | "secretsDenied" | "links" | "removed">;
  failures: Failures;
  deps: LinkDiscoveryDependencies;
  signal: AbortSignal;
}): Promise<void> {
  if (vault.isSkipped) return;
  const { id: vaultId, name: vaultName } = vault;
  try {
    const secret = await deps.vaults.open(vault).read(name, undefined, signal);
    // Deleted since the last scan, or the secret of a certificate, which is no key of a resource.
    if (secret === undefined || secret.managed) return;
    vault.read++;
    counts.secrets++;
    const storedKey = index.find(secret.value);
    if (storedKey !== undefined) {
      const { resourceId, kind, keyName } = storedKey;
      const place = { vaultId, vaultName, secretName: name, version: secret.version };
      const comparedAt = deps.clock.now().toISOString();
      const { requestedBy: by } = leasedRun.run;
      await deps.links.store({ ...place, resourceId, keyKind: kind.name, keyName, comparedAt, by });
      counts.links++;
    }
    for (const link of linked) {
      const { resourceId } = link;
      // A link to a resource of another pass is compared there. The link of the stored key was just written.
      if (!index.has(resourceId) || resourceId.toLowerCase() === storedKey?.resourceId.toLowerCase()) continue;
      if (await storesKey(secret.value, link, deps, signal)) continue;
      if (await deps.tables.remove(KeyLinks, KEY_LINKS, linkKey(link))) counts.removed++;
    }
  } catch (error) {
    if (!(error instanceof CloudFailure) || signal.aborted) throw error;
    if (error.code === "disabled") return;
    if (error.code === "accessDenied") {
      vault.denied++;
      counts.secretsDenied++;
      // Roles can be assigned for single secrets.
      vault.isSkipped = vault.read === 0 && vault.denied >= MAX_DENIALS;
      return;
    }
    // Any other failure is taken to concern the whole vault.
    vault.isSkipped = true;
    failures.add(`${SECRETS_OF_VAULT}${vaultName}`, error);
  }
}

/**
 * Returns whether a value is a key of the link's resource now. A rotation can have regenerated the key after this run listed the
 * keys.
 */
async function storesKey(
  value: string,
  { resourceId, keyKind }: KeyLink,
  { keys }: LinkDiscoveryDependencies,
  signal: AbortSignal,
): Promise<boolean> {
  const kind = KEY_KINDS.find(({ name }) => name === keyKind);
  if (kind === undefined) return false;
  return findHeldKey(value, resourceId, await keys.keys(resourceId, kind, signal)).held !== undefined;
}

/**
 * Removes the links whose secret is no longer in the inventory, or whose resource no longer exists. Links that this run could not
 * compare for another reason stay.
 */
async function removeGoneLinks(
  leasedRun: LeasedRun<RunRecord>,
  listedResources: readonly ListedResource[],
  deps: LinkDiscoveryDependencies,
  signal: AbortSignal,
): Promise<void> {
  const { tables } = deps;
  const { createdAt } = leasedRun.run;
  const listed = new Set(listedResources.map(({ order }) => order));
  let removed = 0;
  for (const link of [...(await readLinks(deps)).values()].flat()) {
    // This run compared the link and found that its secret stores the key.
    if (link.comparedAt >= createdAt) continue;
    const { vaultName, secretName } = link;
    let isUnreadable = false;
    const asset = await tables.get(Assets, partitions.vault(vaultName), nameKey("secret", secretName, vaultName), {
      onCorrupt({ message }) {
        deps.log.error(message);
        isUnreadable = true;
      },
    });
    if (isUnreadable) continue;
    const isGone = asset === undefined || (!isListed(link.resourceId, listed) && (await isDeleted(link, deps, signal)));
    if (isGone && (await tables.remove(KeyLinks, KEY_LINKS, linkKey(link)))) removed++;
  }
  if (removed > 0) await leasedRun.change({ removed: leasedRun.run.removed + removed });
}

/**
 * Returns whether the list contains a resource, or the namespace or cluster that it is in. An ID starts with an empty part, and its
 * first nine parts name the resource at the top level: `/subscriptions/<id>/resourceGroups/<group>/providers/<provider>/<type>/<name>`.
 */
const isListed = (resourceId: string, listed: ReadonlySet<string>): boolean =>
  listed.has(resourceId.toLowerCase().split("/").slice(0, 9).join("/"));

/** Returns whether Azure says that the resource does not exist. Resource Graph also leaves out what the identity can't read. */
async function isDeleted(
  { resourceId, keyKind }: KeyLink,
  { keys }: LinkDiscoveryDependencies,
  signal: AbortSignal,
): Promise<boolean> {
  const kind = KEY_KINDS.find(({ name }) => name === keyKind);
  try {
    if (kind !== undefined) await keys.keys(resourceId, kind, signal);
    return false;
  } catch (error) {
    if (!(error instanceof CloudFailure) || signal.aborted) throw error;
    return error.code === "notFound";
  }
}

interface Failures {
  readonly all: RunRecord["failures"];
  add(list: string, failure: Pick<CloudFailure, "message" | "remedy"> & { code: string }): void;
}

/** Collects failures, each list once. A repeated batch adds the same ones. */
function createFailures(earlier: RunRecord["failures"], clock: Clock): Failures {
  const all = [...earlier];
  return {
    all,
    add(list, { code, message, remedy }) {
      if (all.length >= MAX_FAILURES || all.some((one) => one.list === list)) return;
      all.push({ list, code, message, remedy, at: clock.now().toISOString() });
    },
  };
}

/** Stores the outcome of the run and its audit entry's ID first, so that after a crash the next worker writes the same end. */
async function endRun(
  leasedRun: LeasedRun<RunRecord>,
  status: NonNullable<RunRecord["ending"]>["status"],
  deps: LinkDiscoveryDependencies,
): Promise<"ended"> {
  const now = deps.clock.now();
  const ending = { status, finishedAt: now.toISOString(), entryId: deps.randomness.ulid(now) };
  await leasedRun.change({ ending });
  return await finishRun(leasedRun, ending, deps);
}

/** Records the run's end in the audit log and ends the run. */
async function finishRun(
  leasedRun: LeasedRun<RunRecord>,
  ending: NonNullable<RunRecord["ending"]>,
  deps: LinkDiscoveryDependencies,
): Promise<"ended"> {
  const { runId, requestId, failures, resources, resourcesDenied, secrets, secretsDenied, links, removed } =
    leasedRun.run;
  const { status, finishedAt, entryId } = ending;
  const counts = { resources, resourcesDenied, secrets, secretsDenied, links, removed };
  await recordRunEnd(
    deps.audit,
    {
      id: entryId,
      type: "rotation.credentialsDiscovered",
      caller: { actor: "system", requestId },
      outcome: status === "completed" ? "success" : "failure",
      target: { type: "credentialDiscovery", id: runId },
      details: { status, ...counts, failures: failures.map(({ list, code }) => `${list}: ${code}`) },
    },
    { ...deps, storeEntryId: (id) => leasedRun.change({ ending: { ...ending, entryId: id } }) },
  );
  deps.log.info("Secrets were compared with keys of resources", { runId, status, ...counts });
  await leasedRun.end({ status, finishedAt, ending: undefined, position: undefined });
  return "ended";
}
