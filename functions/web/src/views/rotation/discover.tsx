import { Text } from "@fluentui/react-components";
import { useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";
import { pollUntil } from "../../parts/polling.ts";
import { QueryResult } from "../../parts/query-result.tsx";

/**
 * The button that reads the applications from Entra again, above the table of applications. After a click, the progress of the
 * refresh appears below the button.
 */
export function Discover() {
  const [runId, setRunId] = useState<string>();
  return (
    <div>
      <Operate
        operation="discoverApplications"
        title="Refresh applications"
        action="Refresh applications"
        submit={async (_, discover) => setRunId((await discover({})).runId)}
      >
        <Text>
          Reads all applications of the tenant from Entra, with the names and expiry dates of their credentials. This
          makes no changes.
        </Text>
      </Operate>
      {runId !== undefined && <Run runId={runId} />}
    </div>
  );
}

/** Statuses of a refresh, which the API calls discovery. `partial`: one of the lists in Entra could not be read. */
const STATUSES = {
  running: "In progress",
  completed: "Completed",
  partial: "Partially completed",
  failed: "Failed",
} as const satisfies Record<Schemas["ApplicationDiscovery"]["status"], string>;

/** The progress or result of one refresh. Polls until the refresh has ended. */
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
        {({ status, apps, credentials, unnamedOwners, failures }) => (
          <>
            {status === "running"
              ? "Refresh in progress"
              : `${STATUSES[status]}: ${counted(apps ?? 0, "application")}, ${counted(credentials ?? 0, "credential")}.`}
            {/* Null while the refresh is in progress and before the first full one. */}
            {unnamedOwners !== null && unnamedOwners > 0 && (
              <Text block>
                Microsoft Graph returned no name and no address of {counted(unnamedOwners, "owner")}. To see those of
                users, grant the service's identity the application permission User.ReadBasic.All.
              </Text>
            )}
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
