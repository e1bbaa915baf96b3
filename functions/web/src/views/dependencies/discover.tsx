import { Text } from "@fluentui/react-components";
import { useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";
import { pollUntil } from "../../parts/polling.ts";
import { QueryResult } from "../../parts/query-result.tsx";

type Run = Schemas["DependencyRun"];

/** The button on the Dependencies page that starts dependency discovery. Below it appears the progress of the started run. */
export function Discover() {
  const [runId, setRunId] = useState<string>();
  return (
    <div>
      <Operate
        operation="discoverDependencies"
        title="Discover dependencies"
        action="Discover dependencies"
        submit={async (_, discover) => setRunId((await discover({})).runId)}
      >
        <Text>
          Finds what uses your secrets, keys and certificates. Reads resource configurations in all monitored
          subscriptions, the connected Azure DevOps projects, and the configured logs. This makes no changes.
        </Text>
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

/**
 * The progress or result of one run. Polls until the run has ended. `resources` is the number of consumers that the run found,
 * and `edges` the number of dependencies: pairs of a consumer and an asset that it uses. Both are null until the run has ended.
 */
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
              : `${STATUSES[status]}: ${counted(resources, "consumer")} found, ${counted(edges ?? 0, "use")} of secrets, keys and certificates.`}
            {/* The unit is the part that failed, such as a subscription. Null if the whole source failed. */}
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
