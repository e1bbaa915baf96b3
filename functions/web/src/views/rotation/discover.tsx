import { Text } from "@fluentui/react-components";
import { useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { Operate } from "../../parts/operate.tsx";
import { pollUntil } from "../../parts/polling.ts";
import { QueryResult } from "../../parts/query-result.tsx";

/** Refreshes the applications from Entra and shows the progress. */
export function Discover() {
  const [runId, setRunId] = useState<string>();
  return (
    <div>
      <Operate
        operation="discoverApplications"
        title="Refresh applications"
        action="Refresh"
        submit={async (_, discover) => setRunId((await discover({})).runId)}
      >
        <Text>Reads all applications of the tenant and their credentials from Entra. This makes no changes.</Text>
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
} as const satisfies Record<Schemas["ApplicationDiscovery"]["status"], string>;

function Run({ runId }: { runId: string }) {
  const run = api.useQuery(
    "get",
    "/api/automation/rotation/runs/{run_id}",
    { params: { path: { run_id: runId } } },
    pollUntil<Schemas["ApplicationDiscovery"]>(({ status }) => status !== "running"),
  );
  return (
    <div role="status">
      <QueryResult of={run}>
        {({ status, apps, credentials, failures }) => (
          <>
            {status === "running"
              ? "Refresh in progress"
              : `${STATUSES[status]}: ${apps ?? 0} applications, ${credentials ?? 0} credentials.`}
            {failures.map(({ list, message, remedy }) => (
              <Text key={list} block>
                {list}: {message} {remedy}
              </Text>
            ))}
          </>
        )}
      </QueryResult>
    </div>
  );
}
