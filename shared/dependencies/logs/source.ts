import { withoutKeys } from "../../platform/storage/entity.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { DAY_MS } from "../../platform/time.ts";
import { type Edge, principalId, type Resource } from "../edge.ts";
import type { EdgeSource, ReadingItem } from "../edge-source.ts";
import type { WorkspaceReader } from "./read-workspace.ts";
import { ASSET_USES, type AssetUseRecord, AssetUses, type Reader, readersOf, under } from "./rows.ts";
import { nameOfReader } from "./unexpected-readers.ts";
import type { UnusedSecrets } from "./unused-secrets.ts";

/** A reader is a dependency as long as its last read is not older than this. */
const MAX_READ_AGE_MS = 90 * DAY_MS;

/**
 * Source of dependencies from logs: readers of assets in the configured workspaces. Known readers stay while a workspace can't
 * be read.
 */
export function createLogSource(deps: {
  tables: Tables;
  workspaceIds: readonly string[];
  reader: WorkspaceReader;
  unused: Pick<UnusedSecrets, "reportUnused">;
  now: () => Date;
}): EdgeSource {
  const { tables, workspaceIds, reader } = deps;

  return {
    name: "logs",
    whole: true,
    ...(workspaceIds.length > 0 ? {} : { off: NOT_CONFIGURED }),
    units: async () => [...workspaceIds],

    async *read(unit, { signal }) {
      const { failure } = await reader.read(unit, signal);
      await deps.unused.reportUnused();
      const since = new Date(deps.now().getTime() - MAX_READ_AGE_MS).toISOString();
      const principals = new Map<string, { resource: Resource; edges: Edge[] }>();
      for await (const rows of tables.pages(AssetUses, under(unit, ASSET_USES)))
        for (const row of rows) {
          const record = withoutKeys(row);
          const recentReaders = readersOf(record).filter(({ lastAt }) => lastAt >= since);
          for (const recentReader of recentReaders) addEdge(principals, record, recentReader);
        }
      for (const principal of principals.values()) yield principal satisfies ReadingItem;
      if (failure) {
        const { code, message, remedy } = failure;
        yield { notSeen: { scope: `workspaces/${unit}`, code, message, remedy } };
      }
    },
  };
}

const NOT_CONFIGURED = {
  code: "notConfigured",
  message: "No Log Analytics workspace is configured, so reads of the vaults are unknown.",
  remedy: "Send the vaults' audit events to a workspace and name it in LOG_ANALYTICS_WORKSPACE_IDS.",
};

function addEdge(
  principals: Map<string, { resource: Resource; edges: Edge[] }>,
  { vaultName, type, name }: AssetUseRecord,
  reader: Reader,
): void {
  const { id, identityOf, operations, lastAt } = reader;
  const principal = principals.get(id) ?? {
    resource: {
      id: principalId(id),
      kind: "principal",
      name: nameOfReader(reader),
      ...(identityOf !== undefined && { identityOf }),
    },
    edges: [],
  };
  principal.edges.push({
    vaultName,
    type,
    name,
    resource: principal.resource,
    strength: "observed",
    evidence: operations.join(", "),
    refresh: { how: "blind" },
    lastReadOn: lastAt.slice(0, 10),
  });
  principals.set(id, principal);
}
