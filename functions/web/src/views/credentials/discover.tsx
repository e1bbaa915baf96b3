import { Text } from "@fluentui/react-components";
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";
import { pollUntil } from "../../parts/polling.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { Unavailable, useWhyNot } from "../../parts/unavailable.tsx";

type Discovery = Schemas["CredentialDiscovery"];

/**
 * The button that finds the vault secrets that store keys of Azure resources. After a click, the progress of the discovery appears
 * below the button, with the resources and secrets that could not be read.
 */
export function Discover() {
  const [runId, setRunId] = useState<string>();
  const whyNot = useWhyNot()("discoverCredentials");
  if (whyNot !== undefined) return <Unavailable title="Find credentials" reason={whyNot} />;
  return (
    <div>
      <Operate
        operation="discoverCredentials"
        title="Find credentials"
        action="Find credentials"
        submit={async (_, discover) => setRunId((await discover({})).runId)}
      >
        <Text>
          Lists the keys of the resources in the monitored subscriptions, reads all enabled vault secrets, and compares
          both in memory. No value is shown or stored. The discovery makes one call for each resource and each secret.
        </Text>
      </Operate>
      {runId !== undefined && <Run runId={runId} />}
    </div>
  );
}

const STATUSES = {
  running: "In progress",
  completed: "Completed",
  partial: "Partially completed",
  failed: "Failed",
} as const satisfies Record<Discovery["status"], string>;

/** The progress or result of one discovery. Polls until the discovery has ended, and then refreshes the list. */
function Run({ runId }: { runId: string }) {
  const queries = useQueryClient();
  const run = api.useQuery(
    "get",
    "/api/automation/rotation/credentials/runs/{run_id}",
    { params: { path: { run_id: runId } } },
    pollUntil<Discovery>(({ status }) => status !== "running"),
  );
  const isOver = run.data !== undefined && run.data.status !== "running";
  useEffect(() => {
    if (isOver) void queries.invalidateQueries({ queryKey: ["get", "/api/automation/rotation/credentials"] });
  }, [isOver, queries]);
  return (
    <div role="status">
      <QueryResult of={run}>{(data) => <Progress run={data} />}</QueryResult>
    </div>
  );
}

function Progress({ run }: { run: Discovery }) {
  const { status, resources, resourcesDenied, secrets, secretsDenied, links, removed, failures } = run;
  return (
    <>
      <Text block>
        {STATUSES[status]}: {counted(links, "vault secret stores", "vault secrets store")} a key. Compared{" "}
        {counted(secrets, "vault secret")} with the keys of {counted(resources, "resource")}.
        {removed > 0 && ` ${counted(removed, "vault secret")} no longer ${removed === 1 ? "stores" : "store"} a key.`}
      </Text>
      {resourcesDenied > 0 && (
        <Text block>
          Not compared: {counted(resourcesDenied, "resource")} whose keys the service's identity may not list. Give the
          identity the actions of their kinds in the resource groups whose keys it may rotate.
        </Text>
      )}
      {secretsDenied > 0 && (
        <Text block>
          Not compared: {counted(secretsDenied, "vault secret")} that the service's identity may not read. Assign the
          role Key Vault Secrets User on their vaults.
        </Text>
      )}
      {failures.map(({ list, message, remedy }) => (
        <Text key={list} block>
          {list}: {message} {remedy}
        </Text>
      ))}
    </>
  );
}
