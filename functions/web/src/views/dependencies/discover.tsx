import { Text } from "@fluentui/react-components";
import { useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { Operate } from "../../parts/operate.tsx";
import { pollUntil } from "../../parts/polling.ts";
import { QueryResult } from "../../parts/query-result.tsx";

type Run = Schemas["DependencyRun"];

/** Starts dependency discovery and shows its progress. */
export function Discover() {
  const [runId, setRunId] = useState<string>();
  return (
    <div>
      <Operate
        operation="discoverDependencies"
        title="Discover dependencies"
        action="Discover"
        submit={async (_, discover) => setRunId((await discover({})).runId)}
      >
        <Text>Reads the configuration of all resources, pipelines and logs. This makes no changes.</Text>
      </Operate>
      {runId !== undefined && <Progress runId={runId} />}
    </div>
  );
}

const STATUSES = {
  queued: "Queued",
  running: "In progress",
  completed: "Completed",
  partial: "Partially completed",
  failed: "Failed",
} as const satisfies Record<Run["status"], string>;

function Progress({ runId }: { runId: string }) {
  const run = api.useQuery(
    "get",
    "/api/assets/dependencies/runs/{run_id}",
    { params: { path: { run_id: runId } } },
    pollUntil<Run>(({ status }) => status !== "queued" && status !== "running"),
  );
  return (
    <div role="status">
      <QueryResult of={run}>
        {({ status, resources, edges, failures }) => (
          <>
            {resources === null
              ? STATUSES[status]
              : `${STATUSES[status]}: ${resources} consumers, ${edges ?? 0} dependencies.`}
            {failures.map(({ source, unit, message, remedy }) => (
              <Text key={`${source} ${unit}`} block>
                {unit ?? source}: {message} {remedy}
              </Text>
            ))}
          </>
        )}
      </QueryResult>
    </div>
  );
}
