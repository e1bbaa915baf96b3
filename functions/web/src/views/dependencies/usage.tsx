import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { isCredential } from "../../parts/dependency-texts.ts";
import { Instant } from "../../parts/instant.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";

/**
 * The content of the card with the reads of the asset, or the last sign-in with it, in the configured Log Analytics workspaces.
 */
export function Usage({ assetId }: { assetId: string }) {
  const usage = api.useQuery("get", "/api/assets/dependencies/usage/{secret_id}", {
    params: { path: { secret_id: assetId } },
  });
  return (
    <QueryResult of={usage}>
      {(data) => (isCredential(assetId) ? <LastSignIn usage={data} /> : <Reads usage={data} />)}
    </QueryResult>
  );
}

/** The last sign-in with a credential. Logs of vaults say nothing about a credential, so the workspaces are not listed. */
function LastSignIn({ usage: { lastSignInAt, logs } }: { usage: Schemas["AssetUsage"] }) {
  if (lastSignInAt !== null)
    return (
      <Text>
        Last sign-in with this credential: <Instant at={lastSignInAt} relative />.
      </Text>
    );
  return logs.length === 0 ? (
    <Text>
      No logs are configured, so sign-ins are unknown. Send the sign-in logs of service principals in Microsoft Entra to
      a Log Analytics workspace, and enter its ID in LOG_ANALYTICS_WORKSPACE_IDS.
    </Text>
  ) : (
    <Text>
      No sign-in with this credential found. Sign-in logs can be missing or arrive late, so this does not prove that the
      credential is unused.
    </Text>
  );
}

/** The reads of an asset in a vault, and the state of each workspace. */
function Reads({ usage: { readers, more, logs } }: { usage: Schemas["AssetUsage"] }) {
  return (
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
    </>
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
