import * as z from "zod";
import { parseResourceId } from "../../platform/azure/resource-id.ts";
import { FINDER_OF } from "./finders.ts";
import { changesSince, isVault } from "./queries.ts";

const change = z.object({ target: z.string(), changeType: z.string(), at: z.string() });

/** Changes of a subscription's resources, as Resource Graph reports them. */
interface ChangedTargets {
  /** IDs of resources that were created or changed, or whose child resource changed. */
  changed: string[];
  deleted: string[];
  /**
   * Whether a vault changed. Its access policies and its switch between policies and RBAC are properties of the vault, so
   * access may have changed. Role assignments are no resources in this list, so their changes are not detected.
   */
  vaultsChanged: boolean;
}

/**
 * Returns the changes since a time, each resource by its last change. Skips rows that can't be read or concern other resources.
 */
export async function changedTargets(
  query: (text: string) => AsyncGenerator<unknown[]>,
  since: Date,
): Promise<ChangedTargets> {
  const lastChanges = new Map<string, { id: string; at: number; isDeleted: boolean }>();
  let vaultsChanged = false;
  for await (const rows of query(changesSince(since))) {
    for (const { target, changeType, at } of rows.flatMap((row) => change.safeParse(row).data ?? [])) {
      const type = parseResourceId(target)?.type;
      const id = resourceOf(target);
      if (type && isVault(type)) vaultsChanged = true;
      if (id === undefined) continue;
      const changedAt = Date.parse(at) || 0;
      const key = id.toLowerCase();
      const otherChange = lastChanges.get(key);
      if (otherChange && otherChange.at > changedAt) continue;
      // If a child resource was deleted, its parent still exists.
      lastChanges.set(key, { id, at: changedAt, isDeleted: id === target && /^delete$/i.test(changeType) });
    }
  }
  const resources = [...lastChanges.values()];
  return {
    changed: resources.filter(({ isDeleted }) => !isDeleted).map(({ id }) => id),
    deleted: resources.filter(({ isDeleted }) => isDeleted).map(({ id }) => id),
    vaultsChanged,
  };
}

/** Returns the resource to read: the changed resource, or its nearest parent of a type that a finder reads. */
function resourceOf(target: string): string | undefined {
  const segments = target.split("/");
  // The ID of a resource has at least nine segments, counting the empty one before the first slash. A child has two more.
  for (let length = segments.length; length > 8; length -= 2) {
    const id = segments.slice(0, length).join("/");
    const type = parseResourceId(id)?.type;
    if (type !== undefined && FINDER_OF.has(type)) return id;
  }
  return undefined;
}
