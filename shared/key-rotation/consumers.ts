import pMap from "p-map";
import * as z from "zod";
import { keyVaultNames } from "../dependencies/azure/key-vault-names.ts";
import { type Consumer, consumersOf } from "../dependencies/blast-radius.ts";
import type { Dependencies } from "../dependencies/dependencies.ts";
import type { Resource } from "../dependencies/edge.ts";
import { type IncompleteReason, incompleteReason } from "../dependencies/incomplete.ts";
import type { Arm } from "../platform/azure/arm.ts";
import { undocumented } from "../platform/azure/calls.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import { parseResourceId, resourceName, resourcePath } from "../platform/azure/resource-id.ts";
import { DEPENDENCY_READER } from "../platform/azure/watch-roles.ts";
import type { Config } from "../platform/config/config.ts";
import { SECOND_MS } from "../platform/time.ts";
import { KEY_CONSUMER_KIND_OF, type KeyConsumerKind, UNKNOWN_PICK_UP_SECONDS } from "./consumer-kinds.ts";
import type { RunConsumer, RunRecord } from "./run.ts";

/** Resources of one key that are read at the same time. */
const READS_AT_ONCE = 8;

/** A key of a vault. */
export type KeyLocation = Pick<RunRecord, "vaultName" | "name">;

/** The consumers of a key. */
export interface KeyConsumers {
  consumers: RunConsumer[];
  /** Number of resources that only have access to the key or the vault. No use of the key was found. */
  mayUse: number;
  /** Why further consumers may exist. Undefined if discovery read everything that it can read. */
  incompleteReason: IncompleteReason | undefined;
}

/** A key whose consumers are compared with a new version. */
export interface Expected {
  /** The version of this rotation, and the current version, which can be newer. */
  newVersions: readonly string[];
  rotatedAt: Date;
  now: Date;
  /** Consumers of earlier checks. They are read again, also if discovery no longer lists them. */
  known: readonly RunConsumer[];
}

/** What a resource says about the key that it uses. */
type SeenUse = Pick<RunConsumer, "followsNewest" | "version" | "message"> & { usesKey: boolean };

/** Finds the consumers of customer-managed keys and reads the version that each uses. */
export interface KeyConsumerReader {
  /**
   * Returns the consumers that discovery found, as they are now. Without `expected` (in a plan), a consumer that follows by itself
   * is `waiting`. A resource that can't be read is `unknown`. One request for each resource, and those of `Dependencies.edgesOf`.
   */
  read(key: KeyLocation, expected?: Expected): Promise<KeyConsumers>;
}

export function createKeyConsumerReader(deps: {
  dependencies: Pick<Dependencies, "edgesOf" | "coverage">;
  arm: Pick<Arm, "call">;
  config: Pick<Config, "cloud">;
}): KeyConsumerReader {
  const { dependencies, arm } = deps;
  const names = keyVaultNames(deps.config.cloud.keyVaultSuffix);

  /** Returns the resources whose configuration names the key, or that a log shows to use the key. */
  async function discovered({ vaultName, name }: KeyLocation) {
    const [{ edges, more }, coverage] = await Promise.all([
      dependencies.edgesOf({ vaultName, type: "key", name }),
      dependencies.coverage({ limit: 1, offset: 0, cursor: undefined }),
    ]);
    // A dependency on the whole vault or a permission alone is no use of this key.
    const isUse = ({ edges: ofResource }: Consumer) =>
      ofResource.some(({ edge }) => edge.type === "key" && edge.strength !== "entitled");
    const all = consumersOf(edges);
    const used = all.filter(isUse);
    const { lastFullAt } = coverage;
    return {
      used,
      mayUse: all.length - used.length,
      incompleteReason: incompleteReason({ total: coverage.total ?? 0, lastFullAt }, more),
    };
  }

  async function readResource({ id }: Pick<Resource, "id">, kind: KeyConsumerKind, key: KeyLocation): Promise<SeenUse> {
    const target = {
      operation: "read the encryption key",
      resource: `${kind.title} ${resourceName(id)}`,
      grant: DEPENDENCY_READER,
    };
    const answer = await arm.call(
      { path: `${resourcePath(id, kind.type)}${kind.path}`, apiVersion: kind.apiVersion, target },
      z.object({ properties: z.record(z.string(), z.unknown()) }),
    );
    try {
      const { keyUri, followsNewest } = kind.read(answer.properties);
      const named = names.ofUrl(keyUri);
      const usesKey =
        named?.type === "key" &&
        named.vaultName.toLowerCase() === key.vaultName.toLowerCase() &&
        named.name?.toLowerCase() === key.name.toLowerCase();
      const version = usesKey ? named.version?.toLowerCase() : undefined;
      return { usesKey, followsNewest, ...(version !== undefined && { version }) };
    } catch (error) {
      if (error instanceof z.ZodError) throw undocumented(target, error);
      throw error;
    }
  }

  /** Returns the use of the key by a resource. A resource that can't be read has a message and no version. */
  async function useOf(resource: Pick<Resource, "id" | "kind">, key: KeyLocation): Promise<SeenUse> {
    const kind = KEY_CONSUMER_KIND_OF.get(resource.kind);
    if (kind === undefined || parseResourceId(resource.id)?.type !== kind.type)
      return { usesKey: true, message: "The service can't read which version this consumer uses." };
    try {
      return await readResource(resource, kind, key);
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      if (error.code === "notFound") return { usesKey: false };
      return { usesKey: true, message: `${error.message} ${error.remedy}` };
    }
  }

  function consumerOf(
    { id, kind, name }: Pick<Resource, "id" | "kind" | "name">,
    { usesKey, ...use }: SeenUse,
    expected: Expected | undefined,
  ): RunConsumer {
    const isUnknown = use.message !== undefined || (usesKey && use.version === undefined);
    const base = {
      id,
      kind,
      name,
      ...use,
      ...(isUnknown && use.message === undefined && { message: "The resource does not report the version in use." }),
    };
    if (expected === undefined) {
      if (!usesKey) return { ...base, state: "unlinked" };
      if (use.message !== undefined) return { ...base, state: "unknown" };
      return { ...base, state: use.followsNewest ? "waiting" : "pinned" };
    }
    const { newVersions, rotatedAt, now } = expected;
    const pickUpSeconds = KEY_CONSUMER_KIND_OF.get(kind)?.pickUpSeconds ?? UNKNOWN_PICK_UP_SECONDS;
    const dueAt = new Date(rotatedAt.getTime() + pickUpSeconds * SECOND_MS);
    const times = { dueAt: dueAt.toISOString(), checkedAt: now.toISOString() };
    const state = () => {
      if (!usesKey) return "unlinked";
      if (isUnknown) return "unknown";
      if (newVersions.includes(use.version!)) return "followed";
      if (!use.followsNewest) return "pinned";
      return now >= dueAt ? "late" : "waiting";
    };
    return { ...base, ...times, state: state() };
  }

  return {
    async read(key, expected) {
      const { used, ...rest } = await discovered(key);
      const resources = new Map<string, Pick<Resource, "id" | "kind" | "name">>();
      for (const one of expected?.known ?? []) resources.set(one.id.toLowerCase(), one);
      for (const { resource } of used) resources.set(resource.id.toLowerCase(), resource);
      const consumers = await pMap(
        resources.values(),
        async (resource) => consumerOf(resource, await useOf(resource, key), expected),
        { concurrency: READS_AT_ONCE },
      );
      return { consumers, ...rest };
    },
  };
}
