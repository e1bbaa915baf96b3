import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { QueryResult } from "../../parts/query-result.tsx";

/** Reads of the asset that were found in the vaults' logs. */
export function Usage({ assetId }: { assetId: string }) {
  const usage = api.useQuery("get", "/api/assets/dependencies/usage/{secret_id}", {
    params: { path: { secret_id: assetId } },
  });
  return (
    <QueryResult of={usage}>
      {({ readers, more, lastSignInAt, logs }) => (
        <>
          {logs.length === 0 && (
            <Text>No logs to search. Configure a Log Analytics workspace that collects the vaults' audit logs.</Text>
          )}
          {logs.map((log) => (
            <Log key={log.workspaceId} log={log} />
          ))}
          {logs.length > 0 && readers.length === 0 && (
            <Text>No reads found. Logs can lag, so this does not prove that the secret is unused.</Text>
          )}
          {readers.length > 0 && (
            <ul>
              {readers.map((reader) => (
                <Reader key={reader.id} reader={reader} />
              ))}
            </ul>
          )}
          {more && <Text>Older readers are not shown.</Text>}
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

const Reader = ({
  reader: { name, kind, operations, reads, lastReadAt, expected },
}: {
  reader: Schemas["AssetReader"];
}) => (
  <li>
    {name} ({kind}): {reads.toLocaleString()} reads in 30 days ({operations.join(", ")}), last read{" "}
    <Instant at={lastReadAt} relative />
    {expected === false && ". Unexpected: this identity is not a known consumer."}
  </li>
);

const Log = ({
  log: { workspaceId, readFrom, vaultSince, failure },
}: {
  log: Schemas["AssetUsage"]["logs"][number];
}) => (
  <Text block>
    {workspaceId}:{" "}
    {failure ? (
      `${failure.message} ${failure.remedy}`
    ) : readFrom === null ? (
      "Not read yet."
    ) : (
      <>
        Read since <Instant at={readFrom} />.
      </>
    )}
    {!failure && vaultSince === null && " This workspace contains no events of the vault."}
  </Text>
);
