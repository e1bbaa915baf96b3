import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";

/** The card of the blast radius page with the reads of the asset that the configured Log Analytics workspaces contain. */
export function Usage({ assetId }: { assetId: string }) {
  const usage = api.useQuery("get", "/api/assets/dependencies/usage/{secret_id}", {
    params: { path: { secret_id: assetId } },
  });
  return (
    <QueryResult of={usage}>
      {({ readers, more, lastSignInAt, logs }) => (
        <>
          {logs.length === 0 && (
            <Text>
              No logs are configured, so reads are unknown. Send the audit logs of the key vaults to a Log Analytics
              workspace, and enter its ID in LOG_ANALYTICS_WORKSPACE_IDS.
            </Text>
          )}
          {logs.map((log) => (
            <Log key={log.workspaceId} log={log} />
          ))}
          {logs.length > 0 && readers.length === 0 && (
            <Text>No reads found. Logs can arrive late, so this does not prove that the asset is unused.</Text>
          )}
          {readers.length > 0 && (
            <ul>
              {readers.map((reader) => (
                <Reader key={reader.id} reader={reader} />
              ))}
            </ul>
          )}
          {more && <Text>Only the most recent readers are shown.</Text>}
          {lastSignInAt && (
            <Text>
              Last sign-in with this credential: <Instant at={lastSignInAt} relative />.
            </Text>
          )}
        </>
      )}
    </QueryResult>
  );
}

/** A user or application that read the asset. `expected` is null until access data is available, so only false is a finding. */
const Reader = ({
  reader: { name, kind, operations, reads, lastReadAt, expected },
}: {
  reader: Schemas["AssetReader"];
}) => (
  <li>
    {name} ({kind}): {counted(reads, "read")} in the last 30 days ({operations.join(", ")}), last read{" "}
    <Instant at={lastReadAt} relative />
    {expected === false && ". Unexpected: no known permission or reference allows this identity to read the asset."}
  </li>
);

/** A workspace. `readFrom` is null before its first search, and `vaultSince` is null if it has no entries of this vault. */
const Log = ({
  log: { workspaceId, readFrom, vaultSince, failure },
}: {
  log: Schemas["AssetUsage"]["logs"][number];
}) => (
  <Text block>
    Log Analytics workspace {workspaceId}:{" "}
    {failure ? (
      `${failure.message} ${failure.remedy}`
    ) : readFrom === null ? (
      "not searched yet."
    ) : (
      <>
        searched for reads since <Instant at={readFrom} />.
      </>
    )}
    {!failure && vaultSince === null && " The workspace contains no entries of this vault."}
  </Text>
);
