import { Text } from "@fluentui/react-components";
import { useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { Answer } from "../../parts/answer.tsx";
import { untilOver } from "../../parts/follow.ts";
import { Operate } from "../../parts/operate.tsx";

/** Reads the applications anew, and says how far that is. */
export function Discover() {
  const [runId, follow] = useState<string>();
  return (
    <div>
      <Operate
        operation="discoverApplications"
        title="Read the applications"
        action="Read"
        submit={async (_, discover) => follow((await discover({})).runId)}
      >
        <Text>All applications of the tenant are read with what they sign in with. Nothing is changed.</Text>
      </Operate>
      {runId !== undefined && <Run runId={runId} />}
    </div>
  );
}

function Run({ runId }: { runId: string }) {
  const run = api.useQuery(
    "get",
    "/api/automation/rotation/runs/{run_id}",
    { params: { path: { run_id: runId } } },
    untilOver<Schemas["ApplicationDiscovery"]>(({ status }) => status !== "running"),
  );
  return (
    <div role="status">
      <Answer of={run}>
        {({ status, apps, credentials, failures }) => (
          <>
            {status === "running"
              ? "Reading"
              : `${status}: ${apps ?? 0} applications, ${credentials ?? 0} credentials.`}
            {failures.map(({ list, message, remedy }) => (
              <Text key={list} block>
                {list}: {message} {remedy}
              </Text>
            ))}
          </>
        )}
      </Answer>
    </div>
  );
}
