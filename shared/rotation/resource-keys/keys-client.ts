import { setTimeout as sleep } from "node:timers/promises";
import * as z from "zod";
import type { Arm, ArmCall } from "../../platform/azure/arm.ts";
import { asCloudFailure, CloudFailure, failure, malformedAnswer } from "../../platform/azure/failure.ts";
import { createResourceGraph, toQueryLiteral } from "../../platform/azure/resource-graph.ts";
import { resourceName, resourcePath } from "../../platform/azure/resource-id.ts";
import type { CloudEndpoints } from "../../platform/config/clouds.ts";
import { createKeyTest, type TestKey } from "./key-tests.ts";
import { KEY_KINDS, type KeyKind, type ListedKey } from "./kinds.ts";

/** A resource that has keys, or that contains resources with keys. */
export interface KeyOwner {
  id: string;
  name: string;
  /** In lower case. */
  type: string;
}

/** Lists resources with two keys, and lists and regenerates their keys. Every method throws `CloudFailure`. */
export interface KeysClient {
  /**
   * Returns the resources of all kinds page by page, from Resource Graph. Of rules and databases, it returns the namespaces and
   * clusters, whose children `childrenOf` lists.
   */
  owners(subscriptions: readonly string[] | undefined, signal?: AbortSignal): AsyncGenerator<KeyOwner[]>;
  /** Returns the IDs of the resources of a kind in a namespace or cluster. For other kinds, the ID itself. */
  childrenOf(ownerId: string, kind: KeyKind, signal?: AbortSignal): Promise<string[]>;
  /** Returns all keys of a resource with their values. */
  keys(id: string, kind: KeyKind, signal?: AbortSignal): Promise<ListedKey[]>;
  /**
   * Regenerates a key and returns it with its new value, as soon as the resource lists that value. Sends at most one request
   * that regenerates, and none if the key already has another value: then an earlier request regenerated it, whose response was
   * lost.
   *
   * @param isOld - Returns whether a value is the one that the key had before the first request.
   * @throws {CloudFailure} A failed call can have regenerated the key, or still do so. A later call with the same `isOld` finds
   * out.
   */
  regenerate(
    id: string,
    kind: KeyKind,
    keyName: string,
    isOld: (value: string) => boolean,
    signal?: AbortSignal,
  ): Promise<ListedKey>;
  /** Tests a key with the request that the table of kinds names. `unclear` for kinds without one. */
  test: TestKey;
}

export interface KeysClientLimits {
  /** Maximum number of lists after a request that regenerates, until the list has the new value. */
  checks: number;
  /** First wait between two lists in milliseconds. Each further wait doubles. */
  firstWaitMs: number;
}

/** Regenerations take seconds. A longer one is found by the next call. */
const LIMITS: KeysClientLimits = { checks: 6, firstWaitMs: 1000 };

const ownerRow = z.object({ id: z.string(), name: z.string(), type: z.string().toLowerCase() });
const child = z.object({ name: z.string().min(1) });
/** Types that Resource Graph lists: the first two segments of each kind's type, in lower case. */
const OWNER_TYPES = [...new Set(KEY_KINDS.map(({ type }) => ownerTypeOf(type)))];

function ownerTypeOf(type: string): string {
  return type.split("/").slice(0, 2).join("/").toLowerCase();
}

export function createKeysClient(arm: Arm, cloud: CloudEndpoints, limits = LIMITS): KeysClient {
  const graph = createResourceGraph(arm);

  /** The call of a kind's resource. `last` is the last part of the path. */
  const call = (id: string, kind: KeyKind, operation: string, last: string, signal?: AbortSignal): ArmCall => ({
    path: `${resourcePath(id, kind.type.toLowerCase())}/${last}`,
    apiVersion: kind.apiVersion,
    method: "POST",
    target: {
      operation,
      resource: `${kind.title} ${resourceName(id)}`,
      grant: `a role on the resource's group with the actions ${kind.actions.join(", ")}`,
    },
    signal,
  });

  async function keys(id: string, kind: KeyKind, signal?: AbortSignal): Promise<ListedKey[]> {
    const request = call(id, kind, "list the keys", kind.list, signal);
    if ("all" in kind.answer) return await arm.call(request, kind.answer.all);
    const { entries, unreadable } = await arm.list(request, kind.answer.entry);
    if (unreadable[0]) throw unreadable[0];
    return entries;
  }

  return {
    async *owners(subscriptions, signal) {
      const query = `resources | where type in~ (${OWNER_TYPES.map(toQueryLiteral).join(",")}) | project id,name,type`;
      for await (const rows of graph.query(query, subscriptions, signal)) {
        yield rows.flatMap((row) => {
          const { success, data } = ownerRow.safeParse(row);
          return success ? [data] : [];
        });
      }
    },

    async childrenOf(ownerId, kind, signal) {
      const collections = kind.type.split("/").slice(2);
      let parents = [ownerId];
      let type = ownerTypeOf(kind.type);
      for (const collection of collections) {
        const children: string[] = [];
        for (const parent of parents) {
          const request: ArmCall = {
            path: `${resourcePath(parent, type)}/${collection}`,
            apiVersion: kind.apiVersion,
            target: { operation: `list ${collection}`, resource: resourceName(parent), grant: kind.actions[0]! },
            signal,
          };
          const { entries, unreadable } = await arm.list(request, child);
          if (unreadable[0]) throw unreadable[0];
          children.push(...entries.map(({ name }) => `${parent}/${collection}/${name}`));
        }
        parents = children;
        type = `${type}/${collection.toLowerCase()}`;
      }
      return parents;
    },

    keys,

    test: createKeyTest(arm, cloud),

    async regenerate(id, kind, keyName, isOld, signal) {
      if (kind.regenerate === undefined)
        throw new TypeError(`The service does not regenerate keys of a ${kind.title}.`);
      const { path, member } = kind.regenerate;
      const find = async () => {
        const found = (await keys(id, kind, signal)).find(({ name }) => name === keyName);
        const { target } = call(id, kind, "list the keys", kind.list);
        if (found === undefined) throw malformedAnswer(target, "the key is missing in the list");
        return found;
      };
      const before = await find();
      if (!isOld(before.value)) return before;

      const request = call(id, kind, "regenerate a key", member ? path : `${path}/${before.id}`, signal);
      let lost: CloudFailure | undefined;
      try {
        // A retry after a lost response could regenerate twice.
        await arm.execute({ ...request, repeat: "afterRefusal", body: member ? { [member]: before.id } : {} });
      } catch (error) {
        if (!(error instanceof CloudFailure) || !mayHaveRegenerated(error)) throw error;
        lost = error;
      }
      for (let check = 1; ; check++) {
        const now = await find().catch((error: unknown) => {
          // The request was sent, so a list that is denied or throttled must not look as if the request had been rejected.
          if (!(error instanceof CloudFailure) || error.unclear) throw error;
          const { remedy, retryAfterSeconds, cloudCode } = error;
          const reason = "the service may have carried out the request, but did not list the keys afterwards";
          throw failure("timedOut", request.target, reason, { remedy, retryAfterSeconds, cloudCode });
        });
        if (!isOld(now.value)) return now;
        if (check >= limits.checks) break;
        await sleep(limits.firstWaitMs * 2 ** (check - 1), undefined, signal && { signal }).catch((reason) => {
          throw asCloudFailure(reason, request.target);
        });
      }
      throw (
        lost ??
        failure("timedOut", request.target, "the service accepted the request, but does not list the new key yet", {
          remedy: "No action needed: the service checks the key again.",
        })
      );
    },
  };
}

/**
 * Returns whether the request may have been carried out although it failed. A response with an error status other than 5xx and
 * 409 says that nothing was done. `conflict`: an earlier request may still be in progress.
 */
const mayHaveRegenerated = ({ code, status }: CloudFailure): boolean =>
  ["unreachable", "timedOut", "conflict"].includes(code) || (code === "badResponse" && status === undefined);
