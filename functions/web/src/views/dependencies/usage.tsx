import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Answer } from "../../parts/answer.tsx";
import { Instant } from "../../parts/instant.tsx";

/** Who was seen to read it in the vaults' logs. */
export function Usage({ assetId }: { assetId: string }) {
  const usage = api.useQuery("get", "/api/assets/dependencies/usage/{secret_id}", {
    params: { path: { secret_id: assetId } },
  });
  return (
    <Answer of={usage}>
      {({ readers, more, lastSignInAt, logs }) => (
        <>
          {logs.length === 0 && <Text>No workspace with the vaults' logs is named, so nothing is known here.</Text>}
          {logs.map((log) => (
            <Log key={log.workspaceId} log={log} />
          ))}
          {logs.length > 0 && readers.length === 0 && (
            <Text>Nobody was seen to read it. That proves nothing: a log may be late.</Text>
          )}
          {readers.length > 0 && (
            <ul>
              {readers.map((reader) => (
                <Reader key={reader.id} reader={reader} />
              ))}
            </ul>
          )}
          {more && <Text>There were others, longer ago.</Text>}
          {lastSignInAt && (
            <Text>
              It last signed in <Instant at={lastSignInAt} relative />.
            </Text>
          )}
        </>
      )}
    </Answer>
  );
}

const Reader = ({
  reader: { name, kind, operations, reads, lastReadAt, expected },
}: {
  reader: Schemas["AssetReader"];
}) => (
  <li>
    {name} ({kind}): {reads.toLocaleString()} reads in 30 days by {operations.join(", ")}, the last{" "}
    <Instant at={lastReadAt} relative />
    {expected === false && ". Nothing let one expect this."}
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
      "not read yet."
    ) : (
      <>
        read since <Instant at={readFrom} />.
      </>
    )}
    {!failure && vaultSince === null && " It has none of the vault's events."}
  </Text>
);
