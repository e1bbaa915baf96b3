import * as z from "zod";
import { parseResourceId } from "../../platform/azure/resource-id.ts";
import { FINDER_OF } from "./finders.ts";
import { changesSince, isVault } from "./queries.ts";

const change = z.object({ target: z.string(), changeType: z.string(), at: z.string() });

interface ChangedTargets {
  /** Ids of resources that were made or changed, or of which a part was. */
  changed: string[];
  deleted: string[];
  /** Who may read them may have changed. */
  vaultsChanged: boolean;
}

/** What changed since then, by the last change of each. A row that can't be read, or is of no such resource, counts for nothing. */
export async function changedTargets(
  query: (text: string) => AsyncGenerator<unknown[]>,
  since: Date,
): Promise<ChangedTargets> {
  const last = new Map<string, { id: string; at: number; isDeleted: boolean }>();
  let vaultsChanged = false;
  for await (const rows of query(changesSince(since))) {
    for (const { target, changeType, at } of rows.flatMap((row) => change.safeParse(row).data ?? [])) {
      const type = parseResourceId(target)?.type;
      const id = resourceOf(target);
      if (type && isVault(type)) vaultsChanged = true;
      if (id === undefined) continue;
      const when = Date.parse(at) || 0;
      const key = id.toLowerCase();
      const before = last.get(key);
      if (before && before.at > when) continue;
      // When a part is deleted the resource is still there.
      last.set(key, { id, at: when, isDeleted: id === target && /^delete$/i.test(changeType) });
    }
  }
  const found = [...last.values()];
  return {
    changed: found.filter(({ isDeleted }) => !isDeleted).map(({ id }) => id),
    deleted: found.filter(({ isDeleted }) => isDeleted).map(({ id }) => id),
    vaultsChanged,
  };
}

/** The resource that is looked into: the target, or the one that it is part of. */
function resourceOf(target: string): string | undefined {
  const segments = target.split("/");
  for (let length = segments.length; length > 8; length -= 2) {
    const id = segments.slice(0, length).join("/");
    const type = parseResourceId(id)?.type;
    if (type !== undefined && FINDER_OF.has(type)) return id;
  }
  return undefined;
}
